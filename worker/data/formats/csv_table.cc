#include "worker/data/formats/csv_table.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "worker/data/formats/csv_columns.h"
#include "worker/data/reading/input_file.h"
#include "worker/data/reading/text_input.h"

namespace syncline::worker {
namespace {

constexpr int kUnused = -1;

// The used columns of one type: [size, columns], in file order.
template <typename T>
struct ColumnBlock {
  std::vector<int64_t> columns;  // of the file, ascending
  std::vector<T> values;

  int64_t stride() const { return columns.size(); }
  const T* Row(int64_t sample) const { return &values[sample * stride()]; }
};

// The values of a column that holds lists: those of sample s are
// [begins[s], begins[s + 1]).
template <typename T>
struct ListColumn {
  int64_t column = 0;  // of the file
  int64_t width = 0;   // at most, and what is read is padded to
  bool complete = false;
  T padding = 0;
  std::vector<int64_t> begins = {0};
  std::vector<T> values;

  int64_t length(int64_t sample) const {
    return begins[sample + 1] - begins[sample];
  }
  // Calls out(value) for each of the sample's, and returns how many are
  // missing.
  template <typename Out>
  int64_t Read(int64_t sample, Out out) const {
    for (int64_t i = begins[sample]; i < begins[sample + 1]; ++i) {
      out(values[i]);
    }
    return width - length(sample);
  }
};

class CsvTable : public SampleTable {
 public:
  int64_t size() const override { return size_; }
  int64_t width(int field) const override { return fields_[field].width; }
  int64_t length(int field, int64_t sample) const override {
    const Field& where = fields_[field];
    if (!where.is_list) return where.width;
    return where.is_integers ? int_lists_[where.begin].length(sample)
                             : float_lists_[where.begin].length(sample);
  }
  int64_t CountIds(int field, int64_t id) const override {
    const Field& where = fields_[field];
    if (!where.is_integers) return 0;
    if (where.is_list) {
      return absl::c_count(int_lists_[where.begin].values, id);
    }
    int64_t count = 0;
    for (int64_t sample = 0; sample < size_; ++sample) {
      const int64_t* const row = ints_.Row(sample) + where.begin;
      count += std::count(row, row + where.width, id);
    }
    return count;
  }
  void Read(int field, absl::Span<const int64_t> samples, float scale,
            float offset, float* out) const override {
    const Field& where = fields_[field];
    if (where.is_list) {
      const ListColumn<float>& list = float_lists_[where.begin];
      for (const int64_t sample : samples) {
        const int64_t missing = list.Read(
            sample, [&](float value) { *out++ = value * scale + offset; });
        out = std::fill_n(out, missing, list.padding);
      }
      return;
    }
    for (const int64_t sample : samples) {
      const float* row = floats_.Row(sample) + where.begin;
      for (int64_t i = 0; i < where.width; ++i) {
        out[i] = row[i] * scale + offset;
      }
      out += where.width;
    }
  }
  void ReadInts(int field, absl::Span<const int64_t> samples,
                int64_t* out) const override {
    const Field& where = fields_[field];
    if (where.is_list) {
      const ListColumn<int64_t>& list = int_lists_[where.begin];
      for (const int64_t sample : samples) {
        const int64_t missing =
            list.Read(sample, [&](int64_t value) { *out++ = value; });
        out = std::fill_n(out, missing, list.padding);
      }
      return;
    }
    for (const int64_t sample : samples) {
      out = std::copy_n(ints_.Row(sample) + where.begin, where.width, out);
    }
  }
  std::string Where(int field, int64_t sample) const override {
    return origins_.Where(sample);
  }

 private:
  friend class CsvLoader;
  struct Field {
    int64_t begin = 0;  // in a row of floats_ or ints_, or index of a list
    int64_t width = 0;
    bool is_list = false;
    bool is_integers = false;
  };
  std::vector<Field> fields_;
  int64_t size_ = 0;
  ColumnBlock<float> floats_;
  ColumnBlock<int64_t> ints_;
  std::vector<ListColumn<float>> float_lists_;
  std::vector<ListColumn<int64_t>> int_lists_;
  LineOrigins origins_;
};

class CsvLoader {
 public:
  CsvLoader(const CsvSource& source, absl::Span<const FieldRequest> fields,
            const MemoryBudget& memory)
      : source_(source),
        memory_(memory),
        delimiter_(CsvDelimiter(source)),
        has_header_(source.has_header()),
        fields_(fields),
        table_(std::make_unique<CsvTable>()) {}

  absl::Status AddFile(const DataFile& file) {
    SYNCLINE_ASSIGN_OR_RETURN(LineReader reader, LineReader::Open(file));
    bool header_is_next = has_header_;
    absl::string_view line;
    while (true) {
      SYNCLINE_ASSIGN_OR_RETURN(const bool more, reader.Next(&line));
      if (!more) return absl::OkStatus();
      if (IsBlankLine(line, delimiter_)) continue;
      const absl::Status split = SplitColumns(line, delimiter_, &columns_);
      if (!split.ok()) {
        return absl::InvalidArgumentError(
            absl::StrCat(reader.Where(), ":", split.message()));
      }
      SYNCLINE_RETURN_IF_ERROR(header_is_next ? AddHeader(reader, line)
                                              : AddRow(reader, line));
      header_is_next = false;
    }
  }

  absl::StatusOr<std::unique_ptr<SampleTable>> Finish(
      const std::string& path) && {
    if (table_->size_ == 0) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": no samples"));
    }
    memory_.Shrink(&table_->floats_.values);
    memory_.Shrink(&table_->ints_.values);
    for (auto& list : table_->float_lists_) memory_.Shrink(&list.values);
    for (auto& list : table_->int_lists_) memory_.Shrink(&list.values);
    return std::move(table_);
  }

 private:
  absl::Status AddHeader(const LineReader& reader, absl::string_view line) {
    absl::StatusOr<std::vector<std::string>> header = HeaderNames(columns_);
    if (!header.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(reader.Where(), ": ", header.status().message()));
    }
    if (schema_.column_count == 0) {
      schema_.header = *std::move(header);
      return ResolveFields(reader, line);
    }
    if (*header != schema_.header) {
      return absl::InvalidArgumentError(absl::StrCat(
          reader.Where(), ": the header differs from that of ", first_line_));
    }
    return absl::OkStatus();
  }

  absl::Status AddRow(const LineReader& reader, absl::string_view line) {
    if (schema_.column_count == 0) {
      SYNCLINE_RETURN_IF_ERROR(ResolveFields(reader, line));
    }
    const int64_t count = columns_.size();
    if (count != schema_.column_count) {
      const bool has_row_names = has_header_ && table_->size_ == 0 &&
                                 count == schema_.column_count + 1;
      return absl::InvalidArgumentError(absl::StrCat(
          reader.Where(), ": ", count, " columns, expected ",
          schema_.column_count, " as in ", first_line_,
          has_row_names ? "; lines that begin with a name that the header "
                          "lacks are what R's write.table makes: write them "
                          "with row.names = FALSE"
                        : ""));
    }
    SYNCLINE_RETURN_IF_ERROR(AddValues(reader, ParseNumber, &table_->floats_));
    SYNCLINE_RETURN_IF_ERROR(AddValues(reader, ParseInteger, &table_->ints_));
    for (auto& list : table_->float_lists_) {
      SYNCLINE_RETURN_IF_ERROR(AddList(reader, ParseNumber, &list));
    }
    for (auto& list : table_->int_lists_) {
      SYNCLINE_RETURN_IF_ERROR(AddList(reader, ParseInteger, &list));
    }
    table_->origins_.Add(reader);
    ++table_->size_;
    return absl::OkStatus();
  }

  template <typename T>
  absl::Status AddValues(const LineReader& reader,
                         absl::StatusOr<T> (*parse)(absl::string_view),
                         ColumnBlock<T>* block) {
    SYNCLINE_RETURN_IF_ERROR(memory_.Grow(
        block->columns.size(), [&] { return reader.Where(); }, &block->values));
    for (const int64_t i : block->columns) {
      const absl::StatusOr<T> value = parse(columns_[i].text);
      if (!value.ok()) return ValueError(reader, i, 0, value.status());
      block->values.push_back(*value);
    }
    return absl::OkStatus();
  }

  template <typename T>
  absl::Status AddList(const LineReader& reader,
                       absl::StatusOr<T> (*parse)(absl::string_view),
                       ListColumn<T>* list) {
    const absl::string_view text = columns_[list->column].text;
    const int64_t before = list->begins.back();
    const auto where = [&] { return reader.Where(); };
    SYNCLINE_RETURN_IF_ERROR(memory_.Grow(1, where, &list->begins));
    size_t begin = 0;
    while (!absl::StripAsciiWhitespace(text).empty() && begin <= text.size()) {
      const size_t end =
          std::min(text.find(source_.list_delimiter()[0], begin), text.size());
      const absl::StatusOr<T> value = parse(text.substr(begin, end - begin));
      if (!value.ok()) {
        return ValueError(reader, list->column, begin, value.status());
      }
      SYNCLINE_RETURN_IF_ERROR(memory_.Grow(1, where, &list->values));
      list->values.push_back(*value);
      begin = end + 1;
    }
    const int64_t count = static_cast<int64_t>(list->values.size()) - before;
    if (count > list->width || (list->complete && count < list->width)) {
      return ValueError(reader, list->column, 0,
                        absl::InvalidArgumentError(absl::StrCat(
                            count, " values, expected ",
                            list->complete ? "" : "at most ", list->width)));
    }
    list->begins.push_back(before + count);
    return absl::OkStatus();
  }

  // `position`: in the column's text.
  absl::Status ValueError(const LineReader& reader, int64_t column,
                          size_t position, const absl::Status& status) const {
    return absl::InvalidArgumentError(absl::StrCat(
        reader.Where(), ":", columns_[column].position + position + 1, ": ",
        status.message(), " (column ", column,
        schema_.header.empty()
            ? ""
            : absl::StrCat(", ", QuotedStart(schema_.header[column])),
        ")"));
  }

  // Called at the first line, whose columns are in columns_.
  absl::Status ResolveFields(const LineReader& reader, absl::string_view line) {
    first_line_ = reader.Where();
    schema_.column_count = columns_.size();
    std::vector<ColumnRange> ranges;
    std::vector<std::string> problems;
    for (const FieldRequest& field : fields_) {
      const auto range = ResolveField(field.name, schema_);
      if (!range.ok()) {
        problems.push_back(absl::StrCat(
            first_line_, ": ", range.status().message(),
            DelimiterHint(line, delimiter_, schema_.column_count)));
        continue;
      }
      if (ReadsRowNames(*range)) {
        problems.push_back(absl::StrCat(
            first_line_, ": field \"", field.name,
            "\" has column 0, which has no name in the header: row names, as "
            "R's write.csv and pandas add them, are no data"));
      }
      ranges.push_back(*range);
    }
    if (!problems.empty()) {
      return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
    }
    table_->fields_.resize(ranges.size());
    for (size_t i = 0; i < ranges.size(); ++i) {
      if (!IsList(fields_[i])) continue;
      table_->fields_[i] =
          fields_[i].integers
              ? PlaceList(fields_[i], ranges[i], &table_->int_lists_)
              : PlaceList(fields_[i], ranges[i], &table_->float_lists_);
    }
    PlaceFields(ranges, /*integers=*/false, &table_->floats_);
    PlaceFields(ranges, /*integers=*/true, &table_->ints_);
    return absl::OkStatus();
  }

  bool ReadsRowNames(const ColumnRange& range) const {
    return schema_.header.size() > 1 && range.begin == 0 &&
           schema_.header[0].empty() && !schema_.header[1].empty();
  }

  bool IsList(const FieldRequest& field) const {
    return IsCsvList(source_, field.name, field.padded_width);
  }

  template <typename T>
  static CsvTable::Field PlaceList(const FieldRequest& field,
                                   const ColumnRange& range,
                                   std::vector<ListColumn<T>>* lists) {
    ListColumn<T>& list = lists->emplace_back();
    list.column = range.begin;
    list.width = field.padded_width;
    list.complete = field.complete;
    list.padding = static_cast<T>(field.padding);
    return {static_cast<int64_t>(lists->size()) - 1, list.width, true,
            field.integers};
  }

  // Gives the fields of one type their columns. A range's columns are all used,
  // so they are neighbours in a row of the block.
  template <typename T>
  void PlaceFields(absl::Span<const ColumnRange> ranges, bool integers,
                   ColumnBlock<T>* block) {
    std::vector<bool> used(columns_.size(), false);
    for (size_t i = 0; i < ranges.size(); ++i) {
      if (fields_[i].integers != integers || IsList(fields_[i])) continue;
      std::fill(used.begin() + ranges[i].begin, used.begin() + ranges[i].end,
                true);
    }
    std::vector<int64_t> place(used.size(), kUnused);
    for (size_t i = 0; i < used.size(); ++i) {
      if (!used[i]) continue;
      place[i] = block->stride();
      block->columns.push_back(i);
    }
    for (size_t i = 0; i < ranges.size(); ++i) {
      if (fields_[i].integers != integers || IsList(fields_[i])) continue;
      table_->fields_[i] = {.begin = place[ranges[i].begin],
                            .width = ranges[i].end - ranges[i].begin,
                            .is_integers = integers};
    }
  }

  const CsvSource& source_;
  const MemoryBudget& memory_;
  const char delimiter_;
  const bool has_header_;
  const absl::Span<const FieldRequest> fields_;
  std::unique_ptr<CsvTable> table_;
  Schema schema_;
  std::string first_line_;       // "FILE:LINE"
  std::vector<Column> columns_;  // of the line at hand
};

}  // namespace

bool IsCsvList(const CsvSource& source, absl::string_view field,
               int64_t width) {
  return !source.list_delimiter().empty() && width > 1 &&
         !absl::StrContains(field, ':');
}

absl::StatusOr<std::unique_ptr<SampleTable>> LoadCsv(
    const CsvSource& source, absl::Span<const FieldRequest> fields,
    const DataRoot& data_root, const MemoryBudget& memory) {
  if (source.delimiter().size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "delimiter: \"", source.delimiter(), "\" is not one character"));
  }
  SYNCLINE_ASSIGN_OR_RETURN(const auto files,
                            FindFiles(source.path(), data_root));
  CsvLoader loader(source, fields, memory);
  for (const DataFile& file : files) {
    SYNCLINE_RETURN_IF_ERROR(loader.AddFile(file));
  }
  return std::move(loader).Finish(files[0]);
}

}  // namespace syncline::worker

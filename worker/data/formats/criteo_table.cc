#include "worker/data/formats/criteo_table.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "worker/data/reading/input_file.h"
#include "worker/data/reading/spool_file.h"
#include "worker/data/reading/text_input.h"

namespace syncline::worker {
namespace {

constexpr int kColumns = 1 + kCriteoIntegers + kCriteoCategories;
constexpr int64_t kRowsPerPiece = 65'536;
constexpr uint64_t kLeftBytesMin = 512 << 20;

// One line. Flag c: category c is missing; flag 26: the label is 1.
struct CriteoRow {
  std::array<float, kCriteoIntegers> dense;
  std::array<uint32_t, kCriteoCategories> categories;
  uint32_t flags;
};
static_assert(sizeof(CriteoRow) == 160, "the documented size");
constexpr uint32_t kLabelFlag = 1u << kCriteoCategories;

float Squashed(int64_t count) {
  return static_cast<float>(
      std::log1p(static_cast<double>(std::max<int64_t>(count, 0))));
}

int64_t KeyOf(const CriteoRow& row, int column) {
  return (row.flags >> column & 1) != 0
             ? CriteoMissingKey(column)
             : CriteoKey(column, row.categories[column]);
}

struct CriteoField {
  enum class Kind { kLabel, kDense, kCategories };
  Kind kind = Kind::kLabel;
  int begin = 0;  // columns of the kind
  int width = 1;
};

// "NAME" or "NAME:COLUMN".
bool ParseField(absl::string_view text, absl::string_view name, int columns,
                CriteoField* field) {
  if (!absl::ConsumePrefix(&text, name)) return false;
  field->begin = 0;
  field->width = columns;
  if (text.empty()) return true;
  field->width = 1;
  return absl::ConsumePrefix(&text, ":") &&
         absl::SimpleAtoi(text, &field->begin) && field->begin >= 0 &&
         field->begin < columns;
}

absl::StatusOr<CriteoField> ResolveField(const FieldRequest& request) {
  constexpr char kSource[] = "a Criteo source";
  using Kind = CriteoField::Kind;
  CriteoField field;
  if (request.name == "label") {
    field.kind = Kind::kLabel;
  } else if (ParseField(request.name, "dense", kCriteoIntegers, &field)) {
    field.kind = Kind::kDense;
  } else if (ParseField(request.name, "categories", kCriteoCategories,
                        &field)) {
    field.kind = Kind::kCategories;
  } else {
    return NoSuchField(request, kSource,
                       "\"label\", \"dense\", \"dense:0\" to \"dense:12\", "
                       "\"categories\" and \"categories:0\" to "
                       "\"categories:25\"");
  }
  const bool is_keys = field.kind == Kind::kCategories;
  if (request.integers && !is_keys) return NotIntegers(request, kSource);
  if (!request.integers && is_keys) {
    return absl::InvalidArgumentError(
        absl::StrCat("field \"", request.name,
                     "\" of a Criteo source is int64 keys and can only feed an "
                     "int64 input"));
  }
  return field;
}

// Parses a line. Errors: InvalidArgument, naming the column.
absl::Status ParseLine(absl::string_view line, CriteoRow* row);

class CriteoTable : public SampleTable {
 public:
  // `spool` may be null: rows are kept in memory.
  CriteoTable(std::vector<CriteoField> fields, std::unique_ptr<SpoolFile> spool)
      : fields_(std::move(fields)), spool_(std::move(spool)) {}

  int64_t size() const override { return size_; }
  int64_t width(int field) const override { return fields_[field].width; }
  void Read(int field, absl::Span<const int64_t> samples, float scale,
            float offset, float* out) const override {
    const CriteoField& where = fields_[field];
    for (const int64_t sample : samples) {
      const CriteoRow& row = Row(sample);
      if (where.kind == CriteoField::Kind::kLabel) {
        *out++ = ((row.flags & kLabelFlag) != 0 ? 1.0f : 0.0f) * scale + offset;
        continue;
      }
      for (int i = 0; i < where.width; ++i) {
        *out++ = row.dense[where.begin + i] * scale + offset;
      }
    }
  }
  void ReadInts(int field, absl::Span<const int64_t> samples,
                int64_t* out) const override {
    const CriteoField& where = fields_[field];
    for (const int64_t sample : samples) {
      const CriteoRow& row = Row(sample);
      for (int i = 0; i < where.width; ++i) {
        *out++ = KeyOf(row, where.begin + i);
      }
    }
  }
  std::string Where(int field, int64_t sample) const override {
    return origins_.Where(sample);
  }

  void WillRead(int64_t first, int64_t count) const override {
    if (spool_ == nullptr) return;
    spool_->WillRead(first * sizeof(CriteoRow),
                     (first + count) * sizeof(CriteoRow));
  }
  void HasRead(int64_t first, int64_t count) const override {
    if (spool_ == nullptr) return;
    spool_->HasRead(first * sizeof(CriteoRow),
                    (first + count) * sizeof(CriteoRow));
  }

  // Errors: ResourceExhausted, naming the line that does not fit.
  absl::Status Add(const CriteoRow& row, const LineReader& reader,
                   const std::function<uint64_t()>& available) {
    const bool needs_piece =
        spool_ != nullptr
            ? pieces_.empty()
            : size_ == static_cast<int64_t>(pieces_.size()) * kRowsPerPiece;
    if (needs_piece) SYNCLINE_RETURN_IF_ERROR(AddPiece(reader, available()));
    pieces_.back()[size_++ % kRowsPerPiece] = row;
    origins_.Add(reader);
    if (spool_ == nullptr || size_ % kRowsPerPiece > 0) return absl::OkStatus();
    return Annotate(Spool(kRowsPerPiece), reader.Where());
  }
  // All rows are there.
  absl::Status Finish() {
    if (spool_ == nullptr) return absl::OkStatus();
    SYNCLINE_RETURN_IF_ERROR(Spool(size_ % kRowsPerPiece));
    pieces_.clear();
    SYNCLINE_RETURN_IF_ERROR(spool_->Finish());
    spooled_ = reinterpret_cast<const CriteoRow*>(spool_->data());
    return absl::OkStatus();
  }

 private:
  absl::Status AddPiece(const LineReader& reader, uint64_t available) {
    constexpr uint64_t kBytes = kRowsPerPiece * sizeof(CriteoRow);
    if (spool_ == nullptr && available < kBytes + kLeftBytesMin) {
      return absl::ResourceExhaustedError(absl::StrCat(
          reader.Where(), ": the data does not fit into memory: ", size_,
          " samples take ", size_ * sizeof(CriteoRow) >> 20, " MiB, ",
          available >> 20, " MiB are available, of which ", kLeftBytesMin >> 20,
          " MiB are left to the rest of the job; set criteo.window_samples to "
          "keep them on disk"));
    }
    pieces_.push_back(std::make_unique<CriteoRow[]>(kRowsPerPiece));
    return absl::OkStatus();
  }
  absl::Status Spool(int64_t rows) {
    return spool_->Append(pieces_.back().get(), rows * sizeof(CriteoRow));
  }
  const CriteoRow& Row(int64_t sample) const {
    if (spooled_ != nullptr) return spooled_[sample];
    return pieces_[sample / kRowsPerPiece][sample % kRowsPerPiece];
  }

  const std::vector<CriteoField> fields_;
  const std::unique_ptr<SpoolFile> spool_;
  const CriteoRow* spooled_ = nullptr;
  // With a spool one, which its rows go through.
  std::vector<std::unique_ptr<CriteoRow[]>> pieces_;
  int64_t size_ = 0;
  LineOrigins origins_;
};

absl::Status ColumnError(absl::string_view what, int column,
                         absl::string_view text, absl::string_view problem) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, column, ": ", QuotedStart(text), " ", problem));
}

template <typename T>
bool ParseWhole(absl::string_view text, int base, T* value) {
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, *value, base);
  return parsed.ec == std::errc() && parsed.ptr == end;
}

// Cuts a line at its tabs; returns how many columns it has, of which those
// beyond kColumns are not stored.
int SplitColumns(absl::string_view line,
                 std::array<absl::string_view, kColumns>* columns) {
  int count = 0;
  size_t begin = 0;
  while (true) {
    const size_t end = std::min(line.find('\t', begin), line.size());
    if (count < kColumns) (*columns)[count] = line.substr(begin, end - begin);
    ++count;
    if (end == line.size()) return count;
    begin = end + 1;
  }
}

absl::Status ParseLine(absl::string_view line, CriteoRow* row) {
  std::array<absl::string_view, kColumns> columns;
  const int count = SplitColumns(line, &columns);
  if (count != kColumns) {
    return absl::InvalidArgumentError(absl::StrCat(
        count, " columns, expected ", kColumns,
        " separated by tabs: the label, 13 integers, 26 categories"));
  }
  row->flags = 0;
  if (columns[0] == "1") {
    row->flags |= kLabelFlag;
  } else if (columns[0] != "0") {
    return ColumnError("column ", 0, columns[0], "is not a label, 0 or 1");
  }
  for (int i = 0; i < kCriteoIntegers; ++i) {
    const absl::string_view text = columns[1 + i];
    int64_t value = 0;
    if (!text.empty() && !ParseWhole(text, 10, &value)) {
      return ColumnError("integer ", i, text, "is not an integer");
    }
    row->dense[i] = Squashed(value);
  }
  for (int i = 0; i < kCriteoCategories; ++i) {
    const absl::string_view text = columns[1 + kCriteoIntegers + i];
    row->categories[i] = 0;
    if (text.empty()) {
      row->flags |= 1u << i;
    } else if (text.size() > 8 || !ParseWhole(text, 16, &row->categories[i])) {
      return ColumnError("category ", i, text,
                         "is not 1 to 8 hexadecimal digits");
    }
  }
  return absl::OkStatus();
}

absl::Status AddFile(const DataFile& file, CriteoTable* table,
                     const std::function<uint64_t()>& available) {
  SYNCLINE_ASSIGN_OR_RETURN(LineReader reader, LineReader::Open(file));
  absl::string_view line;
  CriteoRow row;
  while (true) {
    SYNCLINE_ASSIGN_OR_RETURN(const bool more, reader.Next(&line));
    if (!more) return absl::OkStatus();
    if (line.empty()) continue;
    const absl::Status parsed = ParseLine(line, &row);
    if (!parsed.ok()) return Annotate(parsed, reader.Where());
    SYNCLINE_RETURN_IF_ERROR(table->Add(row, reader, available));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<SampleTable>> LoadCriteo(
    const CriteoSource& source, absl::Span<const FieldRequest> fields,
    const DataRoot& data_root, const std::string& work_dir,
    const std::function<uint64_t()>& available) {
  std::vector<CriteoField> resolved;
  for (const FieldRequest& request : fields) {
    SYNCLINE_ASSIGN_OR_RETURN(const CriteoField field, ResolveField(request));
    resolved.push_back(field);
  }
  SYNCLINE_ASSIGN_OR_RETURN(const auto files,
                            FindFiles(source.path(), data_root));
  std::unique_ptr<SpoolFile> spool;
  if (source.window_samples() > 0) {
    SYNCLINE_ASSIGN_OR_RETURN(spool, SpoolFile::Create(work_dir));
  }
  auto table =
      std::make_unique<CriteoTable>(std::move(resolved), std::move(spool));
  for (const DataFile& file : files) {
    SYNCLINE_RETURN_IF_ERROR(AddFile(file, table.get(), available));
  }
  if (table->size() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(files[0].path, ": no samples"));
  }
  SYNCLINE_RETURN_IF_ERROR(table->Finish());
  return table;
}

}  // namespace syncline::worker

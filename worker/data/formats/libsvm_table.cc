#include "worker/data/formats/libsvm_table.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/data/reading/input_file.h"
#include "worker/data/reading/text_input.h"

namespace syncline::worker {
namespace {

constexpr absl::string_view kBlanks = " \t\r\v\f";

enum class LibsvmField { kFeatures, kLabel, kIndices, kValues };

absl::StatusOr<LibsvmField> ResolveField(const FieldRequest& request) {
  constexpr char kSource[] = "a libsvm source";
  const bool is_indices = request.name == "indices";
  LibsvmField field = LibsvmField::kIndices;
  if (request.name == "features") {
    field = LibsvmField::kFeatures;
  } else if (request.name == "label") {
    field = LibsvmField::kLabel;
  } else if (request.name == "values") {
    field = LibsvmField::kValues;
  } else if (!is_indices) {
    return NoSuchField(request, kSource,
                       "\"features\", \"label\", \"indices\" and \"values\"");
  }
  if (request.integers && !is_indices) return NotIntegers(request, kSource);
  if (!request.integers && is_indices) {
    return absl::InvalidArgumentError(
        "field \"indices\" of a libsvm source is int64 and can only feed an "
        "int64 input");
  }
  return field;
}

// Its samples have as many values as their lines.
bool IsBag(LibsvmField field) {
  return field == LibsvmField::kIndices || field == LibsvmField::kValues;
}

class LibsvmTable : public SampleTable {
 public:
  explicit LibsvmTable(const MemoryBudget& memory) : memory_(memory) {}

  // Adds a field, in the order of the request.
  absl::Status AddField(const FieldRequest& request, int64_t dimension) {
    SYNCLINE_ASSIGN_OR_RETURN(const LibsvmField field, ResolveField(request));
    int64_t width = request.padded_width;
    if (field == LibsvmField::kLabel) width = 1;
    if (field == LibsvmField::kFeatures) {
      if (dimension == 0) {
        return absl::InvalidArgumentError(
            "dimension: must be at least 1 for \"features\"");
      }
      width = dimension;
    }
    if (IsBag(field)) {
      values_max_ = std::min(values_max_, width);
      if (request.complete) values_min_ = std::max(values_min_, width);
    }
    fields_.push_back({field, width, request.padding});
    index_max_ = dimension > 0 ? dimension : index_max_;
    return absl::OkStatus();
  }

  int64_t size() const override { return labels_.size(); }
  int64_t width(int field) const override { return fields_[field].width; }
  int64_t length(int field, int64_t sample) const override {
    return IsBag(fields_[field].kind) ? begins_[sample + 1] - begins_[sample]
                                      : fields_[field].width;
  }
  int64_t CountIds(int field, int64_t id) const override {
    if (fields_[field].kind != LibsvmField::kIndices) return 0;
    return std::count(indices_.begin(), indices_.end(), id);
  }
  void Read(int field, absl::Span<const int64_t> samples, float scale,
            float offset, float* out) const override {
    switch (fields_[field].kind) {
      case LibsvmField::kLabel:
        for (const int64_t s : samples) *out++ = labels_[s] * scale + offset;
        return;
      case LibsvmField::kFeatures:
        return ReadFeatures(field, samples, scale, offset, out);
      default:
        return ReadValues(field, samples, scale, offset, out);
    }
  }
  void ReadInts(int field, absl::Span<const int64_t> samples,
                int64_t* out) const override {
    for (const int64_t sample : samples) {
      int64_t* const end = out + fields_[field].width;
      out = std::copy(indices_.begin() + begins_[sample],
                      indices_.begin() + begins_[sample + 1], out);
      std::fill(out, end, fields_[field].padding);
      out = end;
    }
  }
  std::string Where(int field, int64_t sample) const override {
    return origins_.Where(sample);
  }

  // One line without its comment; not blank. Errors: InvalidArgument.
  absl::Status AddLine(absl::string_view line, const LineReader& reader) {
    const absl::string_view label = NextToken(&line);
    const absl::StatusOr<float> label_value = ParseNumber(label);
    if (!label_value.ok()) return Annotate(label_value.status(), "label");
    const auto where = [] { return std::string("its values"); };
    int64_t previous = 0;
    while (true) {
      const absl::string_view token = NextToken(&line);
      if (token.empty()) break;
      SYNCLINE_RETURN_IF_ERROR(memory_.Grow(1, where, &indices_));
      SYNCLINE_RETURN_IF_ERROR(memory_.Grow(1, where, &values_));
      SYNCLINE_ASSIGN_OR_RETURN(previous, AddValue(token, previous));
    }
    const int64_t count = indices_.size() - begins_.back();
    if (count > values_max_) {
      return absl::InvalidArgumentError(absl::StrCat(
          count, " values, but the graph input takes at most ", values_max_));
    }
    if (count < values_min_) {
      return absl::InvalidArgumentError(
          absl::StrCat(count, " values, but a sample has ", values_min_,
                       " labels; data.label.ignore allows fewer"));
    }
    SYNCLINE_RETURN_IF_ERROR(memory_.Grow(1, where, &labels_));
    SYNCLINE_RETURN_IF_ERROR(memory_.Grow(1, where, &begins_));
    labels_.push_back(*label_value);
    begins_.push_back(indices_.size());
    origins_.Add(reader);
    return absl::OkStatus();
  }

  void Finish() {
    memory_.Shrink(&labels_);
    memory_.Shrink(&begins_);
    memory_.Shrink(&indices_);
    memory_.Shrink(&values_);
  }

 private:
  struct Field {
    LibsvmField kind;
    int64_t width;
    int64_t padding;
  };

  void ReadFeatures(int field, absl::Span<const int64_t> samples, float scale,
                    float offset, float* out) const {
    const int64_t width = fields_[field].width;
    std::fill(out, out + samples.size() * width, offset);
    for (const int64_t sample : samples) {
      for (int64_t i = begins_[sample]; i < begins_[sample + 1]; ++i) {
        out[indices_[i] - 1] = values_[i] * scale + offset;
      }
      out += width;
    }
  }

  void ReadValues(int field, absl::Span<const int64_t> samples, float scale,
                  float offset, float* out) const {
    for (const int64_t sample : samples) {
      float* const end = out + fields_[field].width;
      for (int64_t i = begins_[sample]; i < begins_[sample + 1]; ++i) {
        *out++ = values_[i] * scale + offset;
      }
      std::fill(out, end, static_cast<float>(fields_[field].padding));
      out = end;
    }
  }

  // Cuts off the next token; empty at the end of the line.
  static absl::string_view NextToken(absl::string_view* line) {
    line->remove_prefix(
        std::min(line->find_first_not_of(kBlanks), line->size()));
    const size_t end = std::min(line->find_first_of(kBlanks), line->size());
    const absl::string_view token = line->substr(0, end);
    line->remove_prefix(end);
    return token;
  }

  // Returns the index of the "index:value" it has added.
  absl::StatusOr<int64_t> AddValue(absl::string_view token, int64_t previous) {
    const auto error = [&](absl::string_view problem) {
      return absl::InvalidArgumentError(
          absl::StrCat(QuotedStart(token), ": ", problem));
    };
    const size_t colon = token.find(':');
    int64_t index;
    if (colon == token.npos || colon == 0 || !absl::ascii_isdigit(token[0]) ||
        !absl::SimpleAtoi(token.substr(0, colon), &index)) {
      return error("expected index:value");
    }
    if (index == 0) return error("indices start at 1");
    if (index > index_max_) {
      return error(
          absl::StrCat("the index is above the dimension, ", index_max_));
    }
    if (index <= previous) {
      return error(
          absl::StrCat("indices must ascend, the one before is ", previous));
    }
    const absl::StatusOr<float> value = ParseNumber(token.substr(colon + 1));
    if (!value.ok()) {
      return Annotate(value.status(), absl::StrCat("value of index ", index));
    }
    indices_.push_back(index);
    values_.push_back(*value);
    return index;
  }

  const MemoryBudget& memory_;  // used while it is loaded
  std::vector<Field> fields_;   // by request
  int64_t index_max_ = std::numeric_limits<int64_t>::max();
  int64_t values_max_ = std::numeric_limits<int64_t>::max();  // in a line
  int64_t values_min_ = 0;                                    // likewise
  std::vector<float> labels_;
  // Compressed rows: sample s has values [begins_[s], begins_[s + 1]).
  std::vector<int64_t> begins_ = {0};
  std::vector<int64_t> indices_;  // from 1
  std::vector<float> values_;
  LineOrigins origins_;
};

absl::Status AddFile(const DataFile& file, LibsvmTable* table) {
  SYNCLINE_ASSIGN_OR_RETURN(LineReader reader, LineReader::Open(file));
  absl::string_view line;
  while (true) {
    SYNCLINE_ASSIGN_OR_RETURN(const bool more, reader.Next(&line));
    if (!more) return absl::OkStatus();
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(kBlanks) == line.npos) continue;
    SYNCLINE_RETURN_IF_ERROR(
        Annotate(table->AddLine(line, reader), reader.Where()));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<SampleTable>> LoadLibsvm(
    const LibsvmSource& source, absl::Span<const FieldRequest> fields,
    const DataRoot& data_root, const MemoryBudget& memory) {
  auto table = std::make_unique<LibsvmTable>(memory);
  for (const FieldRequest& field : fields) {
    SYNCLINE_RETURN_IF_ERROR(table->AddField(field, source.dimension()));
  }
  SYNCLINE_ASSIGN_OR_RETURN(const auto files,
                            FindFiles(source.path(), data_root));
  for (const DataFile& file : files) {
    SYNCLINE_RETURN_IF_ERROR(AddFile(file, table.get()));
  }
  if (table->size() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(files[0].path, ": no samples"));
  }
  table->Finish();
  return table;
}

}  // namespace syncline::worker

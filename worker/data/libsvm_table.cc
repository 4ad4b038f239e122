#include "worker/data/libsvm_table.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/data/input_file.h"
#include "worker/data/text_input.h"

namespace syncline {
namespace {

constexpr absl::string_view kBlanks = " \t\r\v\f";

class LibsvmTable : public SampleTable {
 public:
  LibsvmTable(int64_t dimension, absl::Span<const std::string> fields)
      : dimension_(dimension) {
    for (const std::string& name : fields) {
      is_label_.push_back(name == "label");
    }
  }

  int64_t size() const override { return labels_.size(); }
  int64_t width(int field) const override {
    return is_label_[field] ? 1 : dimension_;
  }
  void Read(int field, absl::Span<const int64_t> samples, float scale,
            float offset, float* out) const override {
    if (is_label_[field]) {
      for (const int64_t s : samples) *out++ = labels_[s] * scale + offset;
      return;
    }
    std::fill(out, out + samples.size() * dimension_, offset);
    for (const int64_t sample : samples) {
      for (int64_t i = begins_[sample]; i < begins_[sample + 1]; ++i) {
        out[columns_[i]] = values_[i] * scale + offset;
      }
      out += dimension_;
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
    int64_t previous = 0;
    while (true) {
      const absl::string_view token = NextToken(&line);
      if (token.empty()) break;
      SYNCLINE_ASSIGN_OR_RETURN(previous, AddValue(token, previous));
    }
    labels_.push_back(*label_value);
    begins_.push_back(columns_.size());
    origins_.Add(reader);
    return absl::OkStatus();
  }

  void Finish() {
    labels_.shrink_to_fit();
    begins_.shrink_to_fit();
    columns_.shrink_to_fit();
    values_.shrink_to_fit();
  }

 private:
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
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", absl::CHexEscape(token.substr(0, 40)), "\": ", problem));
    };
    const size_t colon = token.find(':');
    int64_t index;
    if (colon == token.npos || colon == 0 || !absl::ascii_isdigit(token[0]) ||
        !absl::SimpleAtoi(token.substr(0, colon), &index)) {
      return error("expected index:value");
    }
    if (index == 0) return error("indices start at 1");
    if (index > dimension_) {
      return error(
          absl::StrCat("the index is above the dimension, ", dimension_));
    }
    if (index <= previous) {
      return error(
          absl::StrCat("indices must ascend, the one before is ", previous));
    }
    const absl::StatusOr<float> value = ParseNumber(token.substr(colon + 1));
    if (!value.ok()) {
      return Annotate(value.status(), absl::StrCat("value of index ", index));
    }
    columns_.push_back(static_cast<uint32_t>(index - 1));
    values_.push_back(*value);
    return index;
  }

  const int64_t dimension_;
  std::vector<bool> is_label_;  // by requested field
  std::vector<float> labels_;
  // Compressed rows: sample s has values [begins_[s], begins_[s + 1]).
  std::vector<int64_t> begins_ = {0};
  std::vector<uint32_t> columns_;
  std::vector<float> values_;
  LineOrigins origins_;
};

absl::Status AddFile(const std::string& path, LibsvmTable* table) {
  SYNCLINE_ASSIGN_OR_RETURN(LineReader reader, LineReader::Open(path));
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
    const LibsvmSource& source, absl::Span<const std::string> fields,
    absl::string_view data_root) {
  for (const std::string& name : fields) {
    if (name == "features" || name == "label") continue;
    return absl::InvalidArgumentError(
        absl::StrCat("no field \"", name,
                     "\"; a libsvm source has "
                     "\"features\" and \"label\""));
  }
  if (source.dimension() == 0) {
    return absl::InvalidArgumentError("dimension: must be at least 1");
  }
  SYNCLINE_ASSIGN_OR_RETURN(const auto paths,
                            FindFiles(source.path(), data_root));
  auto table = std::make_unique<LibsvmTable>(source.dimension(), fields);
  for (const std::string& path : paths) {
    SYNCLINE_RETURN_IF_ERROR(AddFile(path, table.get()));
  }
  if (table->size() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(paths[0], ": no samples"));
  }
  table->Finish();
  return table;
}

}  // namespace syncline

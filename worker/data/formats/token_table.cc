#include "worker/data/formats/token_table.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "worker/data/formats/token_file.h"
#include "worker/data/reading/input_file.h"

namespace syncline::worker {
namespace {

constexpr char kSource[] = "a token source";

class TokenTable : public SampleTable {
 public:
  // shifts[f] is 0 for "tokens", 1 for "next".
  TokenTable(int64_t width, int64_t stride, std::vector<int> shifts)
      : width_(width), stride_(stride), shifts_(std::move(shifts)) {}

  void AddFile(TokenFile file) {
    // The last window needs one token more than it is long.
    const int64_t room = file.size() - width_ - 1;
    const int64_t windows = room < 0 ? 0 : room / stride_ + 1;
    ends_.push_back(size() + windows);
    files_.push_back(std::move(file));
  }

  int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  int64_t width(int) const override { return width_; }
  void Read(int field, absl::Span<const int64_t> samples, float scale,
            float offset, float* out) const override {
    Copy(field, samples, out);
    if (scale == 1 && offset == 0) return;
    float* const end = out + samples.size() * width_;
    for (; out != end; ++out) *out = *out * scale + offset;
  }
  void ReadInts(int field, absl::Span<const int64_t> samples,
                int64_t* out) const override {
    Copy(field, samples, out);
  }
  std::string Where(int field, int64_t sample) const override {
    const size_t file = FileOf(sample);
    return files_[file].Where(Begin(file, sample) + shifts_[field]);
  }

 private:
  template <typename T>
  void Copy(int field, absl::Span<const int64_t> samples, T* out) const {
    for (const int64_t sample : samples) {
      const size_t file = FileOf(sample);
      files_[file].Copy(Begin(file, sample) + shifts_[field], width_, out);
      out += width_;
    }
  }
  size_t FileOf(int64_t sample) const {
    return std::upper_bound(ends_.begin(), ends_.end(), sample) - ends_.begin();
  }
  int64_t Begin(size_t file, int64_t sample) const {
    return (sample - (file == 0 ? 0 : ends_[file - 1])) * stride_;
  }

  const int64_t width_;
  const int64_t stride_;
  const std::vector<int> shifts_;  // by field
  std::vector<TokenFile> files_;
  std::vector<int64_t> ends_;  // samples in files [0, i]
};

absl::StatusOr<int> ShiftOf(const FieldRequest& request) {
  if (request.name == "next") return 1;
  if (request.name != "tokens") {
    return NoSuchField(request, kSource, "\"tokens\" and \"next\"");
  }
  if (request.integers) return 0;
  return absl::InvalidArgumentError(
      "field \"tokens\" of a token source is int64 and can only feed an int64 "
      "input");
}

// The one width of all fields, and what they are shifted by.
absl::StatusOr<int64_t> WidthOf(absl::Span<const FieldRequest> fields,
                                std::vector<int>* shifts) {
  const int64_t width = fields[0].padded_width;
  for (const FieldRequest& field : fields) {
    SYNCLINE_ASSIGN_OR_RETURN(const int shift, ShiftOf(field));
    shifts->push_back(shift);
    if (field.padded_width == width && width > 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("\"", fields[0].name, "\" goes where ", width,
                     " tokens are taken, \"", field.name, "\" where ",
                     field.padded_width, " are; a window has one length"));
  }
  return width;
}

absl::Status CheckVocabulary(const TokenFile& file, uint32_t vocabulary) {
  if (vocabulary == 0) return absl::OkStatus();
  const int64_t bad = file.FindAtLeast(vocabulary);
  if (bad < 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(file.Where(bad), ": ", file.at(bad),
                   " is not below the vocabulary's ", vocabulary));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SampleTable>> LoadTokens(
    const TokenSource& source, absl::Span<const FieldRequest> fields,
    const DataRoot& data_root, const MemoryBudget& memory) {
  SYNCLINE_CHECK(!fields.empty());
  std::vector<int> shifts;
  SYNCLINE_ASSIGN_OR_RETURN(const int64_t width, WidthOf(fields, &shifts));
  SYNCLINE_ASSIGN_OR_RETURN(const auto found,
                            FindFiles(source.path(), data_root));
  auto table = std::make_unique<TokenTable>(
      width, source.stride() == 0 ? width : source.stride(), std::move(shifts));
  int64_t longest = 0;
  for (const DataFile& data_file : found) {
    SYNCLINE_ASSIGN_OR_RETURN(
        TokenFile file,
        TokenFile::Load(data_file, source.format(), source.begin(),
                        source.end() == 0 ? 1 : source.end(), memory));
    SYNCLINE_RETURN_IF_ERROR(CheckVocabulary(file, source.vocabulary()));
    longest = std::max(longest, file.size());
    table->AddFile(std::move(file));
  }
  if (table->size() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        found[0].path, found.size() > 1 ? " and the others: " : ": ", longest,
        " tokens are too few for a window of ", width, " and the next"));
  }
  return table;
}

}  // namespace syncline::worker

#include "worker/data/formats/digits_table.h"

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/data/formats/digit_drawing.h"
#include "worker/data/reading/read_watch.h"

namespace syncline::worker {
namespace {

// Between two questions whether digits are still wanted: milliseconds.
constexpr size_t kWatchedBytes = size_t{1000} * kDigitPixels;

class DigitsTable : public SampleTable {
 public:
  DigitsTable(const DigitsSource& source, absl::Span<const FieldRequest> fields,
              int64_t kept_bytes_max)
      : size_(source.count()), seed_(source.seed()) {
    for (const FieldRequest& field : fields) {
      is_label_.push_back(field.name == "label");
    }
    kept_.resize(std::min(size_, kept_bytes_max / kDigitPixels) * kDigitPixels);
  }

  // Draws what is kept. Errors: those of the thread's ReadWatch.
  absl::Status Draw() {
    const std::string what = absl::StrCat("digits with seed ", seed_);
    for (size_t at = 0; at < kept_.size(); at += kDigitPixels) {
      if (at % kWatchedBytes == 0) {
        SYNCLINE_RETURN_IF_ERROR(ReadWatch::BeforeRead(
            what, std::min(kWatchedBytes, kept_.size() - at)));
      }
      DrawDigit(seed_, at / kDigitPixels,
                absl::MakeSpan(&kept_[at], kDigitPixels));
    }
    return absl::OkStatus();
  }

  int64_t size() const override { return size_; }
  int64_t width(int field) const override {
    return is_label_[field] ? 1 : kDigitPixels;
  }
  std::optional<SampleDims> dims(int field) const override {
    return is_label_[field] ? SampleDims() : SampleDims{kDigitSide, kDigitSide};
  }
  void Read(int field, absl::Span<const int64_t> samples, float scale,
            float offset, float* out) const override {
    std::array<uint8_t, kDigitPixels> drawn;
    for (const int64_t sample : samples) {
      if (is_label_[field]) {
        *out++ = DigitLabel(seed_, sample) * scale + offset;
        continue;
      }
      const uint8_t* pixels = drawn.data();
      if (sample < static_cast<int64_t>(kept_.size()) / kDigitPixels) {
        pixels = &kept_[sample * kDigitPixels];
      } else {
        DrawDigit(seed_, sample, absl::MakeSpan(drawn));
      }
      for (int i = 0; i < kDigitPixels; ++i) {
        out[i] = pixels[i] * scale + offset;
      }
      out += kDigitPixels;
    }
  }
  std::string Where(int field, int64_t sample) const override {
    return absl::StrCat("digits with seed ", seed_, ": record ", sample);
  }

 private:
  const int64_t size_;
  const uint64_t seed_;
  std::vector<bool> is_label_;  // by requested field
  std::vector<uint8_t> kept_;   // pixels of the first samples
};

}  // namespace

absl::StatusOr<std::unique_ptr<SampleTable>> LoadDigits(
    const DigitsSource& source, absl::Span<const FieldRequest> fields,
    int64_t kept_bytes_max, uint64_t available) {
  for (const FieldRequest& field : fields) {
    if (field.name != "image" && field.name != "label") {
      return NoSuchField(field, "a digits source", "\"image\" and \"label\"");
    }
    if (field.integers) return NotIntegers(field, "a digits source");
  }
  if (source.count() == 0) {
    return absl::InvalidArgumentError("count: must be at least 1");
  }
  // Images that are not kept are drawn again: nothing fails for want of memory.
  const auto quarter =
      static_cast<int64_t>(std::min<uint64_t>(available / 4, kept_bytes_max));
  auto table = std::make_unique<DigitsTable>(source, fields, quarter);
  SYNCLINE_RETURN_IF_ERROR(table->Draw());
  return table;
}

}  // namespace syncline::worker

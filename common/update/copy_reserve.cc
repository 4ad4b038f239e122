#include "common/update/copy_reserve.h"

#include <algorithm>
#include <numeric>

namespace syncline {
namespace {

size_t LargestOf(const std::vector<size_t>& floats) {
  return floats.empty() ? 0 : *std::max_element(floats.begin(), floats.end());
}

size_t SumOf(const std::vector<size_t>& floats) {
  return std::accumulate(floats.begin(), floats.end(), size_t{0});
}

// Where places of equal size are used, for at most every block one.
size_t PlacesFor(const std::vector<size_t>& floats, uint64_t bytes) {
  const size_t largest = LargestOf(floats);
  if (largest == 0) return 0;
  return static_cast<size_t>(
      std::min<uint64_t>(floats.size(), bytes / (largest * sizeof(float))));
}

// A place for each block takes no more than this, and refuses nothing.
bool HasAll(const std::vector<size_t>& floats, std::optional<uint64_t> bytes) {
  return !bytes.has_value() || *bytes >= SumOf(floats) * sizeof(float);
}

}  // namespace

uint64_t CopyReserve::BytesFor(const std::vector<size_t>& floats,
                               std::optional<uint64_t> bytes) {
  const size_t count = HasAll(floats, bytes)
                           ? SumOf(floats)
                           : PlacesFor(floats, *bytes) * LargestOf(floats);
  return count * sizeof(float);
}

CopyReserve::CopyReserve(const std::vector<size_t>& floats,
                         std::optional<uint64_t> bytes)
    : memory_(BytesFor(floats, bytes) / sizeof(float)) {
  if (HasAll(floats, bytes)) {
    size_t start = 0;
    for (const size_t count : floats) {
      starts_.push_back(start);
      start += count;
    }
    return;
  }
  for (size_t i = 0; i < PlacesFor(floats, *bytes); ++i) {
    free_.push_back(memory_.data() + i * LargestOf(floats));
  }
}

absl::Status CopyReserve::MakeResident(const GoOnCheck& go_on) {
  if (memory_.size() == 0) return absl::OkStatus();
  return TouchMemory(
      "copies of blocks for checkpoints",
      {reinterpret_cast<char*>(memory_.data()), memory_.size() * sizeof(float)},
      go_on);
}

float* CopyReserve::Take(uint32_t block) {
  if (!starts_.empty()) return memory_.data() + starts_[block];
  if (free_.empty()) return nullptr;
  float* const place = free_.back();
  free_.pop_back();
  return place;
}

void CopyReserve::Free(float* place) {
  if (starts_.empty()) free_.push_back(place);
}

}  // namespace syncline

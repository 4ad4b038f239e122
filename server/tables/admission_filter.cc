#include "server/tables/admission_filter.h"

#include <algorithm>

#include "common/base/random.h"

namespace syncline::ps {
namespace {

constexpr int kCountersPerKey = 4;
// One sighting in eight counters at most half fills the filter: a key that was
// never seen then counts as seen with a chance of 2%.
constexpr uint64_t kCountersPerSighting = 8;

}  // namespace

AdmissionFilter::AdmissionFilter(size_t bytes)
    : lines_(bytes / kCacheLineBytes * kCacheLineBytes / sizeof(float)),
      counters_(reinterpret_cast<uint8_t*>(lines_.data())),
      line_count_(bytes / kCacheLineBytes) {}

uint32_t AdmissionFilter::Sight(uint64_t hash) {
  if (line_count_ == 0) return kCountMax;
  if (++sightings_ * kCountersPerSighting > line_count_ * kCacheLineBytes) {
    Age();
  }
  // The caller chose this filter by bits of the hash: mixed again, all count.
  const uint64_t bits = Mix64(hash);
  const uint64_t line = (bits >> 32) * line_count_ >> 32;
  uint8_t* const counters = counters_ + line * kCacheLineBytes;
  uint8_t* mine[kCountersPerKey];
  uint8_t least = kCountMax;
  for (int i = 0; i < kCountersPerKey; ++i) {
    mine[i] = &counters[(bits >> (6 * i)) % kCacheLineBytes];
    least = std::min(least, *mine[i]);
  }
  const uint8_t count = least + (least < kCountMax ? 1 : 0);
  for (uint8_t* counter : mine) *counter = std::max(*counter, count);
  return count;
}

void AdmissionFilter::Merge(size_t first, absl::Span<const uint8_t> counters) {
  for (size_t i = 0; i < counters.size(); ++i) {
    counters_[first + i] = std::max(counters_[first + i], counters[i]);
  }
}

void AdmissionFilter::MergeSightings(uint64_t sightings) {
  // More would have aged it.
  const uint64_t most = line_count_ * kCacheLineBytes / kCountersPerSighting;
  sightings_ = std::max(sightings_, std::min(sightings, most));
}

void AdmissionFilter::Age() {
  sightings_ = 0;
  const uint64_t count = line_count_ * kCacheLineBytes;
  for (uint64_t i = 0; i < count; ++i) counters_[i] >>= 1;
}

}  // namespace syncline::ps

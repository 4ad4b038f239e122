#ifndef SYNCLINE_SERVER_TABLES_ADMISSION_FILTER_H_
#define SYNCLINE_SERVER_TABLES_ADMISSION_FILTER_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "common/base/aligned_buffer.h"

namespace syncline::ps {

// Counts how often keys were seen, in memory that does not grow: a counting
// Bloom filter of one byte a counter, four counters a key, all in one cache
// line. Counts are never too low before the filter ages, and seldom too high.
//
// Every counter is halved once there was one sighting for every eight counters.
// So keys that are seen once do not fill the filter for ever. Source: Fan et
// al., ToN 2000 (counting filters), with conservative update; Einziger et al.,
// ToS 2017, sec. 3.3 (ageing). Thread-compatible.
class AdmissionFilter {
 public:
  static constexpr uint32_t kCountMax = 255;

  // `bytes` is rounded down to whole cache lines. Below one: counts nothing and
  // every key is seen kCountMax times.
  explicit AdmissionFilter(size_t bytes);

  // Counts a sighting; how many there were, with this one.
  uint32_t Sight(uint64_t hash);

  // The state: one byte a counter, and the sightings since it aged.
  absl::Span<const uint8_t> counters() const {
    return {counters_, line_count_ * kCacheLineBytes};
  }
  uint64_t sightings() const { return sightings_; }
  // Takes over what another filter of the same size has counted: no counter is
  // below the other's then, and the sightings are not fewer. An empty filter
  // becomes the other one.
  // REQUIRES: first + counters.size() is at most the number of counters.
  void Merge(size_t first, absl::Span<const uint8_t> counters);
  void MergeSightings(uint64_t sightings);

  size_t memory_bytes() const { return lines_.size() * sizeof(float); }

 private:
  void Age();

  AlignedFloats lines_;  // owns the bytes
  uint8_t* counters_ = nullptr;
  uint64_t line_count_ = 0;
  uint64_t sightings_ = 0;  // since it aged
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_TABLES_ADMISSION_FILTER_H_

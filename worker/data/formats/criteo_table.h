#ifndef SYNCLINE_WORKER_DATA_FORMATS_CRITEO_TABLE_H_
#define SYNCLINE_WORKER_DATA_FORMATS_CRITEO_TABLE_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "common/base/random.h"
#include "common/system/available_memory.h"
#include "proto/job_spec.pb.h"
#include "worker/data/reading/sample_table.h"

namespace syncline::worker {

inline constexpr int kCriteoIntegers = 13;
inline constexpr int kCriteoCategories = 26;

// The key of value `value` of category column `column`, 0..25, and of a value
// that is missing there. All differ.
constexpr int64_t CriteoKey(int column, uint32_t value) {
  return static_cast<int64_t>(
      Mix64(static_cast<uint64_t>(column) << 33 | value));
}
constexpr int64_t CriteoMissingKey(int column) {
  return static_cast<int64_t>(
      Mix64(static_cast<uint64_t>(column) << 33 | uint64_t{1} << 32));
}

// Loads Criteo's click logs; CriteoSource in job_spec.proto has the format, the
// fields and the keys. Keeps 160 bytes per line, in pieces of 10 MiB, or with
// window_samples in a SpoolFile below `work_dir`.
//
// Samples that do not fit are refused (ResourceExhausted), not swapped or
// killed for: before each piece `available` bytes, which others may take
// meanwhile, must leave 512 MiB for the rest of the job.
// Source: "Kaggle Display Advertising Challenge dataset", readme.txt.
absl::StatusOr<std::unique_ptr<SampleTable>> LoadCriteo(
    const CriteoSource& source, absl::Span<const FieldRequest> fields,
    const DataRoot& data_root, const std::string& work_dir = "/var/tmp",
    const std::function<uint64_t()>& available = AvailableMemoryBytes);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DATA_FORMATS_CRITEO_TABLE_H_

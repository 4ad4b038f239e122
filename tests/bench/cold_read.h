#ifndef SYNCLINE_TESTS_BENCH_COLD_READ_H_
#define SYNCLINE_TESTS_BENCH_COLD_READ_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace syncline {

// The next read of the file comes from the disk. REQUIRES: it is synced.
absl::Status DropCache(const std::string& path);

// Seconds in which the file is read once from the disk, its cache dropped
// before.
absl::StatusOr<double> ReadCold(const std::string& path);

}  // namespace syncline

#endif  // SYNCLINE_TESTS_BENCH_COLD_READ_H_

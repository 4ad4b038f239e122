#ifndef SYNCLINE_TESTS_BENCH_PEER_PROGRAMS_H_
#define SYNCLINE_TESTS_BENCH_PEER_PROGRAMS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace syncline {

// Runs the programs side by side, with their output in `folder`, and returns
// what the first one prints. Errors: Unimplemented: one of them exits with 77,
// because what it measures is not installed; Internal: one has failed, or does
// not end within three minutes, with its output.
absl::StatusOr<std::string> RunPeerPrograms(
    const std::vector<std::vector<std::string>>& argvs,
    const std::string& folder);

}  // namespace syncline

#endif  // SYNCLINE_TESTS_BENCH_PEER_PROGRAMS_H_

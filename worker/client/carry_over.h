#ifndef SYNCLINE_WORKER_CLIENT_CARRY_OVER_H_
#define SYNCLINE_WORKER_CLIENT_CARRY_OVER_H_

#include <cstdint>
#include <optional>

#include "common/cuts/cut_coordinator.h"

namespace syncline::worker {

// What a rank's client hands on to the one that takes its place when the job's
// routing changes. Used by one client at a time.
struct CarryOver {
  // Of the cuts that the rank has announced; none before the first client.
  std::optional<CutCoordinator> cuts;
  // The rank's gradients that were not finite, as the shards count them
  // together: how many of them have been told. None: this process is not the
  // first of this rank, and an earlier one has told of those that a shard has
  // counted before its first answer.
  std::optional<uint64_t> non_finite = 0;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_CLIENT_CARRY_OVER_H_

#ifndef SYNCLINE_WORKER_CLIENT_CARRY_OVER_H_
#define SYNCLINE_WORKER_CLIENT_CARRY_OVER_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "common/cuts/cut_coordinator.h"
#include "common/regime/regime_schedule.h"
#include "worker/exchange/gradient_compressor.h"

namespace syncline::worker {

// The state that a rank's client hands on to the one that takes its place when
// the job's routing changes. Used by one client at a time.
struct CarryOver {
  // Of the cuts that the rank has announced; none before the first client.
  std::optional<CutCoordinator> cuts;
  // Those that the rank follows; none: its first client's options.
  std::optional<RegimeSchedule> regimes;
  // The rank's gradients that were not finite, as the shards count them
  // together: how many of them have been told. None: this process is not the
  // first of this rank, and an earlier one has told of those that a shard has
  // counted before its first answer.
  std::optional<uint64_t> non_finite = 0;
  // With the residuals; null: the job has compressed nothing yet. Messages hold
  // on to it.
  std::shared_ptr<GradientCompressor> compressor;
  // The checkpoint whose cut the rank has passed behind step `behind`, so that
  // what the compressor keeps belongs to it until a later step begins. 0: none,
  // or that is saved.
  struct PassedCheckpoint {
    uint64_t cut = 0;
    int64_t behind = -1;
  };
  PassedCheckpoint passed;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_CLIENT_CARRY_OVER_H_

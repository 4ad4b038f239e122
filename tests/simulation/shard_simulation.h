#ifndef SYNCLINE_TESTS_SIMULATION_SHARD_SIMULATION_H_
#define SYNCLINE_TESTS_SIMULATION_SHARD_SIMULATION_H_

#include <cstdint>
#include <string>

#include "server/consistency/consistency_controller.h"

namespace syncline {

// One seeded history of a job on one shard: workers of different speeds, some
// out of data early, on a network that delays, reorders, duplicates and loses
// messages; calls that time out or are cancelled and are repeated; zombies of
// replaced processes; a chief, or where the seed is odd an evaluator, that
// announces cuts, reads them and sometimes forgets to end them. The controller
// decides, a real DenseUpdater obeys.
struct SimulationOptions {
  uint64_t seed = 0;
  ConsistencyMode mode = ConsistencyMode::kSync;
  // How often the regime may change: mode, bound and rate, each change at a
  // clock that has not begun; some are known from the start. `mode` is that of
  // the first regime, and unless SYNC is `mixed` in, SYNC neither comes nor
  // goes.
  int changes = 0;
  bool mixed = false;
  bool clip_norm = false;
  bool cuts = false;
  // Closes the job somewhere in the middle.
  bool close_early = false;
};

// Runs one history and returns the first rule that was broken; empty: none.
// Checked throughout:
//   - every call ends exactly once, and every worker gets through its script
//   - no gradient is applied twice, none is lost, zombies change nothing
//   - sync: values equal, bit for bit, the serial fold in rank order
//   - async and bounded staleness: integer gradients add up exactly
//   - where the regime changes: integer gradients, times the factor of the rate
//     of their clock, add up exactly; in SYNC they are means over all workers
//   - a pull is never staler than its clock's regime allows, has all of SYNC's
//     clocks below its own, and never waits when its regime lets it read
//   - the state at a cut, read or taken as a snapshot, has exactly the pushes
//     below it
//   - a call that ran out of time says who is missing
std::string SimulateShard(const SimulationOptions& options);

}  // namespace syncline

#endif  // SYNCLINE_TESTS_SIMULATION_SHARD_SIMULATION_H_

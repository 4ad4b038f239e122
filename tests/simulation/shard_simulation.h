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
  ps::ConsistencyMode mode = ps::ConsistencyMode::kSync;
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
//   - a pull is never staler than its mode allows, and never waits when its
//     mode lets it read
//   - the state at a cut, read or taken as a snapshot, has exactly the pushes
//     below it
//   - a call that ran out of time says who is missing
std::string SimulateShard(const SimulationOptions& options);

}  // namespace syncline

#endif  // SYNCLINE_TESTS_SIMULATION_SHARD_SIMULATION_H_

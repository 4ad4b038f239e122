#ifndef SYNCLINE_TESTS_SIMULATION_CUT_SIMULATION_H_
#define SYNCLINE_TESTS_SIMULATION_CUT_SIMULATION_H_

#include <cstdint>
#include <string>

#include "server/consistency/consistency_options.h"

namespace syncline {

// One seeded history of a job on several shards while one or two members want
// cuts: of each purpose but the regime, at any clocks, most of which some
// worker has passed when a shard hears of them. Workers have different speeds.
// The network delays, reorders, duplicates and loses messages, those of the
// coordinators too. Some cuts are held too long and given up by the shards.
struct CutSimulationOptions {
  uint64_t seed = 0;
  ConsistencyMode mode = ConsistencyMode::kSync;
};

struct CutSimulationResult {
  // The first rule that was broken; empty: none.
  std::string broken;
  int agreed = 0;
  int raised = 0;  // of them
  int given_up = 0;
};

// Runs one history. Checked throughout:
//   - each request comes to an end; no cut fails, since workers come to rest
//   - a state that is read at a cut, or taken as a snapshot, has exactly the
//     pushes below the cut's clocks, on every shard
//   - an agreed cut has the same clocks on all shards, at or behind those that
//     were asked for, and a snapshot on each if its purpose asks for one
//   - cuts of one member are agreed upon in the order of ids, and never cross
//   - only a cut that is held too long is given up
//   - every worker gets through its steps, and no cut is left announced
CutSimulationResult SimulateCuts(const CutSimulationOptions& options);

}  // namespace syncline

#endif  // SYNCLINE_TESTS_SIMULATION_CUT_SIMULATION_H_

#ifndef SYNCLINE_TESTS_SIMULATION_REGIME_SWITCH_SIMULATION_H_
#define SYNCLINE_TESTS_SIMULATION_REGIME_SWITCH_SIMULATION_H_

#include <cstdint>
#include <string>

namespace syncline {

// One seeded history of a job on several shards whose chief changes the mode
// while it runs, at cuts, sometimes gives a change up, and whose evaluator
// wants cuts of its own. Workers have different speeds. The network delays,
// reorders, duplicates and loses messages.
struct RegimeSwitchResult {
  // The first rule that was broken; empty: none.
  std::string broken;
  int made = 0;
  int given_up = 0;
  int unequal = 0;  // made while some worker was behind another
};

// Runs one history. Checked throughout:
//   - each gradient is applied once on each shard, none is lost
//   - the worker has computed each step by the regime that the shard applies it
//     by, and that is one and the same on all shards
//   - a step reads what its regime allows: in SYNC all steps below its clock
//   and
//     none other, with a bound those that the bound wants, always its own
//   - a change that was given up leaves every shard as it was
//   - every change is decided, every worker gets through its steps
RegimeSwitchResult SimulateRegimeSwitches(uint64_t seed);

}  // namespace syncline

#endif  // SYNCLINE_TESTS_SIMULATION_REGIME_SWITCH_SIMULATION_H_

#ifndef SYNCLINE_TESTS_SIMULATION_QUORUM_SIMULATION_H_
#define SYNCLINE_TESTS_SIMULATION_QUORUM_SIMULATION_H_

#include <cstdint>
#include <string>

namespace syncline::ps {

// One seeded history of a job whose clocks end without some workers: real
// controllers of 1 to 3 shards with the arbiter at shard 0, 2 to 5 workers that
// behave as worker/training does, a network that delays, reorders and repeats
// messages and loses those between shards, and often a worker that is slow or
// stops for ever.
struct QuorumHistory {
  uint64_t seed = 0;
  bool with_timeout = false;  // SYNC_WITH_TIMEOUT; else SYNC_WITH_BACKUPS
  // Gradients wait for a norm over all shards before they are applied.
  bool reduces = false;
  // SYNC whose workers may be lost: up to all but the chief stop for ever,
  // after a part of a push, and shard 0 is told of it a while later, perhaps
  // twice. Some wake up, before that or behind, and go on as if nothing had
  // been.
  bool loses_workers = false;
  // At a cut before the last one, in half of the histories, all shards go on
  // elsewhere from their states, with another arbiter. Calls that are under way
  // are refused there, and each step that has not ended is sent again.
  bool moves = false;
};

// The promises that are checked in each history:
// - a clock is applied once on each block, with the same workers on all shards,
//   at least `needed`, and each worker's gradient at most once;
// - a dropped push has no effect: it is in no sum, and no gradient stays
//   buffered;
// - a worker that reads values behind a push is told that its gradient was not
//   applied if and only if that is so;
// - a worker whose gradient is applied has computed it from the values of that
//   very clock, on all shards;
// - at a cut each shard has all clocks before it, and none behind;
// - all workers but one that has stopped come to the end, and nothing waits;
// - where workers are lost, no clock lacks another one; a step of those that
// are
//   left is made by whoever knows of each loss up to its clock; and nothing of
//   a lost one counts behind its last clock.
struct QuorumResult {
  std::string broken;   // empty: all of it held
  int left_behind = 0;  // pushes
  int jumps = 0;        // of a worker over one clock or more
  int late_steps = 0;   // at a clock that was over before the step began
  int retries = 0;      // of a shard that had not learnt a set
  int moves = 0;        // of all shards
  int told_again = 0;   // pushes sent again of which a worker heard: dropped
  int lost = 0;         // workers
  int lost_parts = 0;   // of the clock that was open then, with its gradient
};
QuorumResult SimulateQuorum(const QuorumHistory& history);

}  // namespace syncline::ps

#endif  // SYNCLINE_TESTS_SIMULATION_QUORUM_SIMULATION_H_

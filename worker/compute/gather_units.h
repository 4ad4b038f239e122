#ifndef SYNCLINE_WORKER_COMPUTE_GATHER_UNITS_H_
#define SYNCLINE_WORKER_COMPUTE_GATHER_UNITS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace syncline::worker {

// The parameters that a stretch of a step's operators reads. They are gathered
// before the first of these runs, and their memory is free after the last.
struct GatherUnit {
  int first_step = 0;  // as StepMemory numbers them
  int last_step = 0;
  std::vector<int> parameters;        // in the order of their first read
  std::vector<int64_t> offsets = {};  // by these: bytes in the pool
  int64_t bytes = 0;
};

// The units of a step, in order. No two stretches overlap; one may begin in
// forward and end in backward.
struct GatherUnits {
  std::vector<GatherUnit> units;
  // Of the memory that all units take turns in: the two neighbours that are
  // largest together, the one that is in use and the one that comes next.
  int64_t pool_bytes = 0;

  // The unit that is in use in `step`; null: none is.
  const GatherUnit* At(int step) const;
  // Where the values of a parameter are in `step`, in bytes of the pool; -1:
  // the step does not read it.
  int64_t OffsetAt(int step, int parameter) const;
};

// Cuts the steps into units. A unit takes in the next operator that reads
// something as long as it has all of that, or stays within `unit_bytes` with
// it; what one operator reads is together, however large. So a parameter that
// two far operators read, or forward and backward, is gathered for each of
// them, and is in no unit between.
//   reads  by step: the parameters that it reads, each once
//   bytes  by parameter: multiples of 64
// Pure: all ranks cut alike.
// Source: Rajbhandari et al., ZeRO, SC 2020, sec. 5.3: parameters are
// partitioned, and are there for the operators that use them alone.
GatherUnits CutGatherUnits(absl::Span<const std::vector<int>> reads,
                           absl::Span<const int64_t> bytes, int64_t unit_bytes);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COMPUTE_GATHER_UNITS_H_

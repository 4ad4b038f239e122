#ifndef SYNCLINE_WORKER_COMPUTE_REMATERIALIZATION_H_
#define SYNCLINE_WORKER_COMPUTE_REMATERIALIZATION_H_

#include <cstdint>
#include <vector>

#include "worker/compute/step_memory.h"

namespace syncline::worker {

// The part of a training step that is computed twice so as to keep less. The
// forward pass is cut into segments of consecutive positions. Each segment but
// the last keeps only the values that a later one reads; before the backward
// steps of a segment, the values that they read are computed again. The last
// segment's backward steps follow at once, so it keeps all. Source: Chen et al.
// 2016, "Training deep nets with sublinear memory cost".
struct Rematerialization {
  // First position of each segment, ascending; the first is 0. As many as
  // asked for, or fewer where a node alone is as large as a segment.
  std::vector<int> segments;
  // By position: it runs again, after those before it in its segment.
  std::vector<bool> runs_again;
  // By ValueId: the forward pass's copy is there for all who read it, or the
  // value is given. Others have a second one in the backward pass, if any.
  std::vector<bool> kept;
};

// Cuts where little crosses and segments are of about equal size. A pure
// function of shapes and operators.
Rematerialization PlanRematerialization(const StepMemorySpec& spec);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COMPUTE_REMATERIALIZATION_H_

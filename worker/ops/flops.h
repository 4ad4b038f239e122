#ifndef SYNCLINE_WORKER_OPS_FLOPS_H_
#define SYNCLINE_WORKER_OPS_FLOPS_H_

#include "worker/ops/op.h"

namespace syncline::worker {

// Floating-point operations of a node for one batch. Both numbers are 0 where
// nothing is computed; common/model/job_plan.h says what is counted.
struct OpFlops {
  double forward = 0;
  double backward = 0;  // of the gradients that are wanted

  bool operator==(const OpFlops&) const = default;
};

// Of any operator of op_table.h, by shapes and attributes alone.
OpFlops FlopsOf(const OpSpec& spec);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_FLOPS_H_

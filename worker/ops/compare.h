#ifndef SYNCLINE_WORKER_OPS_COMPARE_H_
#define SYNCLINE_WORKER_OPS_COMPARE_H_

#include "worker/ops/op.h"

namespace syncline::worker {

enum class Comparison { kEqual, kLess, kLessOrEqual, kAnd, kOr, kXor };

// Two inputs of one type, broadcast, to bool; with `swapped` the second is
// compared with the first. No gradient. And, Or and Xor take bool, the others
// any type, Equal bool too. NaN equals and orders nothing.
absl::StatusOr<std::unique_ptr<Op>> MakeComparison(const OpSpec& spec,
                                                   Comparison comparison,
                                                   bool swapped = false);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_COMPARE_H_

#ifndef SYNCLINE_KERNELS_OPTIMIZER_ROW_OPTIMIZER_H_
#define SYNCLINE_KERNELS_OPTIMIZER_ROW_OPTIMIZER_H_

#include <cstddef>
#include <vector>

#include "kernels/optimizer/optimizer.h"

namespace syncline {

// Applies an optimizer to rows of embedding tables, one row at a time, each
// with its own state: rows that a step does not touch do not move, and what
// counts steps counts those of the row. Immutable, hence thread-safe.
//
// State of a row of `dim` values, in floats:
//   kSgd             none
//   kAdagrad         sum of squares per element                      [dim]
//   kRowWiseAdagrad  sum of the mean square of the row's gradients   [1]
//   kAdam            first and second moment, the row's steps as the bits
//                    of a uint32_t (lazy Adam)                 [2 dim + 1]
//   kFtrl            sum of squares, z                               [2 dim]
//
// The update is that of kernels/optimizer/optimizer.h, and for kRowWiseAdagrad
//   a = a + mean(g^2)    value -= lr * g / (sqrt(a) + eps)
// with the mean summed in eight interleaved parts (kernels/elementwise/loop.h).
// Sources: those of kernels/optimizer/optimizer.h; for the row-wise form
// Mudigere et al., ISCA 2022, sec. 4.1.4.
class RowOptimizer {
 public:
  static bool Supports(OptimizerKind kind);

  // REQUIRES: Supports(params.kind), dim > 0.
  RowOptimizer(const OptimizerParams& params, size_t dim);

  size_t state_floats() const { return state_floats_; }
  void InitState(float* state) const;

  // One step of each of `count` rows: gradients[i] is its gradient [dim],
  // rows[i] its values [dim] and right behind them its state [state_floats()].
  // Nothing overlaps; no alignment is assumed. step.t is ignored.
  void Apply(const OptimizerStep& step, size_t count,
             const float* const* gradients, float* const* rows) const;

 private:
  void ApplyRowWise(const OptimizerStep& step, size_t count,
                    const float* const* gradients, float* const* rows) const;
  void ApplyLazyAdam(const OptimizerStep& step, const float* gradient,
                     float* row) const;

  const OptimizerParams params_;
  const size_t dim_;
  size_t state_floats_ = 0;
  std::vector<AdamCorrection> corrections_;  // of steps 1, 2, ...
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_OPTIMIZER_ROW_OPTIMIZER_H_

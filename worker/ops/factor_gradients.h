#ifndef SYNCLINE_WORKER_OPS_FACTOR_GRADIENTS_H_
#define SYNCLINE_WORKER_OPS_FACTOR_GRADIENTS_H_

#include <memory>

#include "absl/status/status.h"
#include "kernels/device/matrix_product_kernels.h"
#include "worker/ops/op.h"

namespace syncline::worker {

// The product that is the gradient of a factor of y = alpha op(a) op(b), as the
// factor is stored: of dy and the other factor, or the other way round.
struct FactorGradient {
  MatrixProductShape shape;
  bool dy_is_second = false;

  absl::Status Run(MatrixProduct& product, Stream& stream, ConstFloats dy,
                   ConstFloats other, bool accumulate, Floats gradient) const {
    return dy_is_second ? product.Into(stream, other, dy, accumulate, gradient)
                        : product.Into(stream, dy, other, accumulate, gradient);
  }
};

// `y` is the product of inputs 0 and 1 of `spec`, in one batch and dense; the
// types of gradients are those of `spec`.
FactorGradient GradientOfA(const MatrixProductShape& y, const OpSpec& spec);
FactorGradient GradientOfB(const MatrixProductShape& y, const OpSpec& spec);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_FACTOR_GRADIENTS_H_

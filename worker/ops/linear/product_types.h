#ifndef SYNCLINE_WORKER_OPS_LINEAR_PRODUCT_TYPES_H_
#define SYNCLINE_WORKER_OPS_LINEAR_PRODUCT_TYPES_H_

#include "absl/status/status.h"
#include "worker/ops/op.h"

namespace syncline::worker {

// Of a product of inputs 0 and 1 and of those of its gradients. Errors:
// Unimplemented: the two matrices of one of them are floats of two types, which
// no library multiplies: as where the gradient of a float32 result meets a
// 16-bit input.
inline absl::Status RequireTypesOfProducts(const OpSpec& spec) {
  if (!spec.HasNarrowTypes()) return absl::OkStatus();
  const DType type = spec.input(0).dtype;
  if (Is16Bit(type) && spec.input(1).dtype == type &&
      (!spec.WantsAnyGradient() || spec.output(0).gradient_dtype == type)) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError("matrices of two types are multiplied");
}

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_LINEAR_PRODUCT_TYPES_H_

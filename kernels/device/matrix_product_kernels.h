#ifndef SYNCLINE_KERNELS_DEVICE_MATRIX_PRODUCT_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_MATRIX_PRODUCT_KERNELS_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device/floats.h"
#include "kernels/elementwise/broadcast_shape.h"
#include "kernels/gemm.h"

namespace syncline {

class Device;
class Stream;

using MatrixProductShape = Gemm::Shape;

// A matrix product, compiled by a device for one shape and the types that it
// names: kernels/gemm.h has the formula. Sums are float32. Thread-compatible.
class MatrixProduct {
 public:
  virtual ~MatrixProduct() = default;

  // c = ...; `bias` is null unless the shape has one. No alignment is assumed.
  // c overlaps nothing else. Errors: Internal: the device's library failed.
  virtual absl::Status Run(Stream& stream, ConstFloats a, ConstFloats b,
                           const float* bias, Floats c) = 0;
  // c += ...; without bias.
  virtual absl::Status Accumulate(Stream& stream, ConstFloats a, ConstFloats b,
                                  Floats c) = 0;

  // One of the two, without bias.
  absl::Status Into(Stream& stream, ConstFloats a, ConstFloats b,
                    bool accumulate, Floats c) {
    return accumulate ? Accumulate(stream, a, b, c)
                      : Run(stream, a, b, /*bias=*/nullptr, c);
  }
};

// Matrix products, and a summand of another shape that they are added to.
struct MatrixProductKernels {
  // Errors: InvalidArgument: a 16-bit type that the device does not multiply:
  // this machine multiplies none, a GPU wants the same one of a and b, and no
  // bias then. Internal: the device's library refused.
  absl::StatusOr<std::unique_ptr<MatrixProduct>> (*make)(
      Device& device, const MatrixProductShape& shape) = nullptr;
  // y = scale * c; c is operand b of `s`, repeated over the result.
  void (*spread)(Stream& stream, const Broadcast& s, float scale, ConstFloats c,
                 Floats y) = nullptr;
  // Its gradient: dc = scale * the sum of dy where c was repeated. The error
  // does not grow with the number of repetitions.
  void (*spread_gradient)(Stream& stream, const Broadcast& s, float scale,
                          ConstFloats dy, bool accumulate, Floats dc) = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_MATRIX_PRODUCT_KERNELS_H_

#ifndef SYNCLINE_KERNELS_DEVICE_MATRIX_PRODUCT_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_MATRIX_PRODUCT_KERNELS_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/elementwise/broadcast_shape.h"
#include "kernels/gemm.h"

namespace syncline {

class Device;
class Stream;

using MatrixProductShape = Gemm::Shape;

// A float32 matrix product, compiled by a device for one shape: kernels/gemm.h
// has the formula. Thread-compatible.
class MatrixProduct {
 public:
  virtual ~MatrixProduct() = default;

  // c = ...; `bias` is null unless the shape has one. No alignment is assumed.
  // c overlaps nothing else. Errors: Internal: the device's library failed.
  virtual absl::Status Run(Stream& stream, const float* a, const float* b,
                           const float* bias, float* c) = 0;
  // c += ...; without bias.
  virtual absl::Status Accumulate(Stream& stream, const float* a,
                                  const float* b, float* c) = 0;

  // One of the two, without bias.
  absl::Status Into(Stream& stream, const float* a, const float* b,
                    bool accumulate, float* c) {
    return accumulate ? Accumulate(stream, a, b, c)
                      : Run(stream, a, b, /*bias=*/nullptr, c);
  }
};

// Matrix products, and a summand of another shape that they are added to.
struct MatrixProductKernels {
  // Errors: Internal: the device's library refused.
  absl::StatusOr<std::unique_ptr<MatrixProduct>> (*make)(
      Device& device, const MatrixProductShape& shape) = nullptr;
  // y = scale * c, float32; c is operand b of `s`, repeated over the result.
  void (*spread)(Stream& stream, const Broadcast& s, float scale,
                 const float* c, float* y) = nullptr;
  // Its gradient: dc = scale * the sum of dy where c was repeated. The error
  // does not grow with the number of repetitions.
  void (*spread_gradient)(Stream& stream, const Broadcast& s, float scale,
                          const float* dy, bool accumulate,
                          float* dc) = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_MATRIX_PRODUCT_KERNELS_H_

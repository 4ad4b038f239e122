#ifndef SYNCLINE_KERNELS_DEVICE_MATRIX_PRODUCT_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_MATRIX_PRODUCT_KERNELS_H_

#include <cstdint>
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

// The function of each element p of op(A) op(B) alpha, in float32, before it is
// rounded to c:
//
//   c = f(p + bias)   kept = what f'(p + bias) is found from, if it is wanted
//   c = p f'(x)       with the kept of another product, whose c has this shape
//
// f is the identity, ReLU, or GELU with the tanh (kernels/elementwise/
// pointwise_functions.h: GeluTanh).
struct ProductEpilogue {
  enum class Function { kNone, kRelu, kGeluTanh };
  Function function = Function::kNone;
  bool is_gradient = false;  // the second form
  bool has_bias = false;     // [n], of c's type
  // Forward leaves it. Of ReLU: for each row of c KeptReluRowBytes(n), in an
  // order that only the gradient of the same device knows. Of GELU: p + bias,
  // an array of c's type and shape.
  bool keeps = false;
};

// Bytes of a row of n elements: a bit each, in whole 16 bytes.
constexpr int64_t KeptReluRowBytes(int64_t n) { return (n + 127) / 128 * 16; }

// A product with an epilogue, as MatrixProduct.
class EpilogueProduct {
 public:
  virtual ~EpilogueProduct() = default;

  // `bias` and `kept` are null unless the epilogue has them; `kept` is read by
  // a gradient, and else written. Arrays begin at multiples of 16 bytes, but
  // for float32 factors. c overlaps nothing else. Errors: Internal: the
  // device's library failed.
  virtual absl::Status Run(Stream& stream, ConstFloats a, ConstFloats b,
                           ConstFloats bias, void* kept, Floats c) = 0;
};

// Matrix products, and a summand of another shape that they are added to.
struct MatrixProductKernels {
  // Errors: InvalidArgument: a 16-bit type that the device does not multiply:
  // this machine multiplies none, a GPU wants the same one of a and b, and no
  // bias then. Internal: the device's library refused.
  absl::StatusOr<std::unique_ptr<MatrixProduct>> (*make)(
      Device& device, const MatrixProductShape& shape) = nullptr;
  // Null: the device has products without epilogues alone. The shape's has_bias
  // is false: the epilogue has it. Errors: Unimplemented: the device does not
  // compute this epilogue of this shape and these types, or not as this says;
  // Internal: the device's library failed.
  absl::StatusOr<std::unique_ptr<EpilogueProduct>> (*make_with_epilogue)(
      Device& device, const MatrixProductShape& shape,
      const ProductEpilogue& epilogue) = nullptr;
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

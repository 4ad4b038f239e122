#ifndef SYNCLINE_KERNELS_DEVICE_CONVOLUTION_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_CONVOLUTION_KERNELS_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/convolution.h"
#include "kernels/device/floats.h"
#include "kernels/elementwise/broadcast_shape.h"

namespace syncline {

class Device;
class Stream;

using ConvolutionShape = Convolution::Shape;
using ConvolutionUses = Convolution::Uses;

// A convolution and its derivatives, compiled by a device for one shape:
// kernels/convolution.h has the arrays, their types and layouts. Sums are
// float32, and each result is rounded once, with the bias and with what it is
// added to. Thread-compatible.
class ConvolutionLayer {
 public:
  virtual ~ConvolutionLayer() = default;

  // Bytes of 64-byte aligned memory that each call wants to have to itself.
  // Its contents do not matter.
  virtual int64_t forward_scratch_bytes() const = 0;
  virtual int64_t backward_data_scratch_bytes() const = 0;
  virtual int64_t backward_weights_scratch_bytes() const = 0;

  // The arrays overlap nothing; no alignment is assumed. `bias` is null unless
  // the shape has one. Errors: Internal, ResourceExhausted: the device's
  // library failed.
  //
  // y = conv(x, w) + bias, or y += with `accumulate`.
  virtual absl::Status Forward(Stream& stream, ConstFloats x, ConstFloats w,
                               const float* bias, bool accumulate, Floats y,
                               void* scratch) = 0;
  // dx = the sum of dy * w where y was computed from x, or +=. With
  // `after_weights` scratch is as BackwardWeights left it, with the same dy.
  virtual absl::Status BackwardData(Stream& stream, ConstFloats dy,
                                    ConstFloats w, bool accumulate, Floats dx,
                                    void* scratch, bool after_weights) = 0;
  // dw likewise.
  virtual absl::Status BackwardWeights(Stream& stream, ConstFloats x,
                                       ConstFloats dy, bool accumulate,
                                       Floats dw, void* scratch) = 0;
  // dbias = the sum of dy by channel, or +=. The error does not grow with the
  // size of the planes and the batch.
  virtual void BackwardBias(Stream& stream, ConstFloats dy, bool accumulate,
                            float* dbias) = 0;
};

struct ConvolutionKernels {
  // Errors: FailedPrecondition: the device's library is not on this machine, or
  // is of no use there; Internal, ResourceExhausted: it refused; Unimplemented:
  // with the shape's types a result would be rounded twice.
  absl::StatusOr<std::unique_ptr<ConvolutionLayer>> (*make)(
      Device& device, const ConvolutionShape& shape,
      const ConvolutionUses& uses) = nullptr;
  // y += bias: what a transposed convolution adds to its result. The bias is
  // operand b of `bias_over_y`.
  void (*add_bias)(Stream& stream, const Broadcast& bias_over_y,
                   const float* bias, float* y) = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_CONVOLUTION_KERNELS_H_

#ifndef SYNCLINE_KERNELS_CONVOLUTION_H_
#define SYNCLINE_KERNELS_CONVOLUTION_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/dtype.h"
#include "kernels/window.h"

namespace syncline {

// A float32 convolution in 1 to 3 dimensions and its derivatives, compiled by
// oneDNN for one shape. Arrays are dense and row-major:
//
//   x [batch, channels, in...]      w [filters, channels / groups, kernel...]
//   y [batch, filters, out...]      bias [filters]
//
// but where Shape wants channels in blocks: [batch, channels / block, in...,
// block]. oneDNN computes in a layout of its own where that is faster; arrays
// that are in another are then rewritten into and out of the caller's scratch
// memory, of large batches some samples at a time. Thread-compatible.
// Uses the threads of the calling thread (kernels/threads.h); the result may
// differ in the last bit between numbers of threads.
class Convolution {
 public:
  struct Shape {
    int64_t batch = 0;
    int64_t channels = 0;  // a multiple of groups, as filters is
    int64_t filters = 0;
    int64_t groups = 1;
    bool has_bias = false;
    Window window;
    // Channels of x and of y that are innermost; 1, or BlockOfChannels() in 1
    // and 2 dimensions, where it divides them.
    int64_t x_block = 1;
    int64_t y_block = 1;
    // The factors of all products are 16-bit numbers: whoever multiplies with
    // fewer bits than float32 has, but at least 11, multiplies them exactly.
    bool has_narrow_factors = false;
    // Of x, w, y and the gradients of x and y; the bias and its gradient are
    // float32. Another one than float32 where a device computes in it
    // (kernels/device/device.h: computes_in), which this class does not.
    DType type = DType::kFloat32;
    // Of the gradient of w: float32, or `type`.
    DType weights_gradient_type = DType::kFloat32;
  };
  // The block that spares most rewriting on this machine; 1: none does.
  static int64_t BlockOfChannels();
  // The calls that will be made.
  struct Uses {
    bool forward = false;
    bool backward_data = false;
    bool backward_weights = false;
  };
  // Errors: Internal: oneDNN refused.
  static absl::StatusOr<Convolution> Create(const Shape& shape,
                                            const Uses& uses);
  Convolution(Convolution&&) noexcept;
  Convolution& operator=(Convolution&&) noexcept;
  ~Convolution();

  // Bytes of 64-byte aligned memory that each call wants to have to itself.
  // Its contents do not matter.
  int64_t forward_scratch_bytes() const;
  int64_t backward_data_scratch_bytes() const;
  int64_t backward_weights_scratch_bytes() const;

  // The arrays overlap nothing; no alignment is assumed. `bias` is null
  // unless the shape has one. Errors of all three: Internal: oneDNN
  // failed.
  //
  // y = conv(x, w) + bias, or y += with `accumulate`.
  absl::Status Forward(const float* x, const float* w, const float* bias,
                       bool accumulate, float* y, void* scratch);
  // dx = the sum of dy * w where y was computed from x, or +=. With
  // `after_weights` scratch is as BackwardWeights left it, with the same dy,
  // which then may not need to be rewritten once more.
  absl::Status BackwardData(const float* dy, const float* w, bool accumulate,
                            float* dx, void* scratch,
                            bool after_weights = false);
  // dw likewise. The bias's gradient is SumChannels of dy
  // (kernels/channel_sums.h).
  absl::Status BackwardWeights(const float* x, const float* dy, bool accumulate,
                               float* dw, void* scratch);

 private:
  struct Compiled;
  static int64_t FindBlockOfChannels();
  explicit Convolution(std::unique_ptr<Compiled> compiled);
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_CONVOLUTION_H_

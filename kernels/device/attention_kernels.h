#ifndef SYNCLINE_KERNELS_DEVICE_ATTENTION_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_ATTENTION_KERNELS_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/attention.h"
#include "kernels/device/data_error.h"

namespace syncline {

class Device;
class Stream;

using AttentionShape = Attention::Shape;

// Scaled dot-product attention and its gradients, compiled by a device for one
// shape: kernels/attention.h has the formulas, and what its arguments mean.
// Thread-compatible.
class AttentionLayer {
 public:
  virtual ~AttentionLayer() = default;

  // Floats that Forward leaves in `weights` for Backward, and that each has in
  // `scratch` for itself.
  virtual int64_t weights_count() const = 0;
  virtual int64_t forward_scratch_count() const = 0;
  virtual int64_t backward_scratch_count() const = 0;

  // A count in Mask::keys that is negative, or larger than the number of keys,
  // is reported as kind 0, with its sample, and counts as the nearest that is
  // not. y overlaps nothing else. Errors: Internal: the device's library
  // failed.
  virtual absl::Status Forward(Stream& stream, const float* q, const float* k,
                               const float* v, const Attention::Mask& mask,
                               float* y, float* weights, float* scratch,
                               const Attention::Scores& scores,
                               const ErrorSlot& errors) = 0;
  // REQUIRES: made for it. The mask is as Forward had it, or, with weights that
  // are kept and no finite Mask::hidden, its strides alone. Each head's
  // gradients are written in the order dv, dk, dq, so that these may be one
  // array where it is all three inputs. Errors: as Forward.
  virtual absl::Status Backward(Stream& stream, const float* q, const float* k,
                                const float* v, const Attention::Mask& mask,
                                const float* weights, const float* dy,
                                float* scratch,
                                const Attention::Gradients& out) = 0;
};

// Keys or values of the past, [batch, heads, past, width], and the incoming
// ones behind them: [batch, heads, past + rows, width].
struct JoinedHeads {
  int64_t batch = 0, heads = 0;
  int64_t past = 0;
  int64_t rows = 0;  // incoming ones
  int64_t width = 0;
  Attention::Layout incoming;

  int64_t joined_rows() const { return past + rows; }
  int64_t head_count() const { return batch * heads; }
  int64_t count() const { return head_count() * joined_rows() * width; }
  Attention::Layout layout() const {  // of what is joined
    const int64_t head = joined_rows() * width;
    return {heads * head, head, width};
  }
};

struct AttentionKernels {
  // `backward`: Backward will be called. Errors: Internal: the device's library
  // refused.
  absl::StatusOr<std::unique_ptr<AttentionLayer>> (*make)(
      Device& device, const AttentionShape& shape, bool backward) = nullptr;

  // `past` may be null if it has no rows.
  void (*join)(Stream& stream, const JoinedHeads& s, const float* past,
               const float* incoming, float* joined) = nullptr;
  // The gradient of each, from that of what was joined.
  void (*past_gradient)(Stream& stream, const JoinedHeads& s,
                        const float* djoined, bool accumulate,
                        float* dpast) = nullptr;
  void (*incoming_gradient)(Stream& stream, const JoinedHeads& s,
                            const float* djoined, bool accumulate,
                            float* dincoming) = nullptr;
  // to[i] += sums[i], rounded: where a gradient was added up in fp64.
  void (*add_sums)(Stream& stream, int64_t count, const double* sums,
                   float* to) = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_ATTENTION_KERNELS_H_

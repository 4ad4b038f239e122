#ifndef SYNCLINE_KERNELS_DEVICE_ATTENTION_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_ATTENTION_KERNELS_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/dtype.h"
#include "kernels/attention.h"
#include "kernels/device/data_error.h"
#include "kernels/device/floats.h"

namespace syncline {

class Device;
class Stream;

using AttentionShape = Attention::Shape;

// The calls and the arrays of a layer.
struct AttentionUses {
  bool backward = false;
  bool mask_gradient = false;
  bool scores = false;  // some will be asked for
  // Of q, k, v, y and dy. Gradients have types of their own.
  DType type = DType::kFloat32;
};

// Attention::Gradients, with types.
struct AttentionGradients {
  Floats dq = nullptr, dk = nullptr, dv = nullptr;
  float* dmask = nullptr;
  double* long_dmask = nullptr;
  bool add_dq = false, add_dk = false, add_dv = false;

  bool WantsMask() const { return dmask != nullptr || long_dmask != nullptr; }
};

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
  // Backward computes weights again, whatever the shape says, and reads y.
  virtual bool reads_output() const { return false; }

  // A count in Mask::keys that is negative, or larger than the number of keys,
  // is reported as kind 0, with its sample, and counts as the nearest that is
  // not. y overlaps nothing else. Errors: Internal: the device's library
  // failed.
  virtual absl::Status Forward(Stream& stream, ConstFloats q, ConstFloats k,
                               ConstFloats v, const Attention::Mask& mask,
                               Floats y, float* weights, float* scratch,
                               const Attention::Scores& scores,
                               const ErrorSlot& errors) = 0;
  // REQUIRES: made for it. y may be null unless reads_output(). The mask is as
  // Forward had it, or, with weights that are kept and no finite Mask::hidden,
  // its strides alone. Each head's
  // gradients are written in the order dv, dk, dq, so that these may be one
  // array where it is all three inputs. Errors: as Forward.
  virtual absl::Status Backward(Stream& stream, ConstFloats q, ConstFloats k,
                                ConstFloats v, const Attention::Mask& mask,
                                const float* weights, ConstFloats y,
                                ConstFloats dy, float* scratch,
                                const AttentionGradients& out) = 0;
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
  // Errors: Internal: the device's library refused; Unimplemented: a 16-bit
  // type with this shape or these uses.
  absl::StatusOr<std::unique_ptr<AttentionLayer>> (*make)(
      Device& device, const AttentionShape& shape,
      const AttentionUses& uses) = nullptr;

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

#include "kernels/attention.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/report.h"
#include "kernels/device/attention_kernels.h"
#include "kernels/elementwise/loop.h"

namespace syncline {
namespace {

class CpuAttentionLayer : public AttentionLayer {
 public:
  CpuAttentionLayer(const AttentionShape& shape, Attention attention)
      : batch_(shape.batch),
        keys_(shape.keys),
        attention_(std::move(attention)) {}

  int64_t weights_count() const override { return attention_.weights_count(); }
  int64_t forward_scratch_count() const override {
    return attention_.forward_scratch_count();
  }
  int64_t backward_scratch_count() const override {
    return attention_.backward_scratch_count();
  }

  absl::Status Forward(Stream& stream, ConstFloats q, ConstFloats k,
                       ConstFloats v, const Attention::Mask& mask, Floats y,
                       float* weights, float* scratch,
                       const Attention::Scores& scores,
                       const ErrorSlot& errors) override {
    const CpuKernel kernel(stream);
    for (int64_t b = 0; mask.keys != nullptr && b < batch_; ++b) {
      if (mask.keys[b] >= 0 && mask.keys[b] <= keys_) continue;
      Report(errors, /*kind=*/0, b, mask.keys[b]);
    }
    return attention_.Forward(q, k, v, mask, y, weights, scratch, scores);
  }

  absl::Status Backward(Stream& stream, ConstFloats q, ConstFloats k,
                        ConstFloats v, const Attention::Mask& mask,
                        const float* weights, ConstFloats, ConstFloats dy,
                        float* scratch,
                        const AttentionGradients& out) override {
    const CpuKernel kernel(stream);
    return attention_.Backward(q, k, v, mask, weights, dy, scratch,
                               {.dq = out.dq,
                                .dk = out.dk,
                                .dv = out.dv,
                                .dmask = out.dmask,
                                .long_dmask = out.long_dmask,
                                .add_dq = out.add_dq,
                                .add_dk = out.add_dk,
                                .add_dv = out.add_dv});
  }

 private:
  const int64_t batch_, keys_;
  Attention attention_;
};

absl::StatusOr<std::unique_ptr<AttentionLayer>> Make(
    Device&, const AttentionShape& shape, const AttentionUses& uses) {
  if (Is16Bit(uses.type)) {
    return absl::UnimplementedError("attention in 16 bits");
  }
  SYNCLINE_ASSIGN_OR_RETURN(Attention attention,
                            Attention::Create(shape, uses.backward));
  return std::make_unique<CpuAttentionLayer>(shape, std::move(attention));
}

// Where row `row` of head `head`, of all samples, begins.
int64_t IncomingAt(const JoinedHeads& s, int64_t head, int64_t row) {
  return head / s.heads * s.incoming.batch + head % s.heads * s.incoming.head +
         row * s.incoming.row;
}

int64_t JoinedAt(const JoinedHeads& s, int64_t head, int64_t row) {
  return (head * s.joined_rows() + row) * s.width;
}

void Join(Stream& stream, const JoinedHeads& s, const float* past,
          const float* incoming, float* joined) {
  const CpuKernel kernel(stream);
  const int64_t count = s.past * s.width;
  for (int64_t h = 0; h < s.head_count(); ++h) {
    std::copy_n(past + h * count, count, joined + JoinedAt(s, h, 0));
    for (int64_t row = 0; row < s.rows; ++row) {
      std::copy_n(incoming + IncomingAt(s, h, row), s.width,
                  joined + JoinedAt(s, h, s.past + row));
    }
  }
}

void PastGradient(Stream& stream, const JoinedHeads& s, const float* djoined,
                  bool accumulate, float* dpast) {
  const CpuKernel kernel(stream);
  const int64_t count = s.past * s.width;
  for (int64_t h = 0; h < s.head_count(); ++h) {
    const float* const d = djoined + JoinedAt(s, h, 0);
    Emit(count, accumulate, dpast + h * count, [=](int64_t i) { return d[i]; });
  }
}

void IncomingGradient(Stream& stream, const JoinedHeads& s,
                      const float* djoined, bool accumulate, float* dincoming) {
  const CpuKernel kernel(stream);
  for (int64_t h = 0; h < s.head_count(); ++h) {
    for (int64_t row = 0; row < s.rows; ++row) {
      const float* const d = djoined + JoinedAt(s, h, s.past + row);
      Emit(s.width, accumulate, dincoming + IncomingAt(s, h, row),
           [=](int64_t i) { return d[i]; });
    }
  }
}

void AddSums(Stream& stream, int64_t count, const double* sums, float* to) {
  const CpuKernel kernel(stream);
  Emit(count, /*accumulate=*/true, to,
       [=](int64_t i) { return static_cast<float>(sums[i]); });
}

}  // namespace

const AttentionKernels& CpuAttentionKernels() {
  static constexpr AttentionKernels kKernels = {
      .make = Make,
      .join = Join,
      .past_gradient = PastGradient,
      .incoming_gradient = IncomingGradient,
      .add_sums = AddSums};
  return kKernels;
}

}  // namespace syncline

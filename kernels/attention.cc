#include "kernels/attention.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/status_macros.h"
#include "kernels/loop.h"
#include "kernels/softmax.h"

namespace syncline {
namespace {

int64_t OffsetOf(const Attention::Layout& layout, int64_t batch, int64_t head) {
  return batch * layout.batch + head * layout.head;
}

absl::Status Into(Gemm& product, const float* a, const float* b, bool add,
                  float* c) {
  return add ? product.Accumulate(a, b, c) : product.Run(a, b, nullptr, c);
}

}  // namespace

absl::StatusOr<Attention> Attention::Create(const Shape& s, bool backward) {
  SYNCLINE_ASSIGN_OR_RETURN(Gemm scores, Gemm::Create({.m = s.queries,
                                                       .n = s.keys,
                                                       .k = s.width,
                                                       .transpose_b = true,
                                                       .a_row = s.q.row,
                                                       .b_row = s.k.row,
                                                       .alpha = s.scale}));
  SYNCLINE_ASSIGN_OR_RETURN(Gemm mix, Gemm::Create({.m = s.queries,
                                                    .n = s.value_width,
                                                    .k = s.keys,
                                                    .b_row = s.v.row,
                                                    .c_row = s.y.row}));
  Attention attention(s, std::move(scores), std::move(mix));
  if (backward) SYNCLINE_RETURN_IF_ERROR(attention.CompileBackward());
  return attention;
}

absl::Status Attention::CompileBackward() {
  const Shape& s = shape_;
  SYNCLINE_ASSIGN_OR_RETURN(dweights_, Gemm::Create({.m = s.queries,
                                                     .n = s.keys,
                                                     .k = s.value_width,
                                                     .transpose_b = true,
                                                     .a_row = s.y.row,
                                                     .b_row = s.v.row}));
  SYNCLINE_ASSIGN_OR_RETURN(dq_, Gemm::Create({.m = s.queries,
                                               .n = s.width,
                                               .k = s.keys,
                                               .b_row = s.k.row,
                                               .c_row = s.q.row,
                                               .alpha = s.scale}));
  SYNCLINE_ASSIGN_OR_RETURN(dk_, Gemm::Create({.m = s.keys,
                                               .n = s.width,
                                               .k = s.queries,
                                               .transpose_a = true,
                                               .b_row = s.q.row,
                                               .c_row = s.k.row,
                                               .alpha = s.scale}));
  SYNCLINE_ASSIGN_OR_RETURN(dv_, Gemm::Create({.m = s.keys,
                                               .n = s.value_width,
                                               .k = s.queries,
                                               .transpose_a = true,
                                               .b_row = s.y.row,
                                               .c_row = s.v.row}));
  return absl::OkStatus();
}

int64_t Attention::weights_count() const {
  return shape_.keeps_weights ? shape_.batch * shape_.heads * HeadCount() : 0;
}

int64_t Attention::forward_scratch_count() const {
  return shape_.keeps_weights ? 0 : HeadCount();
}

int64_t Attention::backward_scratch_count() const {
  return HeadCount() + forward_scratch_count();
}

absl::Status Attention::ComputeWeights(int64_t batch, int64_t head,
                                       const float* q, const float* k,
                                       const Mask& mask, float* weights) {
  const int64_t key_head = head / (shape_.heads / shape_.key_heads);
  SYNCLINE_RETURN_IF_ERROR(scores_.Run(q + OffsetOf(shape_.q, batch, head),
                                       k + OffsetOf(shape_.k, batch, key_head),
                                       nullptr, weights));
  WeightsOf(batch, head, mask, weights);
  return absl::OkStatus();
}

void Attention::WeightsOf(int64_t batch, int64_t head, const Mask& mask,
                          float* weights) const {
  const int64_t at = batch * mask.batch + head * mask.head;
  for (int64_t i = 0; i < shape_.queries; ++i) {
    float* const row = weights + i * shape_.keys;
    const int64_t n =
        shape_.causal ? std::min(i + 1, shape_.keys) : shape_.keys;
    if (mask.added != nullptr) {
      const float* const m = mask.added + at + i * mask.row;
      for (int64_t j = 0; j < n; ++j) row[j] += m[j * mask.column];
    } else if (mask.seen != nullptr) {
      const uint8_t* const m = mask.seen + at + i * mask.row;
      for (int64_t j = 0; j < n; ++j) {
        if (m[j * mask.column] == 0) {
          row[j] = -std::numeric_limits<float>::infinity();
        }
      }
    }
    Softmax({.outer = 1, .n = n, .inner = 1}, row, row);
    std::fill(row + n, row + shape_.keys, 0.0f);
  }
}

absl::Status Attention::Forward(const float* q, const float* k, const float* v,
                                const Mask& mask, float* y, float* weights,
                                float* scratch) {
  const Shape& s = shape_;
  const int64_t group = s.heads / s.key_heads;
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      float* const p = s.keeps_weights ? weights : scratch;
      SYNCLINE_RETURN_IF_ERROR(ComputeWeights(b, h, q, k, mask, p));
      SYNCLINE_RETURN_IF_ERROR(mix_.Run(p, v + OffsetOf(s.v, b, h / group),
                                        nullptr, y + OffsetOf(s.y, b, h)));
      weights += s.keeps_weights ? HeadCount() : 0;
    }
  }
  return absl::OkStatus();
}

absl::Status Attention::Backward(const float* q, const float* k, const float* v,
                                 const Mask& mask, const float* weights,
                                 const float* dy, float* scratch,
                                 const Gradients& out) {
  const Shape& s = shape_;
  const int64_t group = s.heads / s.key_heads;
  const SoftmaxShape rows = {.outer = s.queries, .n = s.keys, .inner = 1};
  float* const again = scratch + HeadCount();  // P, if it was not kept
  const float* p = again;
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      if (s.keeps_weights) {
        p = weights + (b * s.heads + h) * HeadCount();
      } else {
        SYNCLINE_RETURN_IF_ERROR(ComputeWeights(b, h, q, k, mask, again));
      }
      const int64_t q_at = OffsetOf(s.q, b, h);
      const int64_t k_at = OffsetOf(s.k, b, h / group);
      const int64_t v_at = OffsetOf(s.v, b, h / group);
      const float* const dy_head = dy + OffsetOf(s.y, b, h);
      const bool shared = h % group != 0;  // the same keys and values
      if (out.dv != nullptr) {
        SYNCLINE_RETURN_IF_ERROR(
            Into(*dv_, p, dy_head, shared || out.add_dv, out.dv + v_at));
      }
      if (out.dq == nullptr && out.dk == nullptr && out.dmask == nullptr) {
        continue;
      }
      SYNCLINE_RETURN_IF_ERROR(
          dweights_->Run(dy_head, v + v_at, nullptr, scratch));
      SoftmaxGradient(rows, p, scratch, /*accumulate=*/false, scratch);
      if (out.dmask != nullptr) {
        float* const dmask = out.dmask + b * mask.batch + h * mask.head;
        for (int64_t i = 0; i < s.queries; ++i) {
          for (int64_t j = 0; j < s.keys; ++j) {
            dmask[i * mask.row + j * mask.column] += scratch[i * s.keys + j];
          }
        }
      }
      if (out.dk != nullptr) {
        SYNCLINE_RETURN_IF_ERROR(
            Into(*dk_, scratch, q + q_at, shared || out.add_dk, out.dk + k_at));
      }
      if (out.dq != nullptr) {
        SYNCLINE_RETURN_IF_ERROR(
            Into(*dq_, scratch, k + k_at, out.add_dq, out.dq + q_at));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace syncline

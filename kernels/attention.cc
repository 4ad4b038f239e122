#include "kernels/attention.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"
#include "kernels/loop.h"
#include "kernels/softmax.h"
#include "kernels/threads.h"

namespace syncline {
namespace {

int64_t OffsetOf(const Attention::Layout& layout, int64_t batch, int64_t head) {
  return batch * layout.batch + head * layout.head;
}

absl::Status Into(Gemm& product, const float* a, const float* b, bool add,
                  float* c) {
  return add ? product.Accumulate(a, b, c) : product.Run(a, b, nullptr, c);
}

// Products that are made while it lives are one thread's.
class OneThreadEach {
 public:
  OneThreadEach() : before_(ComputeThreads()) { SetComputeThreads(1); }
  ~OneThreadEach() { SetComputeThreads(before_); }

 private:
  const int before_;
};

}  // namespace

absl::StatusOr<Attention::Products> Attention::Products::Compile(
    const Shape& s, bool backward) {
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
  Products products = {std::move(scores), std::move(mix)};
  if (backward) SYNCLINE_RETURN_IF_ERROR(products.CompileBackward(s));
  return products;
}

absl::Status Attention::Products::CompileBackward(const Shape& s) {
  SYNCLINE_ASSIGN_OR_RETURN(dweights, Gemm::Create({.m = s.queries,
                                                    .n = s.keys,
                                                    .k = s.value_width,
                                                    .transpose_b = true,
                                                    .a_row = s.y.row,
                                                    .b_row = s.v.row}));
  SYNCLINE_ASSIGN_OR_RETURN(dq, Gemm::Create({.m = s.queries,
                                              .n = s.width,
                                              .k = s.keys,
                                              .b_row = s.k.row,
                                              .c_row = s.q.row,
                                              .alpha = s.scale}));
  SYNCLINE_ASSIGN_OR_RETURN(dk, Gemm::Create({.m = s.keys,
                                              .n = s.width,
                                              .k = s.queries,
                                              .transpose_a = true,
                                              .b_row = s.q.row,
                                              .c_row = s.k.row,
                                              .alpha = s.scale}));
  SYNCLINE_ASSIGN_OR_RETURN(dv, Gemm::Create({.m = s.keys,
                                              .n = s.value_width,
                                              .k = s.queries,
                                              .transpose_a = true,
                                              .b_row = s.y.row,
                                              .c_row = s.v.row}));
  return absl::OkStatus();
}

absl::StatusOr<Attention> Attention::Create(const Shape& shape, bool backward) {
  const int64_t threads = ComputeThreads();
  const bool shared = shape.batch * shape.key_heads >= threads;
  std::vector<Products> products;
  std::optional<OneThreadEach> alone;
  if (shared) alone.emplace();
  for (int64_t part = 0; part < (shared ? threads : 1); ++part) {
    SYNCLINE_ASSIGN_OR_RETURN(Products own, Products::Compile(shape, backward));
    products.push_back(std::move(own));
  }
  return Attention(shape, std::move(products));
}

int64_t Attention::weights_count() const {
  return shape_.keeps_weights ? shape_.batch * shape_.heads * HeadCount() : 0;
}

int64_t Attention::forward_scratch_count() const {
  if (shape_.keeps_weights) return 0;
  return static_cast<int64_t>(products_.size()) * HeadCount();
}

int64_t Attention::backward_scratch_count() const {
  return static_cast<int64_t>(products_.size()) * HeadCount() +
         forward_scratch_count();
}

// A part has whole groups of heads that share keys and values.
template <typename Run>
absl::Status Attention::ForHeads(bool may_share, Run run) {
  const auto parts = static_cast<int64_t>(products_.size());
  const int64_t groups = shape_.batch * shape_.key_heads;
  const int64_t group = shape_.heads / shape_.key_heads;
  const auto run_part = [&](int64_t part) -> absl::Status {
    const int64_t end = groups * (part + 1) / parts * group;
    for (int64_t i = groups * part / parts * group; i < end; ++i) {
      const int64_t head = i % shape_.heads;
      SYNCLINE_RETURN_IF_ERROR(run(part, Head{.batch = i / shape_.heads,
                                              .head = head,
                                              .key_head = head / group,
                                              .shares_keys = i % group != 0}));
    }
    return absl::OkStatus();
  };
  const auto run_parts = [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      products_[part].ended = run_part(part);
    }
  };
  if (may_share) {
    ParallelFor(parts, 1, run_parts);
  } else {
    run_parts(0, parts);
  }
  for (const Products& products : products_) {
    SYNCLINE_RETURN_IF_ERROR(products.ended);
  }
  return absl::OkStatus();
}

absl::Status Attention::ComputeWeights(Products& products, const Head& head,
                                       const Operands& in,
                                       float* weights) const {
  SYNCLINE_RETURN_IF_ERROR(products.scores.Run(
      in.q + OffsetOf(shape_.q, head.batch, head.head),
      in.k + OffsetOf(shape_.k, head.batch, head.key_head), nullptr, weights));
  WeightsOf(head, in.mask, weights);
  return absl::OkStatus();
}

void Attention::WeightsOf(const Head& head, const Mask& mask,
                          float* weights) const {
  const int64_t at = head.batch * mask.batch + head.head * mask.head;
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
        const bool set = m[j * mask.column] != 0;
        if (set == mask.hides) row[j] = mask.hidden;
      }
    }
    Softmax({.outer = 1, .n = n, .inner = 1}, row, row);
    std::fill(row + n, row + shape_.keys, 0.0f);
  }
}

absl::Status Attention::Forward(const float* q, const float* k, const float* v,
                                const Mask& mask, float* y, float* weights,
                                float* scratch) {
  const Operands in = {q, k, v, mask};
  return ForHeads(
      /*may_share=*/true, [&](int64_t part, const Head& h) -> absl::Status {
        float* const p =
            shape_.keeps_weights
                ? weights + (h.batch * shape_.heads + h.head) * HeadCount()
                : scratch + part * HeadCount();
        SYNCLINE_RETURN_IF_ERROR(ComputeWeights(products_[part], h, in, p));
        return products_[part].mix.Run(
            p, v + OffsetOf(shape_.v, h.batch, h.key_head), nullptr,
            y + OffsetOf(shape_.y, h.batch, h.head));
      });
}

absl::Status Attention::Backward(const float* q, const float* k, const float* v,
                                 const Mask& mask, const float* weights,
                                 const float* dy, float* scratch,
                                 const Gradients& out) {
  const Operands in = {q, k, v, mask};
  float* const again =
      scratch + static_cast<int64_t>(products_.size()) * HeadCount();
  // Heads of one mask add to one gradient.
  const bool may_share = out.dmask == nullptr;
  return ForHeads(may_share, [&](int64_t part, const Head& h) -> absl::Status {
    float* const ds = scratch + part * HeadCount();
    if (shape_.keeps_weights) {
      const int64_t at = (h.batch * shape_.heads + h.head) * HeadCount();
      return HeadGradients(products_[part], h, in, weights + at, dy, ds, out);
    }
    float* const p = again + part * HeadCount();
    SYNCLINE_RETURN_IF_ERROR(ComputeWeights(products_[part], h, in, p));
    return HeadGradients(products_[part], h, in, p, dy, ds, out);
  });
}

absl::Status Attention::HeadGradients(Products& products, const Head& h,
                                      const Operands& in, const float* weights,
                                      const float* dy, float* scratch,
                                      const Gradients& out) const {
  const Shape& s = shape_;
  const int64_t q_at = OffsetOf(s.q, h.batch, h.head);
  const int64_t k_at = OffsetOf(s.k, h.batch, h.key_head);
  const int64_t v_at = OffsetOf(s.v, h.batch, h.key_head);
  const float* const dy_head = dy + OffsetOf(s.y, h.batch, h.head);
  if (out.dv != nullptr) {
    SYNCLINE_RETURN_IF_ERROR(Into(*products.dv, weights, dy_head,
                                  h.shares_keys || out.add_dv, out.dv + v_at));
  }
  if (out.dq == nullptr && out.dk == nullptr && out.dmask == nullptr) {
    return absl::OkStatus();
  }
  SYNCLINE_RETURN_IF_ERROR(
      products.dweights->Run(dy_head, in.v + v_at, nullptr, scratch));
  SoftmaxGradient({.outer = s.queries, .n = s.keys, .inner = 1}, weights,
                  scratch, /*accumulate=*/false, scratch);
  if (out.dmask != nullptr) {
    const Mask& mask = in.mask;
    float* const dmask = out.dmask + h.batch * mask.batch + h.head * mask.head;
    for (int64_t i = 0; i < s.queries; ++i) {
      for (int64_t j = 0; j < s.keys; ++j) {
        dmask[i * mask.row + j * mask.column] += scratch[i * s.keys + j];
      }
    }
  }
  if (out.dk != nullptr) {
    SYNCLINE_RETURN_IF_ERROR(Into(*products.dk, scratch, in.q + q_at,
                                  h.shares_keys || out.add_dk, out.dk + k_at));
  }
  if (out.dq != nullptr) {
    SYNCLINE_RETURN_IF_ERROR(
        Into(*products.dq, scratch, in.k + k_at, out.add_dq, out.dq + q_at));
  }
  return absl::OkStatus();
}

}  // namespace syncline

#include "kernels/attention.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/status_macros.h"
#include "kernels/elementwise/loop.h"
#include "kernels/elementwise/vector_math.h"
#include "kernels/softmax.h"
#include "kernels/threads.h"

namespace syncline {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

int64_t OffsetOf(const Attention::Layout& layout, int64_t batch, int64_t head) {
  return batch * layout.batch + head * layout.head;
}

absl::Status Into(Gemm& product, const float* a, const float* b, bool add,
                  float* c) {
  return add ? product.Accumulate(a, b, c) : product.Run(a, b, nullptr, c);
}

void Cap(int64_t count, float cap, float* scores) {
  Emit(count, /*accumulate=*/false, scores,
       [=](int64_t i) { return cap * Tanh(scores[i] / cap); });
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
  return shape_.keeps_weights ? 0 : parts() * HeadCount();
}

int64_t Attention::backward_scratch_count() const {
  const int64_t capped = shape_.softcap != 0 ? 1 : 0;
  return (1 + capped) * parts() * HeadCount() + forward_scratch_count();
}

// A part has whole groups of heads that share keys and values.
template <typename Run>
absl::Status Attention::ForHeads(bool may_share, Run run) {
  const int64_t groups = shape_.batch * shape_.key_heads;
  const int64_t group = shape_.heads / shape_.key_heads;
  const auto run_part = [&](int64_t part) -> absl::Status {
    const int64_t end = groups * (part + 1) / parts() * group;
    for (int64_t i = groups * part / parts() * group; i < end; ++i) {
      const int64_t head = i % shape_.heads;
      SYNCLINE_RETURN_IF_ERROR(run(part, Head{.batch = i / shape_.heads,
                                              .head = head,
                                              .key_head = head / group,
                                              .index = i,
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
    ParallelFor(parts(), 1, run_parts);
  } else {
    run_parts(0, parts());
  }
  for (const Products& products : products_) {
    SYNCLINE_RETURN_IF_ERROR(products.ended);
  }
  return absl::OkStatus();
}

absl::Status Attention::ComputeScores(Products& products, const Head& head,
                                      const Operands& in, float* scores,
                                      const Scores& wanted) const {
  SYNCLINE_RETURN_IF_ERROR(products.scores.Run(
      in.q + OffsetOf(shape_.q, head.batch, head.head),
      in.k + OffsetOf(shape_.k, head.batch, head.key_head), nullptr, scores));
  CopyTo(wanted, Stage::kProducts, head, scores);
  if (shape_.softcap != 0) Cap(HeadCount(), shape_.softcap, scores);
  CopyTo(wanted, Stage::kCapped, head, scores);
  return absl::OkStatus();
}

absl::Status Attention::ComputeWeights(Products& products, const Head& head,
                                       const Operands& in, float* weights,
                                       const Scores& wanted) const {
  SYNCLINE_RETURN_IF_ERROR(ComputeScores(products, head, in, weights, wanted));
  WeightsOf(head, in.mask, weights, Wanted(wanted, Stage::kMasked, head));
  CopyTo(wanted, Stage::kWeights, head, weights);
  return absl::OkStatus();
}

float* Attention::Wanted(const Scores& wanted, Stage stage,
                         const Head& head) const {
  if (wanted.scores == nullptr || wanted.stage != stage) return nullptr;
  return wanted.scores + head.index * HeadCount();
}

void Attention::CopyTo(const Scores& wanted, Stage stage, const Head& head,
                       const float* scores) const {
  float* const to = Wanted(wanted, stage, head);
  if (to != nullptr) std::copy_n(scores, HeadCount(), to);
}

int64_t Attention::KeysFor(const Mask& mask, int64_t batch,
                           int64_t query) const {
  int64_t n = std::min(shape_.keys, mask.columns);
  if (mask.keys != nullptr) {
    n = std::min(n, std::clamp<int64_t>(mask.keys[batch], 0, shape_.keys));
  }
  if (shape_.causal) n = std::min(n, shape_.past + query + 1);
  return std::max<int64_t>(n, 0);
}

// To the first n scores of a query; its mask is from `at` on.
void Attention::ApplyMask(const Mask& mask, int64_t at, int64_t n,
                          float* row) const {
  if (mask.added != nullptr) {
    const float* const m = mask.added + at;
    for (int64_t j = 0; j < n; ++j) row[j] += m[j * mask.column];
  } else if (mask.seen != nullptr) {
    const uint8_t* const m = mask.seen + at;
    for (int64_t j = 0; j < n; ++j) {
      const bool set = m[j * mask.column] != 0;
      if (set == mask.hides) row[j] = mask.hidden;
    }
  }
}

void Attention::WeightsOf(const Head& head, const Mask& mask, float* weights,
                          float* masked) const {
  const int64_t at = head.batch * mask.batch + head.head * mask.head;
  for (int64_t i = 0; i < shape_.queries; ++i) {
    float* const row = weights + i * shape_.keys;
    float* const end = row + shape_.keys;
    const int64_t n = KeysFor(mask, head.batch, i);
    ApplyMask(mask, at + i * mask.row, n, row);
    if (masked != nullptr) {
      float* const to = masked + i * shape_.keys;
      std::fill(std::copy_n(row, n, to), to + shape_.keys, -kInfinity);
    }
    const bool sees_none =
        std::all_of(row, row + n, [](float s) { return s == -kInfinity; });
    if (!sees_none) Softmax({.outer = 1, .n = n, .inner = 1}, row, row);
    std::fill(sees_none ? row : row + n, end, 0.0f);
  }
}

absl::Status Attention::Forward(const float* q, const float* k, const float* v,
                                const Mask& mask, float* y, float* weights,
                                float* scratch, const Scores& scores) {
  const Operands in = {q, k, v, mask};
  return ForHeads(
      /*may_share=*/true, [&](int64_t part, const Head& h) -> absl::Status {
        float* const p = shape_.keeps_weights ? weights + h.index * HeadCount()
                                              : scratch + part * HeadCount();
        SYNCLINE_RETURN_IF_ERROR(
            ComputeWeights(products_[part], h, in, p, scores));
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
  const int64_t own = backward_scratch_count() / parts();
  // Heads of one mask add to one gradient.
  const bool may_share = !out.WantsMask();
  return ForHeads(may_share, [&](int64_t part, const Head& h) -> absl::Status {
    Products& products = products_[part];
    float* const d = scratch + part * own;
    float* const p = d + HeadCount();  // if it was not kept
    if (shape_.keeps_weights) {
      return HeadGradients(products, h, in, weights + h.index * HeadCount(), dy,
                           d, /*capped=*/p, out);
    }
    SYNCLINE_RETURN_IF_ERROR(ComputeWeights(products, h, in, p, {}));
    return HeadGradients(products, h, in, p, dy, d, p + HeadCount(), out);
  });
}

absl::Status Attention::HeadGradients(Products& products, const Head& h,
                                      const Operands& in, const float* weights,
                                      const float* dy, float* d, float* capped,
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
  if (out.dq == nullptr && out.dk == nullptr && !out.WantsMask()) {
    return absl::OkStatus();
  }
  SYNCLINE_RETURN_IF_ERROR(
      products.dweights->Run(dy_head, in.v + v_at, nullptr, d));
  SoftmaxGradient({.outer = s.queries, .n = s.keys, .inner = 1}, weights, d,
                  /*accumulate=*/false, d);
  if (in.mask.hidden_is_finite()) DropHidden(in.mask, h, d);
  AddMaskGradient(in.mask, h, d, out.dmask);
  AddMaskGradient(in.mask, h, d, out.long_dmask);
  if (s.softcap != 0) {
    SYNCLINE_RETURN_IF_ERROR(CapGradient(products, h, in, capped, d));
  }
  if (out.dk != nullptr) {
    SYNCLINE_RETURN_IF_ERROR(Into(*products.dk, d, in.q + q_at,
                                  h.shares_keys || out.add_dk, out.dk + k_at));
  }
  if (out.dq != nullptr) {
    SYNCLINE_RETURN_IF_ERROR(
        Into(*products.dq, d, in.k + k_at, out.add_dq, out.dq + q_at));
  }
  return absl::OkStatus();
}

void Attention::DropHidden(const Mask& mask, const Head& head, float* d) const {
  if (mask.seen == nullptr) return;
  const uint8_t* const seen =
      mask.seen + head.batch * mask.batch + head.head * mask.head;
  for (int64_t i = 0; i < shape_.queries; ++i) {
    const int64_t n = KeysFor(mask, head.batch, i);
    for (int64_t j = 0; j < n; ++j) {
      const bool set = seen[i * mask.row + j * mask.column] != 0;
      if (set == mask.hides) d[i * shape_.keys + j] = 0;
    }
  }
}

template <typename Sum>
void Attention::AddMaskGradient(const Mask& mask, const Head& head,
                                const float* d, Sum* dmask) const {
  if (dmask == nullptr) return;
  dmask += head.batch * mask.batch + head.head * mask.head;
  const int64_t columns = std::min(shape_.keys, mask.columns);
  for (int64_t i = 0; i < shape_.queries; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      dmask[i * mask.row + j * mask.column] += d[i * shape_.keys + j];
    }
  }
}

absl::Status Attention::CapGradient(Products& products, const Head& head,
                                    const Operands& in, float* capped,
                                    float* d) const {
  SYNCLINE_RETURN_IF_ERROR(ComputeScores(products, head, in, capped, {}));
  const float cap = shape_.softcap;
  Emit(HeadCount(), /*accumulate=*/false, d, [=](int64_t i) {
    const float y = capped[i] / cap;
    return d[i] * (1.0f - y * y);
  });
  return absl::OkStatus();
}

}  // namespace syncline

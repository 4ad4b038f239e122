#ifndef SYNCLINE_KERNELS_ATTENTION_H_
#define SYNCLINE_KERNELS_ATTENTION_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/gemm.h"

namespace syncline {

// Scaled dot-product attention (Vaswani et al. 2017) of several heads:
//
//   P = softmax(cap(scale * Q K^T) + mask)      Y = P V
//
// where cap(s) is softcap * tanh(s / softcap) if there is one (Gemma Team 2024)
// and else s; and its gradients, head by head, so that one head's weights stay
// in the cache between its products. Heads of keys and values may serve several
// heads of queries (Ainslie et al. 2023). float32. Thread-compatible. Heads are
// shared out among the threads that ComputeThreads() said when it was made,
// unless there are fewer than these: a product's threads may then differ in the
// last bit (kernels/gemm.h).
class Attention {
 public:
  // Where a head's rows lie, in elements; a row itself is dense. So heads may
  // be matrices of their own, or side by side in wider rows.
  struct Layout {
    int64_t batch = 0, head = 0, row = 0;
  };
  struct Shape {
    int64_t batch = 0;
    int64_t heads = 0;  // of queries; a multiple of key_heads
    int64_t key_heads = 0;
    int64_t queries = 0;      // rows of Q and Y
    int64_t keys = 0;         // rows of K and V
    int64_t width = 0;        // columns of Q and K
    int64_t value_width = 0;  // columns of V and Y
    float scale = 1;
    float softcap = 0;    // 0: none
    bool causal = false;  // query i sees keys 0 to past + i
    int64_t past = 0;     // keys from before the queries
    // P is kept for Backward, which else computes it again, to the same bits.
    bool keeps_weights = true;
    Layout q, k, v, y;
  };
  // Values that are added to the scores, or marks of the scores that are
  // replaced, in strides as BroadcastStrides gives them: `added` or `seen`, or
  // neither. A query all of whose scores are minus infinity has weights and a
  // result of 0.
  struct Mask {
    const float* added = nullptr;
    const uint8_t* seen = nullptr;
    bool hides = false;  // `seen` is where it is 0; else where it is not
    float hidden = -std::numeric_limits<float>::infinity();
    // Its weight need not be 0, nor does what is computed of it.
    bool hidden_is_finite() const { return std::isfinite(hidden); }
    int64_t batch = 0, head = 0, row = 0, column = 0;
    int64_t columns = std::numeric_limits<int64_t>::max();  // no key after them
    // [batch], or null: how many keys there are, where some are padding. With
    // `causal` the first query sees the first key all the same, as ONNX has it.
    // A count that is out of range is the nearest that is not.
    const int64_t* keys = nullptr;
  };
  // Where scores may be had on their way to the weights.
  enum class Stage { kProducts, kCapped, kMasked, kWeights };
  struct Scores {
    Stage stage = Stage::kProducts;
    float* scores = nullptr;  // [batch, heads, queries, keys]; null: none
  };
  struct Gradients {
    // Null: not wanted. The mask's is of what is added, and always added to;
    // one of the two, the second for a mask that many rows share, whose sum in
    // float32 would lose digits.
    float *dq = nullptr, *dk = nullptr, *dv = nullptr, *dmask = nullptr;
    double* long_dmask = nullptr;
    bool WantsMask() const { return dmask != nullptr || long_dmask != nullptr; }
    // Add to what is there; else overwrite.
    bool add_dq = false, add_dk = false, add_dv = false;
  };

  // Errors: Internal: oneDNN refused.
  static absl::StatusOr<Attention> Create(const Shape& shape, bool backward);
  Attention(Attention&&) = default;

  // Floats that Forward leaves in `weights` for Backward, P of every head or
  // nothing; and that each has in `scratch` for itself.
  int64_t weights_count() const;
  int64_t forward_scratch_count() const;
  int64_t backward_scratch_count() const;

  // y overlaps nothing else. Errors: Internal.
  absl::Status Forward(const float* q, const float* k, const float* v,
                       const Mask& mask, float* y, float* weights,
                       float* scratch, const Scores& scores);
  // REQUIRES: made for it. The mask is as Forward had it, or, with weights that
  // are kept and no finite Mask::hidden, its strides alone. Each head's
  // gradients are written in the order dv, dk, dq, so that these may be one
  // array where it is all three inputs.
  absl::Status Backward(const float* q, const float* k, const float* v,
                        const Mask& mask, const float* weights, const float* dy,
                        float* scratch, const Gradients& out);

 private:
  // The matrix products of one thread.
  struct Products {
    static absl::StatusOr<Products> Compile(const Shape& shape, bool backward);
    absl::Status CompileBackward(const Shape& shape);

    Gemm scores, mix;
    std::optional<Gemm> dweights = {}, dq = {}, dk = {}, dv = {};
    absl::Status ended = absl::OkStatus();  // what came of its heads
  };
  struct Operands {
    const float *q, *k, *v;
    Mask mask;
  };
  // A head of queries, and that of the keys and values which it reads.
  struct Head {
    int64_t batch, head, key_head;
    int64_t index;     // among all
    bool shares_keys;  // with the one before it
  };

  Attention(const Shape& shape, std::vector<Products> products)
      : shape_(shape), products_(std::move(products)) {}

  int64_t HeadCount() const { return shape_.queries * shape_.keys; }
  int64_t parts() const { return static_cast<int64_t>(products_.size()); }
  // Calls run(part, head) for all heads, for those of one part of products_ in
  // order, and parts at the same time if they `may_share` the work.
  template <typename Run>
  absl::Status ForHeads(bool may_share, Run run);
  // Where a head's scores of this stage go; null: nowhere.
  float* Wanted(const Scores& wanted, Stage stage, const Head& head) const;
  void CopyTo(const Scores& wanted, Stage stage, const Head& head,
              const float* scores) const;
  // Scores of a head, capped.
  absl::Status ComputeScores(Products& products, const Head& head,
                             const Operands& in, float* scores,
                             const Scores& wanted) const;
  // P of a head.
  absl::Status ComputeWeights(Products& products, const Head& head,
                              const Operands& in, float* weights,
                              const Scores& wanted) const;
  // How many of the first keys a query may see.
  int64_t KeysFor(const Mask& mask, int64_t batch, int64_t query) const;
  void ApplyMask(const Mask& mask, int64_t at, int64_t n, float* row) const;
  // From scores to weights, in place. `masked`: the scores between, or null.
  void WeightsOf(const Head& head, const Mask& mask, float* weights,
                 float* masked) const;
  // `d` is for the gradient of the scores, `capped` for these themselves.
  absl::Status HeadGradients(Products& products, const Head& head,
                             const Operands& in, const float* weights,
                             const float* dy, float* d, float* capped,
                             const Gradients& out) const;
  // Sets the gradient to 0 of scores that the mask replaced.
  void DropHidden(const Mask& mask, const Head& head, float* d) const;
  template <typename Sum>
  void AddMaskGradient(const Mask& mask, const Head& head, const float* d,
                       Sum* dmask) const;
  // From d, that of the capped scores, to that of the products, in place.
  absl::Status CapGradient(Products& products, const Head& head,
                           const Operands& in, float* capped, float* d) const;

  Shape shape_;
  std::vector<Products> products_;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_ATTENTION_H_

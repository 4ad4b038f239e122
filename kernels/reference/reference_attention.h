#ifndef SYNCLINE_KERNELS_REFERENCE_REFERENCE_ATTENTION_H_
#define SYNCLINE_KERNELS_REFERENCE_REFERENCE_ATTENTION_H_

// The specification of attention, as kernels/reference/reference.h has that of
// the rest.

#include <cmath>
#include <vector>

#include "kernels/reference/reference.h"

namespace syncline::reference {

struct AttentionAttributes {
  int64_t heads = 0;      // of queries; 0: arrays have four dimensions
  int64_t key_heads = 0;  // likewise
  double scale = 1;
  double softcap = 0;  // 0: none
  bool causal = false;
  std::vector<int64_t> key_counts = {};  // by sample; empty: all keys
  // A mask of one column is of the first key alone; else it is repeated.
  bool one_column_ends = false;
};

// [batch, heads, rows, width] or [batch, rows, heads * width].
struct HeadDims {
  HeadDims(const Dims& dims, int64_t heads_given)
      : joined(dims.size() == 3),
        batch(dims[0]),
        heads(joined ? heads_given : dims[1]),
        rows(joined ? dims[1] : dims[2]),
        width(joined ? dims[2] / heads : dims[3]) {}

  int64_t At(int64_t b, int64_t h, int64_t r, int64_t c) const {
    return joined ? ((b * rows + r) * heads + h) * width + c
                  : ((b * heads + h) * rows + r) * width + c;
  }

  bool joined;
  int64_t batch, heads, rows, width;
};

// in: Q, K, V and, where there are any, what is added to the scores, past keys
// and past values. Empty: left out.
template <typename T>
class AttentionCase {
 public:
  AttentionCase(const AttentionAttributes& a, const std::vector<Array<T>>& in)
      : a_(a),
        in_(in),
        q_(in[0].dims, a.heads),
        k_(in[1].dims, a.key_heads),
        v_(in[2].dims, a.key_heads),
        past_(in.size() > 4 ? in[4].dims[2] : 0),
        keys_(past_ + k_.rows) {}

  Array<T> Forward() const {
    Dims dims = in_[0].dims;
    dims.back() = q_.joined ? q_.heads * v_.width : v_.width;
    Array<T> y(dims);
    const HeadDims out(dims, q_.heads);
    ForEachRow([&](int64_t b, int64_t h, int64_t i) {
      const std::vector<T> p = Weights(b, h, i);
      for (int64_t c = 0; c < v_.width; ++c) {
        for (int64_t j = 0; j < keys_; ++j) {
          y.values[out.At(b, h, i, c)] += p[j] * Value(b, h, j, c);
        }
      }
    });
    return y;
  }

 private:
  template <typename Row>
  void ForEachRow(Row row) const {
    for (int64_t b = 0; b < q_.batch; ++b) {
      for (int64_t h = 0; h < q_.heads; ++h) {
        for (int64_t i = 0; i < q_.rows; ++i) row(b, h, i);
      }
    }
  }
  int64_t KeyHead(int64_t h) const { return h / (q_.heads / k_.heads); }
  // Element c of key or value j: of the past, then of the incoming ones.
  T Row(size_t past, size_t incoming, const HeadDims& dims, int64_t b,
        int64_t h, int64_t j, int64_t c) const {
    if (j >= past_) {
      return in_[incoming].values[dims.At(b, KeyHead(h), j - past_, c)];
    }
    return in_[past].values[FlatOf({b, KeyHead(h), j, c}, in_[past].dims)];
  }
  T Value(int64_t b, int64_t h, int64_t j, int64_t c) const {
    return Row(5, 2, v_, b, h, j, c);
  }
  // True if causality, the number of keys and the columns of the mask let query
  // i see key j.
  bool Sees(int64_t b, int64_t i, int64_t j) const {
    const bool counted = !a_.key_counts.empty();
    return (!a_.causal || j <= past_ + i) &&
           (!counted || j < a_.key_counts[b]) && j < MaskColumns();
  }
  bool HasMask() const { return in_.size() > 3 && !in_[3].values.empty(); }
  int64_t MaskColumns() const {
    const bool ends = HasMask() && !in_[3].dims.empty() &&
                      (in_[3].dims.back() > 1 || a_.one_column_ends);
    return ends ? in_[3].dims.back() : keys_;
  }
  T Masked(int64_t b, int64_t h, int64_t i, int64_t j) const {
    if (!HasMask()) return 0;
    const Dims scores = {q_.batch, q_.heads, q_.rows, MaskColumns()};
    return in_[3].values[BroadcastOffset(FlatOf({b, h, i, j}, scores), scores,
                                         in_[3].dims)];
  }
  // All 0 where nothing is seen.
  std::vector<T> Weights(int64_t b, int64_t h, int64_t i) const {
    std::vector<T> p(keys_);
    T sum = 0;
    for (int64_t j = 0; j < keys_; ++j) {
      if (!Sees(b, i, j)) continue;
      T score = 0;
      for (int64_t c = 0; c < q_.width; ++c) {
        score += T(a_.scale) * in_[0].values[q_.At(b, h, i, c)] *
                 Row(4, 1, k_, b, h, j, c);
      }
      const T cap(a_.softcap);
      if (a_.softcap != 0) score = cap * std::tanh(score / cap);
      p[j] = std::exp(score + Masked(b, h, i, j));
      sum += p[j];
    }
    if (sum == T(0)) return p;
    for (T& v : p) v /= sum;
    return p;
  }

  const AttentionAttributes a_;
  const std::vector<Array<T>>& in_;
  const HeadDims q_, k_, v_;
  const int64_t past_, keys_;
};

}  // namespace syncline::reference

#endif  // SYNCLINE_KERNELS_REFERENCE_REFERENCE_ATTENTION_H_

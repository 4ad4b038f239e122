#ifndef SYNCLINE_KERNELS_REFERENCE_ATTENTION_H_
#define SYNCLINE_KERNELS_REFERENCE_ATTENTION_H_

// The specification of attention, as kernels/reference.h has that of the rest.

#include <cmath>
#include <vector>

#include "kernels/reference.h"

namespace syncline::reference {

struct AttentionAttributes {
  int64_t heads = 0;      // of queries; 0: arrays have four dimensions
  int64_t key_heads = 0;  // likewise
  double scale = 1;
  bool causal = false;
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

// in: Q, K, V and, where there is one, what is added to the scores.
template <typename T>
class AttentionCase {
 public:
  AttentionCase(const AttentionAttributes& a, const std::vector<Array<T>>& in)
      : a_(a),
        in_(in),
        q_(in[0].dims, a.heads),
        k_(in[1].dims, a.key_heads),
        v_(in[2].dims, a.key_heads) {}

  Array<T> Forward() const {
    Dims dims = in_[0].dims;
    dims.back() = q_.joined ? q_.heads * v_.width : v_.width;
    Array<T> y(dims);
    const HeadDims out(dims, q_.heads);
    ForEachRow([&](int64_t b, int64_t h, int64_t i) {
      const std::vector<T> p = Weights(b, h, i);
      for (int64_t c = 0; c < v_.width; ++c) {
        for (int64_t j = 0; j < k_.rows; ++j) {
          y.values[out.At(b, h, i, c)] += p[j] * Value(b, h, j, c);
        }
      }
    });
    return y;
  }

  std::vector<Array<T>> Gradient(const Array<T>& dy) const {
    std::vector<Array<T>> d;
    for (const Array<T>& x : in_) d.emplace_back(x.dims);
    const HeadDims out(dy.dims, q_.heads);
    ForEachRow([&](int64_t b, int64_t h, int64_t i) {
      const std::vector<T> p = Weights(b, h, i);
      std::vector<T> dp(k_.rows);
      T sum = 0;
      for (int64_t j = 0; j < k_.rows; ++j) {
        for (int64_t c = 0; c < v_.width; ++c) {
          const T up = dy.values[out.At(b, h, i, c)];
          dp[j] += up * Value(b, h, j, c);
          d[2].values[v_.At(b, KeyHead(h), j, c)] += p[j] * up;
        }
        sum += dp[j] * p[j];
      }
      for (int64_t j = 0; j < k_.rows; ++j) {
        const T ds = p[j] * (dp[j] - sum);
        if (in_.size() > 3) d[3].values[MaskAt(b, h, i, j)] += ds;
        for (int64_t c = 0; c < q_.width; ++c) {
          const int64_t q = q_.At(b, h, i, c);
          const int64_t k = k_.At(b, KeyHead(h), j, c);
          d[0].values[q] += T(a_.scale) * ds * in_[1].values[k];
          d[1].values[k] += T(a_.scale) * ds * in_[0].values[q];
        }
      }
    });
    return d;
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
  T Value(int64_t b, int64_t h, int64_t j, int64_t c) const {
    return in_[2].values[v_.At(b, KeyHead(h), j, c)];
  }
  int64_t MaskAt(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const Dims scores = {q_.batch, q_.heads, q_.rows, k_.rows};
    return BroadcastOffset(FlatOf({b, h, i, j}, scores), scores, in_[3].dims);
  }
  std::vector<T> Weights(int64_t b, int64_t h, int64_t i) const {
    std::vector<T> p(k_.rows);
    T sum = 0;
    for (int64_t j = 0; j < k_.rows; ++j) {
      if (a_.causal && j > i) continue;
      T score = 0;
      for (int64_t c = 0; c < q_.width; ++c) {
        score += T(a_.scale) * in_[0].values[q_.At(b, h, i, c)] *
                 in_[1].values[k_.At(b, KeyHead(h), j, c)];
      }
      if (in_.size() > 3) score += in_[3].values[MaskAt(b, h, i, j)];
      p[j] = std::exp(score);
      sum += p[j];
    }
    for (T& v : p) v /= sum;
    return p;
  }

  const AttentionAttributes a_;
  const std::vector<Array<T>>& in_;
  const HeadDims q_, k_, v_;
};

}  // namespace syncline::reference

#endif  // SYNCLINE_KERNELS_REFERENCE_ATTENTION_H_

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/loop.h"
#include "worker/ops/op.h"

namespace syncline {
namespace {

// Walks the result in order, and the input along with it.
class Walk {
 public:
  // `strides` are the input's, by dimension of the result.
  Walk(Dims dims, Dims strides)
      : dims_(std::move(dims)), strides_(std::move(strides)) {}

  // Calls row(y, x, count, stride) for each run of the last dimension: elements
  // [y, y + count) of the result are input[x + i * stride].
  template <typename Row>
  void ForEachRow(Row row) const {
    const size_t outer = dims_.size() - 1;
    const int64_t total = ElementCount(dims_);
    Dims index(outer, 0);
    int64_t x = 0;
    for (int64_t y = 0; y < total; y += dims_.back()) {
      row(y, x, dims_.back(), strides_.back());
      for (size_t d = outer; d-- > 0;) {
        x += strides_[d];
        if (++index[d] < dims_[d]) break;
        index[d] = 0;
        x -= dims_[d] * strides_[d];
      }
    }
  }

 private:
  const Dims dims_;
  const Dims strides_;
};

class TransposeOp : public Op {
 public:
  TransposeOp(Walk walk, size_t element_bytes)
      : Op(Traits()), walk_(std::move(walk)), element_bytes_(element_bytes) {}

  absl::Status Forward(const Tensors& t) override {
    switch (element_bytes_) {
      case 1:
        Copy<uint8_t>(t);
        break;
      case 4:
        Copy<uint32_t>(t);
        break;
      default:
        Copy<uint64_t>(t);
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors&, const Gradients& g) override {
    float* const dx = g.in(0);
    const float* const dy = g.out();
    const bool accumulate = g.accumulate(0);
    walk_.ForEachRow([&](int64_t y, int64_t x, int64_t n, int64_t stride) {
      for (int64_t i = 0; i < n; ++i) {
        float& to = dx[x + i * stride];
        to = accumulate ? to + dy[y + i] : dy[y + i];
      }
    });
    return absl::OkStatus();
  }

 private:
  template <typename T>
  void Copy(const Tensors& t) const {
    const T* const in = static_cast<const T*>(t.inputs[0]);
    T* const out = static_cast<T*>(t.outputs[0]);
    walk_.ForEachRow([&](int64_t y, int64_t x, int64_t n, int64_t stride) {
      for (int64_t i = 0; i < n; ++i) out[y + i] = in[x + i * stride];
    });
  }

  const Walk walk_;
  const size_t element_bytes_;
};

// By dimension of the result, the input's dimension. Empty: reversed.
absl::StatusOr<Dims> PermutationOf(const OpSpec& spec) {
  const size_t rank = spec.input(0).dims.size();
  Dims permutation = spec.node->Ints("perm");
  if (permutation.empty()) {
    for (size_t d = rank; d-- > 0;) {
      permutation.push_back(static_cast<int64_t>(d));
    }
  }
  std::vector<bool> seen(rank, false);
  bool good = permutation.size() == rank;
  for (const int64_t d : permutation) {
    good = good && d >= 0 && d < static_cast<int64_t>(rank) && !seen[d];
    if (good) seen[d] = true;
  }
  if (good) return permutation;
  return absl::InvalidArgumentError(
      absl::StrCat("perm is no permutation of ", rank, " dimensions"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeTranspose(const OpSpec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(const Dims permutation, PermutationOf(spec));
  const Dims& from = spec.input(0).dims;
  Dims strides(from.size(), 1);
  for (size_t d = from.size(); d-- > 1;) strides[d - 1] = strides[d] * from[d];
  // A dimension more, so that a scalar has a last one too.
  Dims dims = {1};
  Dims walked = {0};
  for (const int64_t d : permutation) {
    dims.push_back(from[d]);
    walked.push_back(strides[d]);
  }
  return std::make_unique<TransposeOp>(Walk(std::move(dims), std::move(walked)),
                                       DTypeBytes(spec.input(0).dtype));
}

}  // namespace syncline

// ReduceMax, ReduceMin and ArgMax.

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/elementwise/binary_loop.h"
#include "worker/ops/axes.h"
#include "worker/ops/elementwise/integers.h"
#include "worker/ops/reduction_shape.h"
#include "worker/ops/without_gradient.h"

namespace syncline::worker {
namespace {

// The workspace says where in the input each result is from; -1: nowhere, of
// nothing.
class ReduceExtremumOp : public Op {
 public:
  ReduceExtremumOp(Broadcast shape, bool largest)
      : Op({.workspace_bytes =
                static_cast<int64_t>(shape.b_count * sizeof(int64_t))}),
        shape_(std::move(shape)),
        largest_(largest) {}

  absl::Status Forward(const Tensors& t) override {
    if (largest_) {
      Find(t, [](float x, float y) { return x > y; });
    } else {
      Find(t, [](float x, float y) { return x < y; });
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    if (!g.accumulate(0)) std::fill_n(g.in(0), shape_.a_count, 0.0f);
    const auto* const from = static_cast<const int64_t*>(t.workspace);
    for (int64_t i = 0; i < shape_.b_count; ++i) {
      if (from[i] >= 0) g.in(0)[from[i]] += g.out()[i];
    }
    return absl::OkStatus();
  }

 private:
  template <typename Beats>
  void Find(const Tensors& t, Beats beats) const {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const float* const x = t.in(0);
    float* const y = t.out(0);
    auto* const from = static_cast<int64_t*>(t.workspace);
    std::fill_n(y, shape_.b_count, largest_ ? -kInfinity : kInfinity);
    std::fill_n(from, shape_.b_count, int64_t{-1});
    ForEachRow(shape_, [&](auto, auto sb, int64_t, int64_t a, int64_t b) {
      for (int64_t i = 0; i < shape_.inner; ++i) {
        const float candidate = x[a + i];
        const int64_t at = b + i * sb;
        if (from[at] < 0 || beats(candidate, y[at]) ||
            (candidate != candidate && y[at] == y[at])) {
          y[at] = candidate;
          from[at] = a + i;
        }
      }
    });
  }

  const Broadcast shape_;
  const bool largest_;
};

// The largest or smallest over the axes. The first of equals has the whole
// gradient; a NaN wins.
absl::StatusOr<std::unique_ptr<Op>> MakeReduceExtremum(const OpSpec& spec,
                                                       bool largest) {
  SYNCLINE_ASSIGN_OR_RETURN(Broadcast shape, ReductionShape(spec));
  return std::make_unique<ReduceExtremumOp>(std::move(shape), largest);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeReduceMax(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerReduction(spec, IntegerFunction::kMax);
  }
  return MakeReduceExtremum(spec, /*largest=*/true);
}

absl::StatusOr<std::unique_ptr<Op>> MakeReduceMin(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerReduction(spec, IntegerFunction::kMin);
  }
  return MakeReduceExtremum(spec, /*largest=*/false);
}

namespace {

template <typename T>
std::unique_ptr<Op> MakeArgMaxOf(const AroundAxis& axis, bool last) {
  return MakeOpWithoutGradient([=](const Op::Tensors& t) {
    const T* const x = static_cast<const T*>(t.inputs[0]);
    auto* y = static_cast<int64_t*>(t.outputs[0]);
    for (int64_t o = 0; o < axis.outer; ++o) {
      for (int64_t i = 0; i < axis.inner; ++i) {
        const T* const line = x + o * axis.n * axis.inner + i;
        int64_t best = 0;
        for (int64_t k = 1; k < axis.n; ++k) {
          const T value = line[k * axis.inner];
          const T most = line[best * axis.inner];
          if (value > most || (last && value == most)) best = k;
        }
        *y++ = best;
      }
    }
    return absl::OkStatus();
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeArgMax(const OpSpec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(
      const int64_t at,
      ResolveAxis(spec.node->Int("axis", 0), spec.input(0).dims.size()));
  const AroundAxis axis = SplitAt(spec.input(0).dims, at);
  if (axis.n == 0) {
    return absl::InvalidArgumentError("an empty dimension has no largest");
  }
  const bool last = spec.node->Int("select_last_index", 0) != 0;
  switch (spec.input(0).dtype) {
    case DType::kFloat32:
      return MakeArgMaxOf<float>(axis, last);
    case DType::kFloat64:
      return MakeArgMaxOf<double>(axis, last);
    case DType::kInt32:
      return MakeArgMaxOf<int32_t>(axis, last);
    case DType::kInt64:
      return MakeArgMaxOf<int64_t>(axis, last);
    default:
      return MakeArgMaxOf<uint8_t>(axis, last);
  }
}

}  // namespace syncline::worker

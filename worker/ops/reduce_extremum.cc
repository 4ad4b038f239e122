#include "worker/ops/reduce_extremum.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/status_macros.h"
#include "worker/ops/reduce.h"

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

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeReduceExtremum(const OpSpec& spec,
                                                       bool largest) {
  SYNCLINE_ASSIGN_OR_RETURN(Broadcast shape, ReductionShape(spec));
  return std::make_unique<ReduceExtremumOp>(std::move(shape), largest);
}

}  // namespace syncline::worker

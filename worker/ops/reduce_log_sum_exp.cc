#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/base/status_macros.h"
#include "kernels/elementwise/binary_loop.h"
#include "kernels/elementwise/vector_math.h"
#include "worker/ops/reduce.h"

namespace syncline::worker {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Shifted by the maximum, so that nothing overflows; by nothing where that is
// infinite. The scratch has the sums.
class ReduceLogSumExpOp : public Op {
 public:
  explicit ReduceLogSumExpOp(Broadcast shape)
      : Op({.backward_inputs = 1,
            .backward_outputs = 1,
            .forward_scratch_bytes =
                static_cast<int64_t>(shape.b_count * sizeof(float))}),
        shape_(std::move(shape)) {}

  absl::Status Forward(const Tensors& t) override {
    const float* const x = t.in(0);
    float* const y = t.out(0);
    float* const sums = static_cast<float*>(t.scratch);
    std::fill_n(y, shape_.b_count, -kInfinity);
    ForEachRow(shape_, [&](auto, auto sb, int64_t, int64_t a, int64_t b) {
      for (int64_t i = 0; i < shape_.inner; ++i) {
        float& most = y[b + i * sb];
        most = x[a + i] > most ? x[a + i] : most;
      }
    });
    Emit(shape_.b_count, /*accumulate=*/false, y,
         [=](int64_t i) { return std::isfinite(y[i]) ? y[i] : 0.0f; });
    std::fill_n(sums, shape_.b_count, 0.0f);
    AddUpGradient(
        shape_, Side::kB, sums,
        [x, y](int64_t, int64_t a, int64_t b) { return Exp(x[a] - y[b]); });
    Emit(shape_.b_count, /*accumulate=*/true, y,
         [=](int64_t i) { return std::log(sums[i]); });
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    const float* const x = t.in(0);
    const float* const y = t.out(0);
    const float* const dy = g.out();
    ForEachRow(shape_, [&](auto, auto sb, int64_t, int64_t a, int64_t b) {
      Emit(shape_.inner, g.accumulate(0), g.in(0) + a, [&](int64_t i) {
        const float of = y[b + i * sb];
        return of == -kInfinity ? 0.0f : dy[b + i * sb] * Exp(x[a + i] - of);
      });
    });
    return absl::OkStatus();
  }

 private:
  const Broadcast shape_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeReduceLogSumExp(const OpSpec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(Broadcast shape, ReductionShape(spec));
  return std::make_unique<ReduceLogSumExpOp>(std::move(shape));
}

}  // namespace syncline::worker

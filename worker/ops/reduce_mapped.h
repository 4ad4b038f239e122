#ifndef SYNCLINE_WORKER_OPS_REDUCE_MAPPED_H_
#define SYNCLINE_WORKER_OPS_REDUCE_MAPPED_H_

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"
#include "kernels/elementwise/binary_loop.h"
#include "worker/ops/reduce.h"

namespace syncline::worker {

// y = F::Result(sum of F::Term(x)) over the axes, and F::Derivative(x, y) of y
// by x.
template <typename F>
class MappedReduceOp : public Op {
 public:
  explicit MappedReduceOp(Broadcast shape)
      : Op({.backward_inputs = 1, .backward_outputs = 1}),
        shape_(std::move(shape)) {}

  absl::Status Forward(const Tensors& t) override {
    const float* const x = t.in(0);
    float* const y = t.out(0);
    std::fill_n(y, shape_.b_count, 0.0f);
    AddUpGradient(shape_, Side::kB, y,
                  [x](int64_t, int64_t a, int64_t) { return F::Term(x[a]); });
    Emit(shape_.b_count, /*accumulate=*/false, y,
         [=](int64_t i) { return F::Result(y[i]); });
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    const float* const x = t.in(0);
    const float* const y = t.out(0);
    const float* const dy = g.out();
    ForEachRow(shape_, [&](auto, auto sb, int64_t, int64_t a, int64_t b) {
      Emit(shape_.inner, g.accumulate(0), g.in(0) + a, [&](int64_t i) {
        return dy[b + i * sb] * F::Derivative(x[a + i], y[b + i * sb]);
      });
    });
    return absl::OkStatus();
  }

 private:
  const Broadcast shape_;
};

template <typename F>
absl::StatusOr<std::unique_ptr<Op>> MakeMappedReduce(const OpSpec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(Broadcast shape, ReductionShape(spec));
  return std::make_unique<MappedReduceOp<F>>(std::move(shape));
}

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_REDUCE_MAPPED_H_

#ifndef SYNCLINE_WORKER_OPS_ELEMENTWISE_POINTWISE_OP_H_
#define SYNCLINE_WORKER_OPS_ELEMENTWISE_POINTWISE_OP_H_

#include "common/base/status_macros.h"
#include "kernels/elementwise/loop.h"
#include "kernels/threads.h"
#include "worker/ops/op.h"
#include "worker/ops/without_gradient.h"

namespace syncline::worker {

// One float32 input, one output of its shape, element by element: F has
// Value(x), and Derivative(x) from the input; settings of the node are fields
// of it. For functions without settings, unary_op.h.
template <typename F>
class PointwiseOp : public Op {
 public:
  PointwiseOp(const OpSpec& spec, const F& f)
      : Op({.backward_inputs = 1,
            .in_place_input = 0,
            .gradient_in_place = true}),
        f_(f),
        count_(spec.input(0).count()) {}

  absl::Status Forward(const Tensors& t) override {
    const float* const x = t.in(0);
    const F f = f_;
    ParallelFor(count_, kElementsPerThread, [&](int64_t begin, int64_t end) {
      Emit(end - begin, /*accumulate=*/false, t.out(0) + begin,
           [f, x = x + begin](int64_t i) { return f.Value(x[i]); });
    });
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    const float* const x = t.in(0);
    const float* const dy = g.out();
    const F f = f_;
    ParallelFor(count_, kElementsPerThread, [&](int64_t begin, int64_t end) {
      Emit(end - begin, g.accumulate(0), g.in(0) + begin,
           [f, x = x + begin, dy = dy + begin](int64_t i) {
             return dy[i] * f.Derivative(x[i]);
           });
    });
    return absl::OkStatus();
  }

 private:
  const F f_;
  const int64_t count_;
};

template <typename F>
absl::StatusOr<std::unique_ptr<Op>> MakePointwise(const OpSpec& spec,
                                                  const F& f) {
  SYNCLINE_RETURN_IF_ERROR(spec.RequireFloat32());
  return std::make_unique<PointwiseOp<F>>(spec, f);
}

// The same for a function that is constant between its steps, so that no
// gradient flows: f(x).
template <typename F>
absl::StatusOr<std::unique_ptr<Op>> MakeStepFunction(const OpSpec& spec, F f) {
  SYNCLINE_RETURN_IF_ERROR(spec.RequireFloat32());
  return MakeOpWithoutGradient(
      [f, count = spec.input(0).count()](const Op::Tensors& t) {
        const float* const x = t.in(0);
        Emit(count, /*accumulate=*/false, t.out(0),
             [=](int64_t i) { return f(x[i]); });
        return absl::OkStatus();
      });
}

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_ELEMENTWISE_POINTWISE_OP_H_

#ifndef SYNCLINE_WORKER_OPS_WITHOUT_GRADIENT_H_
#define SYNCLINE_WORKER_OPS_WITHOUT_GRADIENT_H_

#include <utility>

#include "worker/ops/op.h"

namespace syncline::worker {

// An Op that only has a Forward: run(const Op::Tensors&) -> absl::Status. For
// operators whose result is no differentiable function of an input.
template <typename Run>
class OpWithoutGradient : public Op {
 public:
  explicit OpWithoutGradient(Run run) : Op(Traits()), run_(std::move(run)) {}

  absl::Status Forward(const Tensors& t) override { return run_(t); }
  absl::Status Backward(const Tensors&, const Gradients&) override {
    return absl::InternalError("the operator has no gradient");
  }

 private:
  const Run run_;
};

template <typename Run>
std::unique_ptr<Op> MakeOpWithoutGradient(Run run) {
  return std::make_unique<OpWithoutGradient<Run>>(std::move(run));
}

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_WITHOUT_GRADIENT_H_

#include <utility>

#include "common/base/status_macros.h"
#include "kernels/pooling.h"
#include "worker/ops/window.h"

namespace syncline::worker {
namespace {

class AveragePoolOp : public Op {
 public:
  AveragePoolOp(const OpSpec& spec, Window window)
      : Op(Traits()),
        planes_(PlanesOf(spec)),
        window_(std::move(window)),
        weights_(AverageWeights(window_,
                                spec.node->Int("count_include_pad", 0) != 0)) {}

  absl::Status Forward(const Tensors& t) override {
    AveragePool(planes_, window_, weights_.data(), t.in(0), t.out(0));
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors&, const Gradients& g) override {
    AveragePoolGradient(planes_, window_, weights_.data(), g.out(),
                        g.accumulate(0), g.in(0));
    return absl::OkStatus();
  }

 private:
  const int64_t planes_;
  const Window window_;
  const std::vector<float> weights_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeAveragePool(const OpSpec& spec) {
  SYNCLINE_RETURN_IF_ERROR(spec.RequireFloat32());
  SYNCLINE_ASSIGN_OR_RETURN(const Dims kernel, KernelShapeOf(*spec.node));
  SYNCLINE_ASSIGN_OR_RETURN(
      Window window,
      WindowOf(*spec.node, spec.input(0).dims, spec.output(0).dims, kernel));
  AddChannelAxis(spec, &window);
  return std::make_unique<AveragePoolOp>(spec, std::move(window));
}

}  // namespace syncline::worker

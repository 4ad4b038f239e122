#include "worker/ops/tensor/views.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/elementwise/loop.h"

namespace syncline::worker {
namespace {

class ViewOp : public Op {
 public:
  explicit ViewOp(const OpSpec& spec)
      : Op({.in_place_input = 0, .is_view = true, .gradient_in_place = true}),
        count_(spec.input(0).count()),
        bytes_(count_ * DTypeBytes(spec.input(0).dtype)) {}

  absl::Status Forward(const Tensors& t) override {
    if (t.inputs[0] != t.outputs[0]) {
      std::memcpy(t.outputs[0], t.inputs[0], bytes_);
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    const float* const dy = g.out();
    Emit(count_, g.accumulate(0), g.in(0), [=](int64_t i) { return dy[i]; });
    return absl::OkStatus();
  }

 private:
  const int64_t count_;
  const size_t bytes_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeView(const OpSpec& spec) {
  if (spec.input(0).count() != spec.output(0).count()) {
    return absl::InvalidArgumentError(
        absl::StrCat("shape ", DimsToString(spec.input(0).dims),
                     " cannot become ", DimsToString(spec.output(0).dims)));
  }
  return std::make_unique<ViewOp>(spec);
}

absl::StatusOr<std::unique_ptr<Op>> MakeFlatten(const OpSpec& spec) {
  return MakeView(spec);
}

absl::StatusOr<std::unique_ptr<Op>> MakeIdentity(const OpSpec& spec) {
  return MakeView(spec);
}

absl::StatusOr<std::unique_ptr<Op>> MakeReshape(const OpSpec& spec) {
  return MakeView(spec);
}

absl::StatusOr<std::unique_ptr<Op>> MakeSqueeze(const OpSpec& spec) {
  return MakeView(spec);
}

absl::StatusOr<std::unique_ptr<Op>> MakeUnsqueeze(const OpSpec& spec) {
  return MakeView(spec);
}

}  // namespace syncline::worker

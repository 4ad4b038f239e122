#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/elementwise/loop.h"
#include "worker/ops/elementwise/integers.h"
#include "worker/ops/op.h"

namespace syncline::worker {
namespace {

// The bounds are inputs, each of which may be missing. A gradient flows where x
// lies within them, both included; none to the bounds.
class ClipOp : public Op {
 public:
  explicit ClipOp(const OpSpec& spec)
      : Op({.backward_inputs = 0b111,
            .in_place_input = 0,
            .gradient_in_place = true}),
        count_(spec.input(0).count()) {}

  absl::Status Forward(const Tensors& t) override {
    const float* const x = t.in(0);
    const auto [low, high] = BoundsOf(t);
    // If low is above high, the result is high. NaN stays NaN.
    Emit(count_, /*accumulate=*/false, t.out(0),
         [=, low = low, high = high](int64_t i) {
           const float raised = x[i] < low ? low : x[i];
           return raised > high ? high : raised;
         });
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    const float* const x = t.in(0);
    const float* const dy = g.out();
    const auto [low, high] = BoundsOf(t);
    Emit(count_, g.accumulate(0), g.in(0),
         [=, low = low, high = high](int64_t i) {
           return x[i] < low || x[i] > high ? 0.0f : dy[i];
         });
    return absl::OkStatus();
  }

 private:
  struct Bounds {
    float low = -std::numeric_limits<float>::infinity();
    float high = std::numeric_limits<float>::infinity();
  };
  static Bounds BoundsOf(const Tensors& t) {
    Bounds bounds;
    if (t.in(1) != nullptr) bounds.low = *t.in(1);
    if (t.in(2) != nullptr) bounds.high = *t.in(2);
    return bounds;
  }

  const int64_t count_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeClip(const OpSpec& spec) {
  const bool is_integer = IsInteger(spec.input(0).dtype);
  if (!is_integer) SYNCLINE_RETURN_IF_ERROR(spec.RequireFloat32());
  for (size_t i = 1; i < 3; ++i) {
    if (!spec.input(i).present || spec.input(i).count() == 1) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        i == 1 ? "min" : "max", " is ", DimsToString(spec.input(i).dims),
        "; it must be a scalar"));
  }
  if (is_integer) return MakeIntegerClip(spec);
  return std::make_unique<ClipOp>(spec);
}

}  // namespace syncline::worker

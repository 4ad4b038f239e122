// Srivastava et al., JMLR 2014, inverted: what is kept is scaled by
// 1 / (1 - ratio), so that inference is the identity.

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "kernels/elementwise/loop.h"
#include "worker/ops/op.h"
#include "worker/ops/tensor/views.h"

namespace syncline::worker {
namespace {

// The mask as the second output wants it: bool, or float32 before opset 10.
void WriteMask(const TensorType& type, const uint8_t* mask, void* out) {
  if (out == nullptr) return;
  if (type.dtype == DType::kFloat32) {
    Emit(type.count(), /*accumulate=*/false, static_cast<float*>(out),
         [=](int64_t i) { return static_cast<float>(mask[i]); });
  } else {
    std::memcpy(out, mask, type.count());
  }
}

// Two elements share a random number: 32 bits decide each.
void DrawMask(uint64_t seed, double ratio, int64_t count, uint8_t* mask) {
  const uint64_t threshold = static_cast<uint64_t>(std::ldexp(ratio, 32));
  Random random(seed);
  for (int64_t i = 0; i < count; i += 2) {
    const uint64_t bits = random.Next();
    mask[i] = (bits & 0xffffffffu) >= threshold;
    if (i + 1 < count) mask[i + 1] = (bits >> 32) >= threshold;
  }
}

class DropoutOp : public Op {
 public:
  DropoutOp(const OpSpec& spec, float ratio)
      : Op({.workspace_bytes = spec.input(0).count(),
            .in_place_input = 0,
            .gradient_in_place = true}),
        count_(spec.input(0).count()),
        mask_type_(spec.output(1)),
        ratio_(ratio),
        scale_(1.0f / (1.0f - ratio)),
        seed_(static_cast<uint64_t>(spec.node->Int("seed", 0))) {}

  absl::Status Forward(const Tensors& t) override {
    auto* const mask = static_cast<uint8_t*>(t.workspace);
    DrawMask(SeedFor(t.seed, seed_), ratio_, count_, mask);
    Scale(mask, t.in(0), /*accumulate=*/false, t.out(0));
    WriteMask(mask_type_, mask, t.out(1));
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    Scale(static_cast<const uint8_t*>(t.workspace), g.out(), g.accumulate(0),
          g.in(0));
    return absl::OkStatus();
  }

 private:
  // Zero, not x * 0, for what is dropped: x may be infinite.
  void Scale(const uint8_t* mask, const float* x, bool accumulate,
             float* y) const {
    const float scale = scale_;
    Emit(count_, accumulate, y,
         [=](int64_t i) { return mask[i] != 0 ? x[i] * scale : 0.0f; });
  }

  const int64_t count_;
  const TensorType mask_type_;
  const float ratio_;
  const float scale_;
  const uint64_t seed_;
};

// Nothing is dropped, but the mask, all ones, is wanted.
class KeepAllOp : public Op {
 public:
  explicit KeepAllOp(const OpSpec& spec)
      : Op({.in_place_input = 0, .gradient_in_place = true}),
        count_(spec.input(0).count()),
        mask_type_(spec.output(1)),
        ones_(count_, 1) {}

  absl::Status Forward(const Tensors& t) override {
    if (t.out(0) != t.in(0)) {
      std::memcpy(t.out(0), t.in(0), count_ * sizeof(float));
    }
    WriteMask(mask_type_, ones_.data(), t.out(1));
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    const float* const dy = g.out();
    Emit(count_, g.accumulate(0), g.in(0), [=](int64_t i) { return dy[i]; });
    return absl::OkStatus();
  }

 private:
  const int64_t count_;
  const TensorType mask_type_;
  const std::vector<uint8_t> ones_;
};

// Input 1 since opset 12, an attribute before.
absl::StatusOr<float> RatioOf(const OpSpec& spec) {
  float ratio = spec.node->Float("ratio", 0.5f);
  if (spec.input(1).present) {
    if (spec.input(1).constant == nullptr ||
        spec.input(1).dtype != DType::kFloat32) {
      return absl::InvalidArgumentError("ratio must be a float32 constant");
    }
    ratio = *static_cast<const float*>(spec.input(1).constant);
  }
  if (!(ratio >= 0.0f && ratio < 1.0f)) {
    return absl::InvalidArgumentError(
        absl::StrCat("ratio is ", ratio, "; it must be in [0, 1)"));
  }
  return ratio;
}

// ONNX says that Dropout without training_mode never drops; but exporters write
// it so for training too, and here the step knows whether it is training.
// Hence only an explicit false keeps a training step from dropping.
absl::StatusOr<bool> DropsInTraining(const OpSpec& spec) {
  const TensorType& mode = spec.input(2);
  if (!mode.present) return true;
  if (mode.constant == nullptr || mode.dtype != DType::kBool) {
    return absl::InvalidArgumentError("training_mode must be a bool constant");
  }
  return *static_cast<const uint8_t*>(mode.constant) != 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeDropout(const OpSpec& spec) {
  if (spec.input(0).dtype != DType::kFloat32) {
    return absl::InvalidArgumentError("only float32 is computed");
  }
  SYNCLINE_ASSIGN_OR_RETURN(const float ratio, RatioOf(spec));
  SYNCLINE_ASSIGN_OR_RETURN(const bool drops, DropsInTraining(spec));
  if (spec.training && drops && ratio > 0) {
    return std::make_unique<DropoutOp>(spec, ratio);
  }
  if (spec.output(1).present) return std::make_unique<KeepAllOp>(spec);
  return MakeView(spec);
}

}  // namespace syncline::worker

// Srivastava et al., JMLR 2014, inverted: what is kept is scaled by
// 1 / (1 - ratio), so that inference is the identity.

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/device/dropout_kernels.h"
#include "kernels/device/kernel_table.h"
#include "worker/ops/op.h"
#include "worker/ops/tensor/views.h"

namespace syncline::worker {
namespace {

// Writes the mask as the second output wants it: bool, or float32 before opset
// 10.
void WriteMask(const DropoutKernels& kernels, const TensorType& type,
               const uint8_t* mask, const Op::Tensors& t) {
  if (t.out(1) == nullptr) return;
  if (type.dtype == DType::kFloat32) {
    kernels.widen(*t.stream, type.count(), mask, t.out(1));
  } else {
    t.stream->Copy(t.out(1), mask, type.count());
  }
}

// The mask of a sample depends on the job's seed, the node, the clock and the
// sample's place in the step: not on the worker, nor on the parts of its batch.
// That holds where samples are the outermost dimension, also under another
// shape. Else, as after a Transpose, the mask is by place in the tensor, and
// differs from worker to worker.
class DropoutOp : public Op {
 public:
  DropoutOp(const OpSpec& spec, float ratio, const DropoutKernels& kernels)
      : Op({.workspace_bytes = spec.input(0).count(),
            .in_place_input = 0,
            .gradient_in_place = true}),
        count_(spec.input(0).count()),
        per_sample_((count_ + spec.samples - 1) / spec.samples),
        mask_type_(spec.output(1)),
        ratio_(ratio),
        scale_(1.0f / (1.0f - ratio)),
        seed_(static_cast<uint64_t>(spec.node->Int("seed", 0))),
        kernels_(kernels) {}

  absl::Status Forward(const Tensors& t) override {
    auto* const mask = static_cast<uint8_t*>(t.workspace);
    kernels_.draw(*t.stream, count_,
                  {.numbers = t.numbers,
                   .node = t.node,
                   .seed = seed_,
                   .per_sample = per_sample_},
                  ratio_, mask);
    kernels_.apply(*t.stream, count_, scale_, mask, t.in(0),
                   /*accumulate=*/false, t.out(0));
    WriteMask(kernels_, mask_type_, mask, t);
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    kernels_.apply(*t.stream, count_, scale_,
                   static_cast<const uint8_t*>(t.workspace), g.out(),
                   g.accumulate(0), g.in(0));
    return absl::OkStatus();
  }

 private:
  const int64_t count_;
  const int64_t per_sample_;
  const TensorType mask_type_;
  const float ratio_;
  const float scale_;
  const uint64_t seed_;
  const DropoutKernels kernels_;
};

// Nothing is dropped, but the mask, all ones, is wanted.
class KeepAllOp : public Op {
 public:
  KeepAllOp(const OpSpec& spec, DeviceMemory ones,
            const DropoutKernels& kernels)
      : Op({.in_place_input = 0, .gradient_in_place = true}),
        count_(spec.input(0).count()),
        mask_type_(spec.output(1)),
        ones_(std::move(ones)),
        kernels_(kernels) {}

  absl::Status Forward(const Tensors& t) override {
    t.stream->Copy(t.out(0), t.in(0), t.in(0).Bytes(count_));
    WriteMask(kernels_, mask_type_, ones_.as<uint8_t>(), t);
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    kernels_.apply(*t.stream, count_, /*scale=*/1, ones_.as<uint8_t>(), g.out(),
                   g.accumulate(0), g.in(0));
    return absl::OkStatus();
  }

 private:
  const int64_t count_;
  const TensorType mask_type_;
  const DeviceMemory ones_;
  const DropoutKernels kernels_;
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
  if (!spec.Computes(spec.input(0).dtype)) {
    return absl::InvalidArgumentError("only float32 is computed");
  }
  SYNCLINE_ASSIGN_OR_RETURN(const float ratio, RatioOf(spec));
  SYNCLINE_ASSIGN_OR_RETURN(const bool drops, DropsInTraining(spec));
  const bool is_random = spec.training && drops && ratio > 0;
  if (!is_random && !spec.output(1).present) return MakeView(spec);
  const DropoutKernels* const kernels = spec.kernels().dropout;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels));
  SYNCLINE_RETURN_IF_ERROR(
      spec.RequireKernels(kernels->draw, kernels->apply, kernels->widen));
  if (is_random) return std::make_unique<DropoutOp>(spec, ratio, *kernels);
  SYNCLINE_RETURN_IF_ERROR(spec.RequireOneType(0b1));
  const std::vector<uint8_t> ones(spec.input(0).count(), 1);
  SYNCLINE_ASSIGN_OR_RETURN(
      DeviceMemory uploaded,
      Upload(*spec.device, absl::Span<const uint8_t>(ones)));
  return std::make_unique<KeepAllOp>(spec, std::move(uploaded), *kernels);
}

}  // namespace syncline::worker

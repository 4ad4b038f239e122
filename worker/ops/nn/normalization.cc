// Normalisation within a sample: of a row, of groups of channels, of
// neighbouring channels. batch_normalization.cc normalises over the samples of
// a batch.

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/layer_norm_kernels.h"
#include "kernels/device/local_response_kernels.h"
#include "kernels/device/normalization_kernels.h"
#include "worker/ops/axes.h"
#include "worker/ops/op.h"

namespace syncline::worker {
namespace {

Op::Traits LayerNormTraits(const OpSpec& spec, const RowNorm& shape) {
  Op::Traits traits;
  traits.backward_inputs = 0b11;
  traits.workspace_bytes = 2 * shape.rows * sizeof(float);
  traits.backward_scratch_bytes = RowNormScratchBytes(shape.n);
  traits.in_place_input = 0;
  traits.gradient_in_place = true;
  // One value as scale and as something else has one gradient for both, which
  // the single pass over a row would mix up.
  const std::vector<ValueId>& inputs = spec.node->inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (std::count(inputs.begin(), inputs.end(), inputs[i]) > 1) {
      traits.gradient_in_place = false;
    }
  }
  return traits;
}

class LayerNormOp : public Op {
 public:
  LayerNormOp(const OpSpec& spec, const RowNorm& shape,
              const LayerNormKernels& kernels)
      : Op(LayerNormTraits(spec, shape)), shape_(shape), kernels_(kernels) {}

  absl::Status Forward(const Tensors& t) override {
    float* const mean = static_cast<float*>(t.workspace);
    float* const inverse = mean + shape_.rows;
    kernels_.forward(*t.stream, shape_, t.in(0), t.in(1), t.in(2), t.out(0),
                     mean, inverse);
    const size_t bytes = shape_.rows * sizeof(float);
    if (t.out(1) != nullptr) t.stream->Copy(t.out(1), mean, bytes);
    if (t.out(2) != nullptr) t.stream->Copy(t.out(2), inverse, bytes);
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    if (g.out() != nullptr) {
      OutputGradient(t, g);
    } else {
      ClearGradients(t, g);
    }
    if (g.in(0) != nullptr && (g.out(1) != nullptr || g.out(2) != nullptr)) {
      const float* const mean = static_cast<const float*>(t.workspace);
      kernels_.add_moments_gradient(*t.stream, shape_, t.in(0), mean,
                                    mean + shape_.rows, g.out(1), g.out(2),
                                    g.in(0));
    }
    return absl::OkStatus();
  }

 private:
  void OutputGradient(const Tensors& t, const Gradients& g) const {
    // One at a time where two of them are one value, else all at once.
    const bool apart = g.in(0) == g.in(1) || g.in(1) == g.in(2);
    if (!apart) {
      Run(t, g,
          {.dx = g.in(0),
           .dscale = g.in(1),
           .dbias = g.in(2),
           .add_dx = g.accumulate(0),
           .add_dscale = g.accumulate(1),
           .add_dbias = g.accumulate(2)});
      return;
    }
    if (g.in(2) != nullptr) {
      Run(t, g, {.dbias = g.in(2), .add_dbias = g.accumulate(2)});
    }
    if (g.in(1) != nullptr) {
      Run(t, g, {.dscale = g.in(1), .add_dscale = g.accumulate(1)});
    }
    if (g.in(0) != nullptr) {
      Run(t, g, {.dx = g.in(0), .add_dx = g.accumulate(0)});
    }
  }

  void ClearGradients(const Tensors& t, const Gradients& g) const {
    const int64_t counts[] = {shape_.rows * shape_.n, shape_.n, shape_.n};
    for (size_t i = 3; i-- > 0;) {
      if (g.in(i) == nullptr || g.accumulate(i)) continue;
      t.stream->Clear(g.in(i), counts[i] * sizeof(float));
    }
  }

  void Run(const Tensors& t, const Gradients& g,
           LayerNormKernels::Gradients out) const {
    const float* const mean = static_cast<const float*>(t.workspace);
    out.scratch = t.scratch;
    kernels_.backward(*t.stream, shape_, t.in(0), t.in(1), mean,
                      mean + shape_.rows, g.out(), out);
  }

  const RowNorm shape_;
  const LayerNormKernels kernels_;
};

// LayerNormalization and, with `centred` false, RMSNormalization: over all
// dimensions from `axis` (default -1) on. Scale and bias have as many elements
// as these. The optional outputs Mean and InvStdDev are for reading: no
// gradient flows through them.
absl::StatusOr<std::unique_ptr<Op>> MakeLayerNormOp(const OpSpec& spec,
                                                    bool centred) {
  SYNCLINE_RETURN_IF_ERROR(spec.RequireFloat32());
  const Dims& dims = spec.input(0).dims;
  SYNCLINE_ASSIGN_OR_RETURN(
      const int64_t axis, ResolveAxis(spec.node->Int("axis", -1), dims.size()));
  // The gradients of mean and deviation are added to that of the input.
  if (spec.HasNarrowTypes() &&
      (spec.output(1).present || spec.output(2).present)) {
    return absl::UnimplementedError("statistics that are outputs");
  }
  RowNorm shape;
  shape.rows = ElementCount(absl::MakeConstSpan(dims).first(axis));
  shape.n = ElementCount(absl::MakeConstSpan(dims).subspan(axis));
  shape.epsilon = spec.node->Float("epsilon", 1e-5f);
  shape.centred = centred;
  for (size_t i = 1; i < 3; ++i) {
    const TensorType& input = spec.input(i);
    if (!input.present || input.count() == shape.n) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "input ", i, " is ", DimsToString(input.dims), "; it must have the ",
        shape.n, " elements that are normalised together"));
  }
  if (shape.n == 0) {
    return absl::InvalidArgumentError("nothing to normalise over");
  }
  const LayerNormKernels* const kernels = spec.kernels().layer_norm;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels));
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(
      kernels->forward, kernels->backward, kernels->add_moments_gradient));
  return std::make_unique<LayerNormOp>(spec, shape, *kernels);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeLayerNormalization(const OpSpec& spec) {
  return MakeLayerNormOp(spec, /*centred=*/true);
}

absl::StatusOr<std::unique_ptr<Op>> MakeRMSNormalization(const OpSpec& spec) {
  return MakeLayerNormOp(spec, /*centred=*/false);
}

namespace {

class GroupNormOp : public Op {
 public:
  GroupNormOp(const NormalizationShape& shape, float epsilon,
              const NormalizationKernels& kernels)
      : Op(TraitsOf(shape)),
        shape_(shape),
        epsilon_(epsilon),
        kernels_(kernels) {}

  absl::Status Forward(const Tensors& t) override {
    float* const mean = static_cast<float*>(t.workspace);
    float* const inverse = mean + shape_.statistic_count();
    kernels_.moments(*t.stream, shape_, t.in(0), mean, inverse);
    kernels_.inverse_deviation(*t.stream, shape_.statistic_count(), epsilon_,
                               inverse, inverse);
    kernels_.forward(*t.stream, shape_, t.in(0), mean, inverse, t.in(1),
                     t.in(2), t.out(0));
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    const float* const mean = static_cast<const float*>(t.workspace);
    const DeviceNormalizationGradient gradient = {
        .x = t.in(0),
        .dy = g.out(),
        .mean = mean,
        .inverse = mean + shape_.statistic_count(),
        .scale = t.in(1),
        .fixed_statistics = false,
        .dx = g.in(0),
        .accumulate_x = g.accumulate(0),
        .dscale = g.in(1),
        .accumulate_scale = g.accumulate(1),
        .dbias = g.in(2),
        .accumulate_bias = g.accumulate(2),
        .sums = static_cast<double*>(t.scratch)};
    kernels_.sum_gradient(*t.stream, shape_, gradient);
    kernels_.write_gradient(*t.stream, shape_, gradient,
                            static_cast<double>(shape_.elements()));
    return absl::OkStatus();
  }

 private:
  static Traits TraitsOf(const NormalizationShape& shape) {
    Traits traits;
    traits.backward_inputs = 0b11;
    traits.workspace_bytes = 2 * shape.statistic_count() * sizeof(float);
    traits.backward_scratch_bytes = GradientSums(shape) * sizeof(double);
    return traits;
  }

  const NormalizationShape shape_;
  const float epsilon_;
  const NormalizationKernels kernels_;
};

// Normalises input 0 [batch, channels, ...] by the moments of each `groups`-th
// of a sample's channels; inputs 1 and 2 are scale and bias, an element each
// for `channels_per_parameter` neighbouring channels. Errors: InvalidArgument:
// shapes that do not fit.
absl::StatusOr<std::unique_ptr<Op>> MakeGroupNorm(
    const OpSpec& spec, int64_t groups, int64_t channels_per_parameter) {
  SYNCLINE_RETURN_IF_ERROR(spec.RequireFloat32());
  SYNCLINE_RETURN_IF_ERROR(spec.RequireOthersFloat32());
  const Dims& x = spec.input(0).dims;
  if (x.size() < 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("input 0 is ", DimsToString(x),
                     "; it must have at least one spatial dimension"));
  }
  if (groups < 1 || x[1] % groups != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(x[1], " channels cannot be cut into ", groups, " groups"));
  }
  NormalizationShape shape;
  shape.batch = x[0];
  shape.channels = x[1];
  shape.plane = ElementCount({x.data() + 2, x.size() - 2});
  shape.group = x[1] / groups;
  shape.channels_per_parameter = channels_per_parameter;
  for (int i = 1; i <= 2; ++i) {
    if (spec.input(i).dims == Dims{shape.parameter_count()}) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("input ", i, " is ", DimsToString(spec.input(i).dims),
                     "; it must be [", shape.parameter_count(), "]"));
  }
  const NormalizationKernels* const kernels = spec.kernels().normalization;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels));
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(
      kernels->moments, kernels->inverse_deviation, kernels->forward,
      kernels->sum_gradient, kernels->write_gradient));
  return std::make_unique<GroupNormOp>(
      shape, spec.node->Float("epsilon", 1e-5f), *kernels);
}

}  // namespace

// Scale and bias are per group in opset 18, per channel from 21 on.
absl::StatusOr<std::unique_ptr<Op>> MakeGroupNormalization(const OpSpec& spec) {
  const Dims& x = spec.input(0).dims;
  const int64_t groups = spec.node->Int("num_groups", 0);
  const bool by_group = spec.node->since_version < 21 && x.size() > 1 &&
                        groups > 0 && x[1] % groups == 0;
  return MakeGroupNorm(spec, groups, by_group ? x[1] / groups : 1);
}

absl::StatusOr<std::unique_ptr<Op>> MakeInstanceNormalization(
    const OpSpec& spec) {
  const Dims& x = spec.input(0).dims;
  return MakeGroupNorm(spec, x.size() < 2 ? 1 : x[1],
                       /*channels_per_parameter=*/1);
}

namespace {

Op::Traits LocalResponseTraits(int64_t count) {
  Op::Traits traits;
  traits.backward_inputs = 0b1;
  traits.workspace_bytes = count * static_cast<int64_t>(sizeof(float));
  traits.backward_scratch_bytes = count * static_cast<int64_t>(sizeof(float));
  return traits;
}

// The workspace has what each element is divided by a power of.
class LocalResponseOp : public Op {
 public:
  LocalResponseOp(const OpSpec& spec, const LocalResponse& shape,
                  const LocalResponseKernels& kernels)
      : Op(LocalResponseTraits(spec.input(0).count())),
        shape_(shape),
        kernels_(kernels) {}

  absl::Status Forward(const Tensors& t) override {
    kernels_.forward(*t.stream, shape_, t.in(0),
                     static_cast<float*>(t.workspace), t.out(0));
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    kernels_.backward(*t.stream, shape_, t.in(0),
                      static_cast<const float*>(t.workspace), g.out(),
                      g.accumulate(0), static_cast<float*>(t.scratch), g.in(0));
    return absl::OkStatus();
  }

 private:
  const LocalResponse shape_;
  const LocalResponseKernels kernels_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeLRN(const OpSpec& spec) {
  SYNCLINE_RETURN_IF_ERROR(spec.RequireFloat32());
  const Dims& x = spec.input(0).dims;
  LocalResponse shape;
  shape.size = spec.node->Int("size", 0);
  if (x.size() < 2 || shape.size < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("input 0 is ", DimsToString(x), " and size ", shape.size,
                     "; its second dimension must be that of the channels, and "
                     "size at least 1"));
  }
  shape.alpha = spec.node->Float("alpha", 1e-4f);
  shape.beta = spec.node->Float("beta", 0.75f);
  shape.bias = spec.node->Float("bias", 1.0f);
  shape.batch = x[0];
  shape.channels = x[1];
  shape.plane = ElementCount({x.data() + 2, x.size() - 2});
  const LocalResponseKernels* const kernels = spec.kernels().local_response;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels));
  SYNCLINE_RETURN_IF_ERROR(
      spec.RequireKernels(kernels->forward, kernels->backward));
  return std::make_unique<LocalResponseOp>(spec, shape, *kernels);
}

}  // namespace syncline::worker

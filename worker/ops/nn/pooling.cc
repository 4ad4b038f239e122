// AveragePool, MaxPool and their global forms.

#include "kernels/pooling.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/pooling_kernels.h"
#include "worker/ops/nn/window.h"
#include "worker/ops/reduction/reductions.h"

namespace syncline::worker {
namespace {

class AveragePoolOp : public Op {
 public:
  AveragePoolOp(const PoolShape& shape, DeviceMemory weights,
                const PoolingKernels& kernels)
      : Op(Traits()),
        shape_(shape),
        weights_(std::move(weights)),
        kernels_(kernels) {}

  absl::Status Forward(const Tensors& t) override {
    kernels_.average_forward(*t.stream, shape_, weights_.as<float>(), t.in(0),
                             t.out(0));
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    kernels_.average_backward(*t.stream, shape_, weights_.as<float>(), g.out(),
                              g.accumulate(0), g.in(0));
    return absl::OkStatus();
  }

 private:
  const PoolShape shape_;
  const DeviceMemory weights_;
  const PoolingKernels kernels_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeAveragePool(const OpSpec& spec) {
  SYNCLINE_RETURN_IF_ERROR(spec.RequireFloat32());
  SYNCLINE_ASSIGN_OR_RETURN(const Dims kernel, KernelShapeOf(*spec.node));
  SYNCLINE_ASSIGN_OR_RETURN(
      Window window,
      WindowOf(*spec.node, spec.input(0).dims, spec.output(0).dims, kernel));
  AddChannelAxis(spec, &window);
  const PoolingKernels* const kernels = spec.kernels().pooling;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels));
  SYNCLINE_RETURN_IF_ERROR(
      spec.RequireKernels(kernels->average_forward, kernels->average_backward));
  const std::vector<float> weights =
      AverageWeights(window, spec.node->Int("count_include_pad", 0) != 0);
  SYNCLINE_ASSIGN_OR_RETURN(
      DeviceMemory uploaded,
      Upload(*spec.device, absl::Span<const float>(weights)));
  return std::make_unique<AveragePoolOp>(PoolShape{PlanesOf(spec), window},
                                         std::move(uploaded), *kernels);
}

namespace {

class MaxPoolOp : public Op {
 public:
  MaxPoolOp(const OpSpec& spec, const PoolShape& shape,
            const PoolingKernels& kernels)
      : Op(TraitsOf(spec)),
        shape_(shape),
        column_major_(spec.node->Int("storage_order", 0) != 0),
        keeps_indices_(traits().workspace_bytes > 0),
        kernels_(kernels) {}

  absl::Status Forward(const Tensors& t) override {
    auto* const indices =
        keeps_indices_ ? static_cast<int32_t*>(t.workspace) : nullptr;
    kernels_.max_forward(*t.stream, shape_, t.in(0), t.out(0), indices);
    if (t.outputs.size() > 1 && t.outputs[1] != nullptr) {
      kernels_.max_places(*t.stream, shape_, column_major_, indices,
                          static_cast<int64_t*>(t.outputs[1]));
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    kernels_.max_backward(*t.stream, shape_,
                          static_cast<const int32_t*>(t.workspace), g.out(),
                          g.accumulate(0), g.in(0));
    return absl::OkStatus();
  }

 private:
  static Traits TraitsOf(const OpSpec& spec) {
    Traits traits;
    if (spec.WantsGradient(0) || spec.output(1).present) {
      traits.workspace_bytes = spec.output(0).count() * sizeof(int32_t);
    }
    return traits;
  }

  const PoolShape shape_;
  const bool column_major_;  // how output 1 counts
  const bool keeps_indices_;
  const PoolingKernels kernels_;
};

// The largest element of each window of each plane of input 0 [batch, channels,
// spatial...]; output 1, if there is one, says where it was. Errors:
// InvalidArgument: not float32, a plane of more than 2^31 - 1 elements.
absl::StatusOr<std::unique_ptr<Op>> MakeMaxPoolOver(const OpSpec& spec,
                                                    const Window& window) {
  SYNCLINE_RETURN_IF_ERROR(spec.RequireFloat32());
  if (window.in_count() > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a plane of ", window.in_count(), " elements; at most 2^31 - 1"));
  }
  const PoolingKernels* const kernels = spec.kernels().pooling;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels));
  SYNCLINE_RETURN_IF_ERROR(
      spec.RequireKernels(kernels->max_forward, kernels->max_backward));
  if (spec.output(1).present) {
    SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels->max_places));
  }
  return std::make_unique<MaxPoolOp>(spec, PoolShape{PlanesOf(spec), window},
                                     *kernels);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeMaxPool(const OpSpec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(const Dims kernel, KernelShapeOf(*spec.node));
  SYNCLINE_ASSIGN_OR_RETURN(
      Window window,
      WindowOf(*spec.node, spec.input(0).dims, spec.output(0).dims, kernel));
  AddChannelAxis(spec, &window);
  return MakeMaxPoolOver(spec, window);
}

absl::StatusOr<std::unique_ptr<Op>> MakeGlobalAveragePool(const OpSpec& spec) {
  Dims reduced = spec.input(0).dims;
  if (reduced.size() < 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("input 0 is ", DimsToString(reduced),
                     "; it must have at least one spatial dimension"));
  }
  const int64_t block = spec.input(0).channel_block;
  if (block == 1) {
    std::fill(reduced.begin() + 2, reduced.end(), 1);
    return MakeReduceTo(spec, reduced, Reduction::kMean);
  }
  const int64_t blocks = reduced[0] * reduced[1] / block;
  OpSpec planes = spec;
  planes.inputs[0].dims = {blocks, spec.input(0).count() / (blocks * block),
                           block};
  return MakeReduceTo(planes, {blocks, 1, block}, Reduction::kMean);
}

absl::StatusOr<std::unique_ptr<Op>> MakeGlobalMaxPool(const OpSpec& spec) {
  const Dims& x = spec.input(0).dims;
  if (x.size() < 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("input 0 is ", DimsToString(x),
                     "; it must have at least one spatial dimension"));
  }
  const int64_t plane = ElementCount({x.data() + 2, x.size() - 2});
  Window window = {{.in = plane, .kernel = plane}};
  AddChannelAxis(spec, &window);
  return MakeMaxPoolOver(spec, window);
}

}  // namespace syncline::worker

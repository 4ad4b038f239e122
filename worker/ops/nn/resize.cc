// A pass of weighted sums for each axis whose size changes, those that make the
// result smaller first.

#include "common/model/graph/resize.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/resample_kernels.h"
#include "worker/ops/nn/resampling.h"
#include "worker/ops/op.h"
#include "worker/ops/tensor/views.h"

namespace syncline::worker {
namespace {

// One axis, with its tables in memory of the device.
struct Pass {
  ResampleShape shape;
  DeviceMemory places;
  DeviceMemory weights;

  int64_t out_count() const { return shape.outer * shape.out * shape.inner; }
  ResampleTables tables() const {
    return {places.as<int64_t>(), weights.as<float>()};
  }
};

// Elements of the arrays between the passes.
int64_t CountBetween(const std::vector<Pass>& passes) {
  int64_t count = 0;
  for (size_t p = 0; p + 1 < passes.size(); ++p) count += passes[p].out_count();
  return count;
}

Op::Traits TraitsOf(const std::vector<Pass>& passes) {
  const int64_t bytes =
      CountBetween(passes) * static_cast<int64_t>(sizeof(float));
  Op::Traits traits;
  traits.forward_scratch_bytes = bytes;
  traits.backward_scratch_bytes = bytes;
  return traits;
}

class ResizeOp : public Op {
 public:
  // At least one pass.
  ResizeOp(std::vector<Pass> passes, const ResampleKernels& kernels)
      : Op(TraitsOf(passes)), passes_(std::move(passes)), kernels_(kernels) {}

  absl::Status Forward(const Tensors& t) override {
    const float* from = t.in(0);
    float* between = static_cast<float*>(t.scratch);
    for (const Pass& pass : passes_) {
      float* to = between;
      if (&pass == &passes_.back()) to = t.out(0);
      kernels_.forward(*t.stream, pass.shape, pass.tables(), from, to);
      from = to;
      between += pass.out_count();
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    const float* from = g.out();
    float* between = static_cast<float*>(t.scratch) + CountBetween(passes_);
    for (size_t p = passes_.size(); p-- > 0;) {
      const Pass& pass = passes_[p];
      if (p > 0) between -= passes_[p - 1].out_count();
      float* to = between;
      if (p == 0) to = g.in(0);
      kernels_.backward(*t.stream, pass.shape, pass.tables(), from,
                        p == 0 && g.accumulate(0), to);
      from = to;
    }
    return absl::OkStatus();
  }

 private:
  const std::vector<Pass> passes_;
  const ResampleKernels kernels_;
};

absl::StatusOr<ResizeGiven> GivenOf(const OpSpec& spec) {
  ResizeGiven given;
  const bool has_scales = spec.input(2).present && spec.input(2).count() > 0;
  const bool has_sizes = spec.input(3).present && spec.input(3).count() > 0;
  if (has_scales) {
    if (spec.input(2).constant == nullptr) {
      return absl::InvalidArgumentError("scales must be constant");
    }
    const auto* const scales =
        static_cast<const float*>(spec.input(2).constant);
    given.scales.assign(scales, scales + spec.input(2).count());
  }
  if (has_sizes) {
    if (spec.input(3).constant == nullptr) {
      return absl::InvalidArgumentError("sizes must be constant");
    }
    const auto* const sizes =
        static_cast<const int64_t*>(spec.input(3).constant);
    given.sizes.assign(sizes, sizes + spec.input(3).count());
  }
  given.axes = spec.node->Ints("axes");
  given.aspect_ratio = spec.node->String("keep_aspect_ratio_policy", "stretch");
  return given;
}

// Axis `axis` of `dims`.
absl::StatusOr<Pass> PassOver(const OpSpec& spec, const Interpolation& how,
                              const Dims& dims, const ResizedAxis& axis) {
  const absl::Span<const int64_t> all(dims);
  const Resampling r =
      MakeResampling(how, dims[axis.axis], axis.size, axis.scale);
  Pass pass;
  pass.shape = {.outer = ElementCount(all.first(axis.axis)),
                .in = r.in,
                .out = r.out,
                .inner = ElementCount(all.subspan(axis.axis + 1)),
                .taps = r.taps};
  SYNCLINE_ASSIGN_OR_RETURN(
      pass.places, Upload(*spec.device, absl::Span<const int64_t>(r.places)));
  SYNCLINE_ASSIGN_OR_RETURN(
      pass.weights, Upload(*spec.device, absl::Span<const float>(r.weights)));
  return pass;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeResize(const OpSpec& spec) {
  if (spec.input(0).dtype != DType::kFloat32) {
    return absl::InvalidArgumentError(
        absl::StrCat("input 0 is ", DTypeName(spec.input(0).dtype),
                     "; only float32 is computed"));
  }
  SYNCLINE_ASSIGN_OR_RETURN(const Interpolation how,
                            InterpolationOf(*spec.node));
  SYNCLINE_ASSIGN_OR_RETURN(const ResizeGiven given, GivenOf(spec));
  Dims dims = spec.input(0).dims;
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<ResizedAxis> axes,
                            ResizedAxes(given, dims));
  std::vector<ResizedAxis> changed;
  for (const ResizedAxis& axis : axes) {
    if (axis.size != dims[axis.axis] || axis.scale != 1) {
      changed.push_back(axis);
    }
  }
  std::stable_sort(changed.begin(), changed.end(),
                   [](const ResizedAxis& a, const ResizedAxis& b) {
                     return a.scale < b.scale;
                   });
  std::vector<Pass> passes;
  for (const ResizedAxis& axis : changed) {
    SYNCLINE_ASSIGN_OR_RETURN(Pass pass, PassOver(spec, how, dims, axis));
    dims[axis.axis] = axis.size;
    passes.push_back(std::move(pass));
  }
  if (dims != spec.output(0).dims) {
    return absl::InvalidArgumentError(
        absl::StrCat("the result is ", DimsToString(dims), ", not ",
                     DimsToString(spec.output(0).dims)));
  }
  if (passes.empty()) return MakeView(spec);
  const ResampleKernels* const kernels = spec.kernels().resample;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels));
  SYNCLINE_RETURN_IF_ERROR(
      spec.RequireKernels(kernels->forward, kernels->backward));
  return std::make_unique<ResizeOp>(std::move(passes), *kernels);
}

}  // namespace syncline::worker

// A pass of weighted sums for each axis whose size changes, those that make the
// result smaller first.

#include "common/model/graph/resize.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/elementwise/loop.h"
#include "kernels/resample.h"
#include "kernels/threads.h"
#include "worker/ops/nn/resampling.h"
#include "worker/ops/op.h"

namespace syncline::worker {
namespace {

// One axis: from [outer, in, inner] to [outer, out, inner].
struct Pass {
  Resampling weights;
  int64_t outer = 1;
  int64_t inner = 1;
  int64_t out_count() const { return outer * weights.out * inner; }
};

// Bytes of the arrays between the passes.
int64_t ScratchBytes(const std::vector<Pass>& passes) {
  int64_t count = 0;
  for (size_t p = 0; p + 1 < passes.size(); ++p) count += passes[p].out_count();
  return count * static_cast<int64_t>(sizeof(float));
}

Op::Traits TraitsOf(const std::vector<Pass>& passes) {
  Op::Traits traits;
  traits.forward_scratch_bytes = ScratchBytes(passes);
  traits.backward_scratch_bytes = ScratchBytes(passes);
  return traits;
}

class ResizeOp : public Op {
 public:
  ResizeOp(const OpSpec& spec, std::vector<Pass> passes)
      : Op(TraitsOf(passes)),
        passes_(std::move(passes)),
        count_(spec.output(0).count()) {}

  absl::Status Forward(const Tensors& t) override {
    if (passes_.empty()) std::copy_n(t.in(0), count_, t.out(0));
    const float* from = t.in(0);
    float* between = static_cast<float*>(t.scratch);
    for (const Pass& pass : passes_) {
      float* const to = &pass == &passes_.back() ? t.out(0) : between;
      ForLines(pass, [&](int64_t lines, int64_t line) {
        Resample(pass.weights, lines, pass.inner,
                 from + line * pass.weights.in * pass.inner,
                 to + line * pass.weights.out * pass.inner);
      });
      from = to;
      between += pass.out_count();
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    if (passes_.empty()) {
      Emit(count_, g.accumulate(0), g.in(0),
           [dy = g.out()](int64_t i) { return dy[i]; });
    }
    const float* from = g.out();
    float* between =
        static_cast<float*>(t.scratch) +
        ScratchBytes(passes_) / static_cast<int64_t>(sizeof(float));
    for (size_t p = passes_.size(); p-- > 0;) {
      const Pass& pass = passes_[p];
      if (p > 0) between -= passes_[p - 1].out_count();
      float* const to = p == 0 ? g.in(0) : between;
      ForLines(pass, [&](int64_t lines, int64_t line) {
        ResampleGradient(pass.weights, lines, pass.inner,
                         from + line * pass.weights.out * pass.inner,
                         p == 0 && g.accumulate(0),
                         to + line * pass.weights.in * pass.inner);
      });
      from = to;
    }
    return absl::OkStatus();
  }

 private:
  // Calls run(lines, first line) for what each thread has.
  template <typename Run>
  static void ForLines(const Pass& pass, Run run) {
    const int64_t line =
        std::max(pass.weights.in, pass.weights.out) * pass.inner;
    ParallelForRows(pass.outer, line, [&](int64_t begin, int64_t end) {
      run(end - begin, begin);
    });
  }

  const std::vector<Pass> passes_;
  const int64_t count_;
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
    const absl::Span<const int64_t> all(dims);
    Pass pass;
    pass.outer = ElementCount(all.first(axis.axis));
    pass.inner = ElementCount(all.subspan(axis.axis + 1));
    pass.weights = MakeResampling(how, dims[axis.axis], axis.size, axis.scale);
    dims[axis.axis] = axis.size;
    passes.push_back(std::move(pass));
  }
  if (dims != spec.output(0).dims) {
    return absl::InvalidArgumentError(
        absl::StrCat("the result is ", DimsToString(dims), ", not ",
                     DimsToString(spec.output(0).dims)));
  }
  return std::make_unique<ResizeOp>(spec, std::move(passes));
}

}  // namespace syncline::worker

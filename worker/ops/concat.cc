#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/elementwise/loop.h"
#include "worker/ops/axes.h"

namespace syncline::worker {
namespace {

class ConcatOp : public Op {
 public:
  // `widths` are elements per outer index, by input.
  ConcatOp(int64_t outer, size_t element_bytes, std::vector<int64_t> widths)
      : Op(Traits()),
        outer_(outer),
        element_bytes_(element_bytes),
        widths_(std::move(widths)) {
    for (const int64_t width : widths_) row_ += width;
  }

  absl::Status Forward(const Tensors& t) override {
    char* const y = static_cast<char*>(t.outputs[0]);
    int64_t begin = 0;
    for (size_t i = 0; i < widths_.size(); ++i) {
      const char* const x = static_cast<const char*>(t.inputs[i]);
      const size_t bytes = widths_[i] * element_bytes_;
      for (int64_t o = 0; o < outer_ && bytes > 0; ++o) {
        std::memcpy(y + (o * row_ + begin) * element_bytes_, x + o * bytes,
                    bytes);
      }
      begin += widths_[i];
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors&, const Gradients& g) override {
    int64_t begin = row_;
    for (size_t i = widths_.size(); i-- > 0;) {
      begin -= widths_[i];
      if (g.in(i) == nullptr) continue;
      for (int64_t o = 0; o < outer_; ++o) {
        const float* const dy = g.out() + o * row_ + begin;
        Emit(widths_[i], g.accumulate(i), g.in(i) + o * widths_[i],
             [&](int64_t k) { return dy[k]; });
      }
    }
    return absl::OkStatus();
  }

 private:
  const int64_t outer_;
  const size_t element_bytes_;
  const std::vector<int64_t> widths_;
  int64_t row_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeConcat(const OpSpec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(
      const int64_t axis,
      ResolveAxis(spec.node->Int("axis", 0), spec.output(0).dims.size()));
  const AroundAxis whole = SplitAt(spec.output(0).dims, axis);
  std::vector<int64_t> widths;
  int64_t joined = 0;
  for (const TensorType& input : spec.inputs) {
    if (input.dtype != spec.output(0).dtype ||
        input.dims.size() != spec.output(0).dims.size() ||
        SplitAt(input.dims, axis).outer != whole.outer ||
        SplitAt(input.dims, axis).inner != whole.inner) {
      return absl::InvalidArgumentError(
          absl::StrCat(DTypeName(input.dtype), DimsToString(input.dims),
                       " cannot be a part of ", DTypeName(spec.output(0).dtype),
                       DimsToString(spec.output(0).dims)));
    }
    widths.push_back(input.dims[axis] * whole.inner);
    joined += input.dims[axis];
  }
  if (joined != whole.n) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the inputs' dimensions add up to ", joined, ", not ", whole.n));
  }
  return std::make_unique<ConcatOp>(
      whole.outer, DTypeBytes(spec.output(0).dtype), std::move(widths));
}

}  // namespace syncline::worker

#include <type_traits>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/ops/axes.h"
#include "worker/ops/tensor/strided_copy.h"

namespace syncline::worker {
namespace {

struct CumSumShape {
  AroundAxis axis;
  bool exclusive = false;  // an element is not part of its own sum
  bool reverse = false;    // from the end
};

// y along the axis, in order of the sums; += with `accumulate`. y may be x.
// float32 is added up in fp64.
template <typename T>
void SumAlong(const CumSumShape& s, bool reverse, const T* x, bool accumulate,
              T* y) {
  const int64_t n = s.axis.n;
  const int64_t inner = s.axis.inner;
  for (int64_t o = 0; o < s.axis.outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) {
      std::conditional_t<std::is_same_v<T, float>, double, T> sum = 0;
      for (int64_t k = 0; k < n; ++k) {
        const int64_t at = (o * n + (reverse ? n - 1 - k : k)) * inner + i;
        const T value = x[at];
        const T result = static_cast<T>(s.exclusive ? sum : sum + value);
        sum += value;
        y[at] = accumulate ? y[at] + result : result;
      }
    }
  }
}

class CumSumOp : public Op {
 public:
  CumSumOp(const CumSumShape& shape, DType dtype)
      : Op({.in_place_input = 0, .gradient_in_place = true}),
        shape_(shape),
        dtype_(dtype) {}

  absl::Status Forward(const Tensors& t) override {
    switch (dtype_) {
      case DType::kFloat64:
        Run<double>(t);
        break;
      case DType::kInt32:
        Run<uint32_t>(t);  // wraps around
        break;
      case DType::kInt64:
        Run<uint64_t>(t);
        break;
      default:
        Run<float>(t);
    }
    return absl::OkStatus();
  }

  // Each element is part of the sums after it: the same, the other way.
  absl::Status Backward(const Tensors&, const Gradients& g) override {
    SumAlong(shape_, !shape_.reverse, g.out(), g.accumulate(0), g.in(0));
    return absl::OkStatus();
  }

 private:
  template <typename T>
  void Run(const Tensors& t) const {
    SumAlong(shape_, shape_.reverse, static_cast<const T*>(t.inputs[0]),
             /*accumulate=*/false, static_cast<T*>(t.outputs[0]));
  }

  const CumSumShape shape_;
  const DType dtype_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeCumSum(const OpSpec& spec) {
  const DType dtype = spec.input(0).dtype;
  if (dtype == DType::kBool || dtype == DType::kUint8) {
    return absl::InvalidArgumentError(
        absl::StrCat("input 0 is ", DTypeName(dtype), ", which is not summed"));
  }
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<int64_t> axes,
                            ConstantInts(spec.input(1), "axis"));
  if (axes.size() != 1) {
    return absl::InvalidArgumentError("axis must be one number");
  }
  SYNCLINE_ASSIGN_OR_RETURN(const int64_t axis,
                            ResolveAxis(axes[0], spec.input(0).dims.size()));
  CumSumShape shape;
  shape.axis = SplitAt(spec.input(0).dims, axis);
  shape.exclusive = spec.node->Int("exclusive", 0) != 0;
  shape.reverse = spec.node->Int("reverse", 0) != 0;
  return std::make_unique<CumSumOp>(shape, dtype);
}

}  // namespace syncline::worker

#include "absl/strings/str_cat.h"
#include "worker/ops/without_gradient.h"

namespace syncline::worker {
namespace {

template <typename T>
std::unique_ptr<Op> MakeRangeOf(int64_t count) {
  return MakeOpWithoutGradient([count](const Op::Tensors& t) {
    const T start = *static_cast<const T*>(t.inputs[0]);
    const T delta = *static_cast<const T*>(t.inputs[2]);
    T* const y = static_cast<T*>(t.outputs[0]);
    for (int64_t i = 0; i < count; ++i) {
      y[i] = static_cast<T>(start + static_cast<T>(i) * delta);
    }
    return absl::OkStatus();
  });
}

}  // namespace

// How many there are, the shapes have said: `limit` is known before training.
absl::StatusOr<std::unique_ptr<Op>> MakeRange(const OpSpec& spec) {
  for (size_t i = 0; i < 3; ++i) {
    if (spec.input(i).count() == 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("input ", i, " is ", DimsToString(spec.input(i).dims),
                     "; it must be one number"));
  }
  const int64_t count = spec.output(0).count();
  switch (spec.output(0).dtype) {
    case DType::kFloat32:
      return MakeRangeOf<float>(count);
    case DType::kInt64:
      return MakeRangeOf<int64_t>(count);
    case DType::kInt32:
      return MakeRangeOf<int32_t>(count);
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "numbers of ", DTypeName(spec.output(0).dtype), " are not counted"));
  }
}

}  // namespace syncline::worker

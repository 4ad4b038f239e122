// IsInf and IsNaN, of float32 and float64.

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "worker/ops/without_gradient.h"

namespace syncline::worker {
namespace {

template <typename T>
std::unique_ptr<Op> MakeIsInfOf(const OpSpec& spec) {
  return MakeOpWithoutGradient(
      [positive = spec.node->Int("detect_positive", 1) != 0,
       negative = spec.node->Int("detect_negative", 1) != 0,
       count = spec.input(0).count()](const Op::Tensors& t) {
        constexpr T kInfinity = std::numeric_limits<T>::infinity();
        const T* const x = static_cast<const T*>(t.inputs[0]);
        auto* const y = static_cast<uint8_t*>(t.outputs[0]);
        for (int64_t i = 0; i < count; ++i) {
          y[i] = (positive && x[i] == kInfinity) ||
                 (negative && x[i] == -kInfinity);
        }
        return absl::OkStatus();
      });
}

template <typename T>
std::unique_ptr<Op> MakeIsNanOf(int64_t count) {
  return MakeOpWithoutGradient([count](const Op::Tensors& t) {
    const T* const x = static_cast<const T*>(t.inputs[0]);
    auto* const y = static_cast<uint8_t*>(t.outputs[0]);
    for (int64_t i = 0; i < count; ++i) y[i] = std::isnan(x[i]);
    return absl::OkStatus();
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeIsInf(const OpSpec& spec) {
  switch (spec.input(0).dtype) {
    case DType::kFloat32:
      return MakeIsInfOf<float>(spec);
    case DType::kFloat64:
      return MakeIsInfOf<double>(spec);
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "input 0 is ", DTypeName(spec.input(0).dtype), "; it must be float"));
  }
}

absl::StatusOr<std::unique_ptr<Op>> MakeIsNaN(const OpSpec& spec) {
  const int64_t count = spec.input(0).count();
  switch (spec.input(0).dtype) {
    case DType::kFloat32:
      return MakeIsNanOf<float>(count);
    case DType::kFloat64:
      return MakeIsNanOf<double>(count);
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "input 0 is ", DTypeName(spec.input(0).dtype), "; it must be float"));
  }
}

}  // namespace syncline::worker

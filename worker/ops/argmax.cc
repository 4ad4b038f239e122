#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/ops/axes.h"
#include "worker/ops/without_gradient.h"

namespace syncline::worker {
namespace {

template <typename T>
std::unique_ptr<Op> MakeArgMaxOf(const AroundAxis& axis, bool last) {
  return MakeOpWithoutGradient([=](const Op::Tensors& t) {
    const T* const x = static_cast<const T*>(t.inputs[0]);
    auto* y = static_cast<int64_t*>(t.outputs[0]);
    for (int64_t o = 0; o < axis.outer; ++o) {
      for (int64_t i = 0; i < axis.inner; ++i) {
        const T* const line = x + o * axis.n * axis.inner + i;
        int64_t best = 0;
        for (int64_t k = 1; k < axis.n; ++k) {
          const T value = line[k * axis.inner];
          const T most = line[best * axis.inner];
          if (value > most || (last && value == most)) best = k;
        }
        *y++ = best;
      }
    }
    return absl::OkStatus();
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeArgMax(const OpSpec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(
      const int64_t at,
      ResolveAxis(spec.node->Int("axis", 0), spec.input(0).dims.size()));
  const AroundAxis axis = SplitAt(spec.input(0).dims, at);
  if (axis.n == 0) {
    return absl::InvalidArgumentError("an empty dimension has no largest");
  }
  const bool last = spec.node->Int("select_last_index", 0) != 0;
  switch (spec.input(0).dtype) {
    case DType::kFloat32:
      return MakeArgMaxOf<float>(axis, last);
    case DType::kFloat64:
      return MakeArgMaxOf<double>(axis, last);
    case DType::kInt32:
      return MakeArgMaxOf<int32_t>(axis, last);
    case DType::kInt64:
      return MakeArgMaxOf<int64_t>(axis, last);
    default:
      return MakeArgMaxOf<uint8_t>(axis, last);
  }
}

}  // namespace syncline::worker

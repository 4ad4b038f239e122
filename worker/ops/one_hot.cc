#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/ops/axes.h"
#include "worker/ops/without_gradient.h"

namespace syncline::worker {
namespace {

struct OneHotShape {
  AroundAxis axis;  // of the output; n is the depth
  size_t element_bytes = 4;
};

// Indices out of range are all off.
template <typename Index>
std::unique_ptr<Op> MakeOneHotOf(const OneHotShape& s) {
  return MakeOpWithoutGradient([=](const Op::Tensors& t) {
    const Index* indices = static_cast<const Index*>(t.inputs[0]);
    const char* const off = static_cast<const char*>(t.inputs[2]);
    const char* const on = off + s.element_bytes;
    char* const y = static_cast<char*>(t.outputs[0]);
    const double depth = static_cast<double>(s.axis.n);
    for (int64_t o = 0; o < s.axis.outer; ++o) {
      for (int64_t i = 0; i < s.axis.inner; ++i, ++indices) {
        double index = static_cast<double>(*indices);
        if (index < 0) index += depth;
        for (int64_t k = 0; k < s.axis.n; ++k) {
          const int64_t at = (o * s.axis.n + k) * s.axis.inner + i;
          const bool hit = index == static_cast<double>(k);
          std::memcpy(y + at * s.element_bytes, hit ? on : off,
                      s.element_bytes);
        }
      }
    }
    return absl::OkStatus();
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeOneHot(const OpSpec& spec) {
  if (spec.input(2).count() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("values are ", DimsToString(spec.input(2).dims),
                     "; they must be two, off and on"));
  }
  const Dims& out = spec.output(0).dims;
  SYNCLINE_ASSIGN_OR_RETURN(
      const int64_t at, ResolveAxis(spec.node->Int("axis", -1), out.size()));
  OneHotShape shape;
  shape.axis = SplitAt(out, at);
  shape.element_bytes = DTypeBytes(spec.input(2).dtype);
  switch (spec.input(0).dtype) {
    case DType::kInt64:
      return MakeOneHotOf<int64_t>(shape);
    case DType::kInt32:
      return MakeOneHotOf<int32_t>(shape);
    case DType::kFloat32:
      return MakeOneHotOf<float>(shape);
    case DType::kFloat64:
      return MakeOneHotOf<double>(shape);
    default:
      return MakeOneHotOf<uint8_t>(shape);
  }
}

}  // namespace syncline::worker

#include "worker/ops/axes.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace syncline::worker {
namespace {

absl::StatusOr<std::vector<int64_t>> AxesAsGiven(const OpSpec& spec) {
  const TensorType& input = spec.input(1);
  if (!input.present) return spec.node->Ints("axes");
  if (input.constant == nullptr || input.dtype != DType::kInt64) {
    return absl::InvalidArgumentError("axes must be constant, of type int64");
  }
  const auto* const axes = static_cast<const int64_t*>(input.constant);
  return std::vector<int64_t>(axes, axes + input.count());
}

}  // namespace

absl::StatusOr<int64_t> ResolveAxis(int64_t axis, size_t rank) {
  const int64_t count = static_cast<int64_t>(rank);
  if (axis < -count || axis >= count) {
    return absl::InvalidArgumentError(absl::StrCat(
        "axis ", axis, " is outside the input's ", rank, " dimensions"));
  }
  return axis < 0 ? axis + count : axis;
}

absl::StatusOr<std::vector<int64_t>> AxesOf(const OpSpec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(std::vector<int64_t> axes, AxesAsGiven(spec));
  for (int64_t& axis : axes) {
    SYNCLINE_ASSIGN_OR_RETURN(axis,
                              ResolveAxis(axis, spec.input(0).dims.size()));
  }
  return axes;
}

AroundAxis SplitAt(const Dims& dims, int64_t axis) {
  const absl::Span<const int64_t> all(dims);
  return {.outer = ElementCount(all.first(axis)),
          .n = dims[axis],
          .inner = ElementCount(all.subspan(axis + 1))};
}

}  // namespace syncline::worker

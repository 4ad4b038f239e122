#include "worker/ops/reduction_shape.h"

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/elementwise/broadcast.h"
#include "worker/ops/axes.h"

namespace syncline::worker {
namespace {

absl::Status RequireFloatData(const OpSpec& spec) {
  const TensorType& input = spec.input(0);
  if (spec.Computes(input.dtype)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "input 0 is ", DTypeName(input.dtype), "; only float32 is computed"));
}

absl::StatusOr<Broadcast> ShapeTo(const OpSpec& spec, const Dims& reduced) {
  const TensorType& input = spec.input(0);
  if (ElementCount(reduced) != spec.output(0).count()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "reducing ", DimsToString(input.dims), " to ", DimsToString(reduced),
        " does not give ", DimsToString(spec.output(0).dims)));
  }
  return MakeBroadcast(input.dims, reduced);
}

}  // namespace

absl::StatusOr<Dims> ReducedDims(const OpSpec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, AxesOf(spec));
  Dims dims = spec.input(0).dims;
  if (!axes.empty()) {
    for (const int64_t axis : axes) dims[axis] = 1;
  } else if (spec.node->Int("noop_with_empty_axes", 0) == 0) {
    dims.assign(dims.size(), 1);
  }
  return dims;
}

absl::StatusOr<Broadcast> ReductionShapeOfAny(const OpSpec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(const Dims reduced, ReducedDims(spec));
  return ShapeTo(spec, reduced);
}

absl::StatusOr<Broadcast> ReductionShape(const OpSpec& spec) {
  SYNCLINE_RETURN_IF_ERROR(RequireFloatData(spec));
  return ReductionShapeOfAny(spec);
}

absl::StatusOr<Broadcast> ReductionShapeTo(const OpSpec& spec,
                                           const Dims& reduced) {
  SYNCLINE_RETURN_IF_ERROR(RequireFloatData(spec));
  return ShapeTo(spec, reduced);
}

}  // namespace syncline::worker

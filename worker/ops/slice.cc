#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/ops/axes.h"
#include "worker/ops/strided_copy.h"

namespace syncline::worker {
namespace {

// Start of a slice along a dimension of n, and how far it goes, as numpy has
// them: clamped, from the end where negative.
struct Range {
  int64_t begin = 0;
  int64_t count = 0;
};

Range ClampRange(int64_t start, int64_t end, int64_t step, int64_t n) {
  if (start < 0) start += n;
  if (end < 0) end += n;
  if (step > 0) {
    start = std::clamp<int64_t>(start, 0, n);
    end = std::clamp<int64_t>(end, 0, n);
    return {start, std::max<int64_t>(0, (end - start + step - 1) / step)};
  }
  start = std::clamp<int64_t>(start, -1, n - 1);
  end = std::clamp<int64_t>(end, -1, n - 1);
  // start - end is below 2^46; -step may be anything.
  return {start, start <= end ? 0 : (start - end - 1) / -step + 1};
}

struct SliceSettings {
  std::vector<int64_t> starts, ends, axes, steps;  // one of each per axis
};

absl::StatusOr<SliceSettings> SettingsOf(const OpSpec& spec) {
  SliceSettings s;
  SYNCLINE_ASSIGN_OR_RETURN(s.starts, ConstantInts(spec.input(1), "starts"));
  SYNCLINE_ASSIGN_OR_RETURN(s.ends, ConstantInts(spec.input(2), "ends"));
  if (spec.input(3).present) {
    SYNCLINE_ASSIGN_OR_RETURN(s.axes, ConstantInts(spec.input(3), "axes"));
  } else {
    for (size_t d = 0; d < s.starts.size(); ++d) {
      s.axes.push_back(static_cast<int64_t>(d));
    }
  }
  s.steps.assign(s.starts.size(), 1);
  if (spec.input(4).present) {
    SYNCLINE_ASSIGN_OR_RETURN(s.steps, ConstantInts(spec.input(4), "steps"));
  }
  const size_t n = s.starts.size();
  if (s.ends.size() != n || s.axes.size() != n || s.steps.size() != n) {
    return absl::InvalidArgumentError(
        "starts, ends, axes and steps must be of one length");
  }
  for (const int64_t step : s.steps) {
    if (step == 0 || step == INT64_MIN) {
      return absl::InvalidArgumentError(
          absl::StrCat("a step of ", step, " goes nowhere"));
    }
  }
  return s;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeSlice(const OpSpec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(const SliceSettings s, SettingsOf(spec));
  Dims dims = spec.input(0).dims;
  Dims strides = DenseStrides(dims);
  int64_t begin = 0;
  for (size_t i = 0; i < s.axes.size(); ++i) {
    SYNCLINE_ASSIGN_OR_RETURN(const int64_t axis,
                              ResolveAxis(s.axes[i], dims.size()));
    const Range range =
        ClampRange(s.starts[i], s.ends[i], s.steps[i], dims[axis]);
    dims[axis] = range.count;
    begin += range.count == 0 ? 0 : range.begin * strides[axis];
    // The step of a slice of one element may be too large to multiply.
    if (range.count > 1) strides[axis] *= s.steps[i];
  }
  if (dims != spec.output(0).dims) {
    return absl::InvalidArgumentError(
        absl::StrCat("the slice is ", DimsToString(dims), ", but its output ",
                     DimsToString(spec.output(0).dims)));
  }
  return MakeStridedCopy(spec, Strided<1>(dims, {strides}, {begin}));
}

}  // namespace syncline::worker

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/ops/strided_copy.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeTile(const OpSpec& spec) {
  const Dims& in = spec.input(0).dims;
  const Dims& out = spec.output(0).dims;
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<int64_t> repeats,
                            ConstantInts(spec.input(1), "repeats"));
  bool fits = repeats.size() == in.size() && out.size() == in.size();
  for (size_t d = 0; fits && d < in.size(); ++d) {
    fits = repeats[d] >= 0 && in[d] * repeats[d] == out[d];
  }
  if (!fits) {
    return absl::InvalidArgumentError(
        absl::StrCat("repeats must be ", in.size(), " numbers that make ",
                     DimsToString(in), " into ", DimsToString(out)));
  }
  bool is_broadcast = true;
  for (size_t d = 0; d < in.size(); ++d) {
    is_broadcast = is_broadcast && (in[d] == 1 || repeats[d] == 1);
  }
  if (is_broadcast) return MakeRepeatedCopy(spec);
  // Each dimension is two: which tile, and where in it.
  const Dims dense = DenseStrides(in);
  Dims dims, strides;
  for (size_t d = 0; d < in.size(); ++d) {
    dims.insert(dims.end(), {repeats[d], in[d]});
    strides.insert(strides.end(), {0, dense[d]});
  }
  return MakeStridedCopy(spec, Strided<1>(dims, {strides}));
}

}  // namespace syncline::worker

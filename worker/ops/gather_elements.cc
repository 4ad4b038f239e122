#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/strided.h"
#include "worker/ops/axes.h"
#include "worker/ops/indexed.h"

namespace syncline {

absl::StatusOr<std::unique_ptr<Op>> MakeGatherElements(const OpSpec& spec) {
  const Dims& data = spec.input(0).dims;
  const Dims& out = spec.input(1).dims;
  SYNCLINE_ASSIGN_OR_RETURN(
      const int64_t axis, ResolveAxis(spec.node->Int("axis", 0), data.size()));
  bool fits = out.size() == data.size();
  for (size_t d = 0; fits && d < data.size(); ++d) {
    fits = static_cast<int64_t>(d) == axis || out[d] <= data[d];
  }
  if (!fits) {
    return absl::InvalidArgumentError(
        absl::StrCat("indices ", DimsToString(out), " do not lie within ",
                     DimsToString(data)));
  }
  const Dims strides = DenseStrides(data);
  const int64_t n = data[axis];
  return MakeIndexed(
      spec, {.runs = ElementCount(out),
             .begin = [=](const int64_t* indices, int64_t i, int64_t* bad) {
               const int64_t index =
                   indices[i] < 0 ? indices[i] + n : indices[i];
               *bad = i;
               if (index < 0 || index >= n) return int64_t{-1};
               int64_t at = index * strides[axis];
               for (size_t d = out.size(); d-- > 0; i /= out[d]) {
                 if (static_cast<int64_t>(d) != axis) {
                   at += i % out[d] * strides[d];
                 }
               }
               return at;
             }});
}

}  // namespace syncline

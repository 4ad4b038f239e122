#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/ops/reduce.h"

namespace syncline {

absl::StatusOr<std::unique_ptr<Op>> MakeGlobalAveragePool(const OpSpec& spec) {
  Dims reduced = spec.input(0).dims;
  if (reduced.size() < 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("input 0 is ", DimsToString(reduced),
                     "; it must have at least one spatial dimension"));
  }
  std::fill(reduced.begin() + 2, reduced.end(), 1);
  return MakeReduceTo(spec, reduced, Reduction::kMean);
}

}  // namespace syncline

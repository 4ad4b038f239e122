#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/ops/reduce.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeGlobalAveragePool(const OpSpec& spec) {
  Dims reduced = spec.input(0).dims;
  if (reduced.size() < 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("input 0 is ", DimsToString(reduced),
                     "; it must have at least one spatial dimension"));
  }
  const int64_t block = spec.input(0).channel_block;
  if (block == 1) {
    std::fill(reduced.begin() + 2, reduced.end(), 1);
    return MakeReduceTo(spec, reduced, Reduction::kMean);
  }
  const int64_t blocks = reduced[0] * reduced[1] / block;
  OpSpec planes = spec;
  planes.inputs[0].dims = {blocks, spec.input(0).count() / (blocks * block),
                           block};
  return MakeReduceTo(planes, {blocks, 1, block}, Reduction::kMean);
}

}  // namespace syncline::worker

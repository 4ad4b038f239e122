#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/ops/scatter.h"

namespace syncline::worker {

absl::StatusOr<std::unique_ptr<Op>> MakeScatterND(const OpSpec& spec) {
  const Dims& data = spec.input(0).dims;
  const Dims& indices = spec.input(1).dims;
  const Dims& updates = spec.input(2).dims;
  auto shape = PartsByTuple(data, indices, /*batch_dims=*/0);
  if (shape.ok()) {
    Dims wanted(indices.begin(), indices.end() - 1);
    wanted.insert(wanted.end(), data.begin() + indices.back(), data.end());
    if (updates == wanted) return MakeScatter(spec, *std::move(shape));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "data ", DimsToString(data), ", indices ", DimsToString(indices),
      " and updates ", DimsToString(updates), " do not fit"));
}

}  // namespace syncline::worker

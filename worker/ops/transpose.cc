#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/ops/strided_copy.h"

namespace syncline::worker {
namespace {

// By dimension of the result, the input's dimension. Empty: reversed.
absl::StatusOr<Dims> PermutationOf(const OpSpec& spec) {
  const size_t rank = spec.input(0).dims.size();
  Dims permutation = spec.node->Ints("perm");
  if (permutation.empty()) {
    for (size_t d = rank; d-- > 0;) {
      permutation.push_back(static_cast<int64_t>(d));
    }
  }
  std::vector<bool> seen(rank, false);
  bool good = permutation.size() == rank;
  for (const int64_t d : permutation) {
    good = good && d >= 0 && d < static_cast<int64_t>(rank) && !seen[d];
    if (good) seen[d] = true;
  }
  if (good) return permutation;
  return absl::InvalidArgumentError(
      absl::StrCat("perm is no permutation of ", rank, " dimensions"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeTranspose(const OpSpec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(const Dims permutation, PermutationOf(spec));
  const Dims& from = spec.input(0).dims;
  const Dims dense = DenseStrides(from);
  Dims dims, strides;
  for (const int64_t d : permutation) {
    dims.push_back(from[d]);
    strides.push_back(dense[d]);
  }
  return MakeStridedCopy(spec, Strided<1>(dims, {strides}),
                         /*each_once=*/true);
}

}  // namespace syncline::worker

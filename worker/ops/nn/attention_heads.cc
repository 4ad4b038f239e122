#include "worker/ops/nn/attention_heads.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace syncline::worker {

Attention::Layout AttentionHeads::LayoutWith(bool rows_first) const {
  const int64_t sample = heads * rows * width;
  if (rows_first) return {sample, width, heads * width};
  return {sample, rows * width, width};
}

absl::StatusOr<AttentionHeads> AttentionHeadsOf(const Dims& dims, int64_t heads,
                                                bool rows_first) {
  AttentionHeads h;
  if (dims.size() == 4) {
    h = {dims[0], dims[1], dims[2], dims[3], {}};
    if (rows_first) std::swap(h.heads, h.rows);
    h.layout = h.LayoutWith(rows_first);
    return h;
  }
  if (dims.size() != 3 || heads <= 0 || dims[2] % heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(DimsToString(dims),
                     " is not [batch, heads, rows, width], nor [batch, "
                     "rows, heads * width] with ",
                     heads, " heads"));
  }
  h = {dims[0], heads, dims[1], dims[2] / heads, {}};
  h.layout = h.LayoutWith(/*rows_first=*/true);
  return h;
}

}  // namespace syncline::worker

#ifndef SYNCLINE_WORKER_OPS_NN_ATTENTION_HEADS_H_
#define SYNCLINE_WORKER_OPS_NN_ATTENTION_HEADS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/model/graph/tensor.h"
#include "kernels/attention.h"

namespace syncline::worker {

// An array of attention as its heads: [batch, heads, rows, width], or [batch,
// rows, heads * width] with the number of heads as an attribute; or, where
// nodes were fused, [batch, rows, heads, width].
struct AttentionHeads {
  int64_t batch = 0, heads = 0, rows = 0, width = 0;
  Attention::Layout layout;

  // The layout of a dense array of these sizes.
  Attention::Layout LayoutWith(bool rows_first) const;
};

// `heads` is read where there are three dimensions, `rows_first` where there
// are four. Errors: InvalidArgument: other dimensions, or heads that do not
// divide them.
absl::StatusOr<AttentionHeads> AttentionHeadsOf(const Dims& dims, int64_t heads,
                                                bool rows_first);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_NN_ATTENTION_HEADS_H_

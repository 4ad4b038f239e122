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

// Keys or values of the past, [batch, heads, past, width], and the incoming
// ones behind them: [batch, heads, past + rows, width].
class JoinedHeads {
 public:
  JoinedHeads(const AttentionHeads& incoming, int64_t past)
      : incoming_(incoming), past_(past) {}

  int64_t rows() const { return past_ + incoming_.rows; }
  int64_t count() const;  // elements
  Attention::Layout layout() const;

  // `past` may be null if it has no rows.
  void Join(const float* past, const float* incoming, float* joined) const;
  // The gradients of both, from that of what was joined; null: not wanted.
  void AddPastGradient(const float* djoined, bool accumulate,
                       float* dpast) const;
  void AddIncomingGradient(const float* djoined, bool accumulate,
                           float* dincoming) const;

 private:
  int64_t head_count() const { return incoming_.batch * incoming_.heads; }
  int64_t past_count() const { return past_ * incoming_.width; }  // of a head
  // Offsets of row `row` of head `head`, of all samples.
  int64_t IncomingAt(int64_t head, int64_t row) const;
  int64_t JoinedAt(int64_t head, int64_t row) const;

  const AttentionHeads incoming_;
  const int64_t past_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_NN_ATTENTION_HEADS_H_

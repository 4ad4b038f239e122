#ifndef SYNCLINE_COMMON_UPDATE_REDUCTION_ROUND_H_
#define SYNCLINE_COMMON_UPDATE_REDUCTION_ROUND_H_

#include <compare>
#include <cstdint>

namespace syncline {

// A reduction over all shards of a job, which SYNC needs before any shard goes
// on with a clock. A job has none of these stages, one or both, in this order.
enum class ReductionStage {
  kGradient,  // the norm of the mean gradient over all tensors
  kTrust,     // by tensor, the norms of its values and of their update
};

// Number of sums that one block contributes to a stage.
inline int NormsPerBlock(ReductionStage stage) {
  return stage == ReductionStage::kTrust ? 2 : 1;
}

struct ReductionRound {
  int64_t clock = -1;  // -1: none
  ReductionStage stage = ReductionStage::kGradient;

  auto operator<=>(const ReductionRound&) const = default;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_UPDATE_REDUCTION_ROUND_H_

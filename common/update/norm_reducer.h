#ifndef SYNCLINE_COMMON_UPDATE_NORM_REDUCER_H_
#define SYNCLINE_COMMON_UPDATE_NORM_REDUCER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/update/reduction_round.h"

namespace syncline {

// Adds up what all blocks have brought to a stage, in the order of their ids:
// `norms` has NormsPerBlock for each. kGradient: one sum over all; kTrust: two
// for each tensor. `tensors`: of each block; of kTrust's blocks.
std::vector<double> SumNorms(ReductionStage stage,
                             absl::Span<const uint32_t> tensors,
                             absl::Span<const double> norms);

// At a job's ReductionRoot: collects the squared norms of every owner's blocks
// for one round of a sync clock and sums them in block order, which is the
// tensors' order and then that of the tables' slots, so that the result does
// not depend on the owners, be they ps or workers, nor on their number. A pure
// state machine; thread-compatible.
class NormReducer {
 public:
  // A process that has blocks.
  struct Owner {
    uint64_t incarnation = 0;
    std::string name;  // "ps:1 at 10.0.0.6:4000"
    // Global ids, ascending: blocks of tensors, then slots; may be empty.
    std::vector<uint32_t> blocks;
  };
  // How a call ends. Each call ends exactly once.
  struct Answer {
    uint64_t token = 0;
    absl::Status status;
    // kGradient: one, over all blocks and slots. kTrust: two per tensor, in
    // their order.
    std::vector<double> sums;
  };
  using Answers = std::vector<Answer>;

  // `role` is the owners', as messages have it: "ps" or "worker". `owners`: by
  // rank. `tensors`: of each block, by global id; ids behind them are slots,
  // which take part in kGradient alone. `label` names job and root in messages.
  NormReducer(std::string role, std::vector<Owner> owners,
              std::vector<uint32_t> tensors, std::string label);

  // `squared_norms`: NormsPerBlock of them for each of `blocks`.
  // Repeats, also of the last reduced round of each stage, are answered like
  // the first. Errors: InvalidArgument: not that owner's blocks, an owner
  // that has none in the round, or a round that is not the open one;
  // FailedPrecondition: a replaced incarnation.
  void OnNorms(uint64_t token, uint32_t rank, uint64_t incarnation,
               const ReductionRound& round, absl::Span<const uint32_t> blocks,
               absl::Span<const double> squared_norms, absl::Time deadline,
               Answers* out);
  // As ConsistencyController::OnFrozen.
  void OnFrozen(absl::Duration frozen);
  void OnTick(absl::Time now, Answers* out);
  // Ends all parked calls and every later one.
  void Close(const absl::Status& status, Answers* out);

 private:
  struct Parked {
    uint64_t token;
    absl::Time deadline;
  };
  struct Reduced {
    ReductionRound round;
    std::vector<double> sums;
  };
  // The last round of a stage that was reduced. An owner that has no part in
  // the later stage of a clock may still ask for the earlier one's sums.
  const Reduced& Last(ReductionStage stage) const {
    return stage == ReductionStage::kTrust ? last_trust_ : last_gradient_;
  }
  absl::Status Check(uint32_t rank, uint64_t incarnation,
                     const ReductionRound& round,
                     absl::Span<const uint32_t> blocks,
                     absl::Span<const double> squared_norms) const;
  // The blocks whose norms an owner sends.
  absl::Span<const uint32_t> PartOf(const Owner& owner,
                                    ReductionStage stage) const;
  size_t BlockCount(ReductionStage stage) const;
  void Reduce(Answers* out);

  const std::string role_;
  const std::vector<Owner> owners_;      // by rank
  const std::vector<uint32_t> tensors_;  // by block id
  const std::string label_;
  std::vector<double> norms_;   // by block id, of the open round
  std::vector<bool> received_;  // by rank, of the open round
  size_t missing_ = 0;          // owners that take part still to come
  ReductionRound open_;
  ReductionRound reduced_;  // the last one
  Reduced last_gradient_;
  Reduced last_trust_;
  std::vector<Parked> parked_;
  absl::Status closed_;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_UPDATE_NORM_REDUCER_H_

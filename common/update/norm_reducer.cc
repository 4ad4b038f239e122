#include "common/update/norm_reducer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace syncline {
namespace {

std::string RoundText(const ReductionRound& round) {
  return absl::StrCat(
      "clock ", round.clock,
      round.stage == ReductionStage::kTrust ? " by tensor" : "");
}

}  // namespace

std::vector<double> SumNorms(ReductionStage stage,
                             absl::Span<const uint32_t> tensors,
                             absl::Span<const double> norms) {
  const size_t width = NormsPerBlock(stage);
  const bool by_tensor = stage == ReductionStage::kTrust;
  const size_t groups = by_tensor ? tensors.back() + 1 : 1;
  std::vector<double> sums(groups * width, 0);
  for (size_t i = 0; i < norms.size(); ++i) {
    const size_t group = by_tensor ? tensors[i / width] : 0;
    sums[group * width + i % width] += norms[i];
  }
  return sums;
}

NormReducer::NormReducer(std::string role, std::vector<Owner> owners,
                         std::vector<uint32_t> tensors, std::string label)
    : role_(std::move(role)),
      owners_(std::move(owners)),
      tensors_(std::move(tensors)),
      label_(std::move(label)) {}

void NormReducer::OnNorms(uint64_t token, uint32_t rank, uint64_t incarnation,
                          const ReductionRound& round,
                          absl::Span<const uint32_t> blocks,
                          absl::Span<const double> squared_norms,
                          absl::Time deadline, Answers* out) {
  if (absl::Status valid =
          Check(rank, incarnation, round, blocks, squared_norms);
      !valid.ok()) {
    out->push_back({token, std::move(valid), {}});
    return;
  }
  if (const Reduced& last = Last(round.stage); round == last.round) {
    out->push_back({token, absl::OkStatus(), last.sums});
    return;
  }
  const size_t width = NormsPerBlock(round.stage);
  if (open_.clock < 0) {
    open_ = round;
    norms_.assign(BlockCount(round.stage) * width, 0);
    received_.assign(owners_.size(), false);
    missing_ =
        std::count_if(owners_.begin(), owners_.end(), [&](const Owner& owner) {
          return !PartOf(owner, round.stage).empty();
        });
  }
  if (!received_[rank]) {
    received_[rank] = true;
    for (size_t i = 0; i < squared_norms.size(); ++i) {
      norms_[blocks[i / width] * width + i % width] = squared_norms[i];
    }
    --missing_;
  }
  parked_.push_back({token, deadline});
  if (missing_ == 0) Reduce(out);
}

absl::Span<const uint32_t> NormReducer::PartOf(const Owner& owner,
                                               ReductionStage stage) const {
  const absl::Span<const uint32_t> blocks = owner.blocks;
  if (stage == ReductionStage::kGradient) return blocks;
  const auto slots =
      std::lower_bound(blocks.begin(), blocks.end(), tensors_.size());
  return blocks.first(slots - blocks.begin());
}

size_t NormReducer::BlockCount(ReductionStage stage) const {
  size_t count = 0;
  for (const Owner& owner : owners_) count += PartOf(owner, stage).size();
  return count;
}

absl::Status NormReducer::Check(uint32_t rank, uint64_t incarnation,
                                const ReductionRound& round,
                                absl::Span<const uint32_t> blocks,
                                absl::Span<const double> squared_norms) const {
  if (!closed_.ok()) return closed_;
  if (rank >= owners_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(label_, ": norms from ", role_, " rank ", rank,
                     ", the job has ranks 0 to ", owners_.size() - 1));
  }
  const Owner& owner = owners_[rank];
  if (incarnation != owner.incarnation) {
    return absl::FailedPreconditionError(absl::StrCat(
        label_, ": norms from a replaced incarnation of ", owner.name));
  }
  const absl::Span<const uint32_t> own = PartOf(owner, round.stage);
  if (own.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(label_, ": norms of ", RoundText(round), " from ",
                     owner.name, ", which has no part in them"));
  }
  if (blocks != own) {
    return absl::InvalidArgumentError(
        absl::StrCat(label_, ": norms of ", blocks.size(), " blocks from ",
                     owner.name, ", expected its own ", own.size()));
  }
  const size_t expected = blocks.size() * NormsPerBlock(round.stage);
  if (squared_norms.size() != expected) {
    return absl::InvalidArgumentError(absl::StrCat(
        label_, ": ", squared_norms.size(), " norms from ", owner.name,
        ", expected ", expected, " of its ", blocks.size(), " blocks"));
  }
  const bool fits = open_.clock < 0 ? round > reduced_ : round == open_;
  if (round != Last(round.stage).round && !fits) {
    return absl::InvalidArgumentError(absl::StrCat(
        label_, ": norms of ", RoundText(round), " from ", owner.name,
        ", expected ",
        open_.clock < 0 ? absl::StrCat("one after ", RoundText(reduced_))
                        : RoundText(open_)));
  }
  return absl::OkStatus();
}

void NormReducer::Reduce(Answers* out) {
  const bool by_tensor = open_.stage == ReductionStage::kTrust;
  std::vector<double> sums = SumNorms(open_.stage, tensors_, norms_);
  reduced_ = std::exchange(open_, {});
  for (const Parked& call : parked_) {
    out->push_back({call.token, absl::OkStatus(), sums});
  }
  (by_tensor ? last_trust_ : last_gradient_) = {reduced_, std::move(sums)};
  parked_.clear();
}

void NormReducer::OnFrozen(absl::Duration frozen) {
  for (Parked& call : parked_) call.deadline += frozen;
}

void NormReducer::OnTick(absl::Time now, Answers* out) {
  std::vector<std::string> names;
  for (size_t rank = 0; open_.clock >= 0 && rank < owners_.size(); ++rank) {
    if (received_[rank]) continue;
    if (PartOf(owners_[rank], open_.stage).empty()) continue;
    names.push_back(owners_[rank].name);
  }
  const auto overdue = std::stable_partition(
      parked_.begin(), parked_.end(),
      [&](const Parked& call) { return call.deadline > now; });
  for (auto call = overdue; call != parked_.end(); ++call) {
    out->push_back(
        {call->token,
         absl::DeadlineExceededError(absl::StrCat(
             label_, ": the global norm of ", RoundText(open_),
             " ran out of time; missing: ", absl::StrJoin(names, ", "))),
         {}});
  }
  parked_.erase(overdue, parked_.end());
}

void NormReducer::Close(const absl::Status& status, Answers* out) {
  closed_ = status;
  for (const Parked& call : parked_) out->push_back({call.token, status, {}});
  parked_.clear();
}

}  // namespace syncline

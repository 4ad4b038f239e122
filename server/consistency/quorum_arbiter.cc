#include "server/consistency/quorum_arbiter.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace syncline::ps {

QuorumArbiter::QuorumArbiter(Options options)
    : options_(std::move(options)),
      closed_(options_.shards.size(),
              std::vector<bool>(options_.workers.size(), false)) {
  SYNCLINE_CHECK(options_.needed > 0 &&
                 options_.needed <= options_.workers.size());
}

absl::Status QuorumArbiter::Check(uint32_t shard, uint64_t incarnation,
                                  int64_t clock,
                                  absl::Span<const uint32_t> ranks) const {
  if (shard >= options_.shards.size() || !options_.shards[shard].takes_part) {
    return absl::InvalidArgumentError(absl::StrCat(
        options_.label, ": shard ", shard, " has no part in sets of clocks"));
  }
  if (options_.shards[shard].incarnation != incarnation) {
    return absl::FailedPreconditionError(
        absl::StrCat(options_.label, ": shard ", shard, " is at ",
                     options_.shards[shard].name, ", in another process"));
  }
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < options_.workers.size() &&
        (i == 0 || ranks[i] > ranks[i - 1])) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        options_.label, ": closes by ranks ", absl::StrJoin(ranks, ","),
        ", which must ascend below ", options_.workers.size()));
  }
  const bool is_before =
      clock_.has_value() && clock + 1 == *clock_ && !last_set_.empty();
  const bool is_anew = clock_.has_value() && clock > *clock_ && IsIdle();
  if (clock < 0 ||
      (clock_.has_value() && clock != *clock_ && !is_before && !is_anew)) {
    return absl::InvalidArgumentError(absl::StrCat(
        options_.label, ": closes of clock ", clock, " on shard ", shard,
        clock_.has_value() ? absl::StrCat(", the shards are at ", *clock_)
                           : ", must be >= 0"));
  }
  return absl::OkStatus();
}

bool QuorumArbiter::IsIdle() const {
  return waiting_.empty() &&
         std::all_of(closed_.begin(), closed_.end(), [](const auto& of_shard) {
           return std::find(of_shard.begin(), of_shard.end(), true) ==
                  of_shard.end();
         });
}

void QuorumArbiter::OnCloses(uint64_t token, uint32_t shard,
                             uint64_t incarnation, int64_t clock,
                             absl::Span<const uint32_t> ranks,
                             absl::Time deadline, absl::Time now,
                             Answers* answers) {
  absl::Status valid = ended_;
  if (valid.ok()) valid = Check(shard, incarnation, clock, ranks);
  if (!valid.ok()) {
    answers->push_back({.token = token, .status = std::move(valid)});
    return;
  }
  if (!clock_.has_value() || clock > *clock_) {
    clock_ = clock;
    last_set_.clear();
  }
  if (clock < *clock_) {
    answers->push_back(
        {.token = token, .ranks = last_set_, .removed = last_removed_});
    return;
  }
  for (const uint32_t rank : ranks) closed_[shard][rank] = true;
  if (!ranks.empty()) first_close_ = std::min(first_close_, now);
  waiting_.push_back({token, deadline});
  FixIfPossible(now, answers);
}

std::vector<uint32_t> QuorumArbiter::Common() const {
  std::vector<uint32_t> common;
  for (uint32_t rank = 0; rank < options_.workers.size(); ++rank) {
    bool everywhere = true;
    for (size_t shard = 0; shard < closed_.size(); ++shard) {
      everywhere &= closed_[shard][rank] || !options_.shards[shard].takes_part;
    }
    if (everywhere) common.push_back(rank);
  }
  return common;
}

bool QuorumArbiter::IsFixed(const std::vector<uint32_t>& common,
                            absl::Time now) const {
  if (options_.loses_workers) {
    std::vector<uint32_t> there;
    std::set_union(common.begin(), common.end(), removed_.begin(),
                   removed_.end(), std::back_inserter(there));
    return !common.empty() && there.size() == options_.workers.size();
  }
  if (common.size() < options_.needed) return false;
  if (!options_.timeout.has_value()) return true;
  return common.size() == options_.workers.size() ||
         now >= first_close_ + *options_.timeout;
}

absl::Status QuorumArbiter::OnRemoved(uint32_t rank, absl::Time now,
                                      Answers* answers) {
  SYNCLINE_RETURN_IF_ERROR(ended_);
  if (rank == 0 || rank >= options_.workers.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options_.label, ": rank ", rank, " of ",
                     options_.workers.size(), " cannot be taken out"));
  }
  if (!options_.loses_workers) {
    return absl::FailedPreconditionError(absl::StrCat(
        options_.label, ": the job goes on without no worker, also not ",
        options_.workers[rank]));
  }
  const auto at = std::lower_bound(removed_.begin(), removed_.end(), rank);
  if (at != removed_.end() && *at == rank) return absl::OkStatus();
  removed_.insert(at, rank);
  FixIfPossible(now, answers);
  return absl::OkStatus();
}

void QuorumArbiter::FixIfPossible(absl::Time now, Answers* answers) {
  std::vector<uint32_t> common = Common();
  if (!clock_.has_value() || !IsFixed(common, now)) return;
  for (const Waiting& waiting : waiting_) {
    answers->push_back(
        {.token = waiting.token, .ranks = common, .removed = removed_});
  }
  waiting_.clear();
  last_set_ = std::move(common);
  last_removed_ = removed_;
  ++*clock_;
  first_close_ = absl::InfiniteFuture();
  for (std::vector<bool>& of_shard : closed_) {
    of_shard.assign(of_shard.size(), false);
  }
}

void QuorumArbiter::OnFrozen(absl::Duration frozen) {
  first_close_ += frozen;
  for (Waiting& waiting : waiting_) waiting.deadline += frozen;
}

void QuorumArbiter::OnTick(absl::Time now, Answers* answers) {
  FixIfPossible(now, answers);
  std::string why;
  for (auto waiting = waiting_.begin(); waiting != waiting_.end();) {
    if (waiting->deadline > now) {
      ++waiting;
      continue;
    }
    if (why.empty()) why = MissingText();
    answers->push_back(
        {.token = waiting->token, .status = absl::DeadlineExceededError(why)});
    waiting = waiting_.erase(waiting);
  }
}

std::string QuorumArbiter::MissingText() const {
  std::vector<std::string> missing;
  for (uint32_t rank = 0; rank < options_.workers.size(); ++rank) {
    std::vector<std::string> where;
    for (size_t shard = 0; shard < closed_.size(); ++shard) {
      if (!options_.shards[shard].takes_part || closed_[shard][rank]) continue;
      where.push_back(options_.shards[shard].name);
    }
    if (where.empty() ||
        std::binary_search(removed_.begin(), removed_.end(), rank)) {
      continue;
    }
    missing.push_back(absl::StrCat(options_.workers[rank], " (on ",
                                   absl::StrJoin(where, ", "), ")"));
  }
  return absl::StrCat(options_.label, ": ", Common().size(), " of the ",
                      options_.needed - removed_.size(), " workers that clock ",
                      clock_.value_or(0), " needs have closed it on all shards",
                      "; not told of: ", absl::StrJoin(missing, ", "));
}

void QuorumArbiter::Close(const absl::Status& status, Answers* answers) {
  ended_ = status;
  for (const Waiting& waiting : waiting_) {
    answers->push_back({.token = waiting.token, .status = status});
  }
  waiting_.clear();
}

}  // namespace syncline::ps

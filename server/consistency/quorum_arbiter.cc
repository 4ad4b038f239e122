#include "server/consistency/quorum_arbiter.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"

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
  if (clock < 0 || (clock_.has_value() && clock != *clock_ && !is_before)) {
    return absl::InvalidArgumentError(absl::StrCat(
        options_.label, ": closes of clock ", clock, " on shard ", shard,
        clock_.has_value() ? absl::StrCat(", the shards are at ", *clock_)
                           : ", must be >= 0"));
  }
  return absl::OkStatus();
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
  if (!clock_.has_value()) clock_ = clock;
  if (clock < *clock_) {
    answers->push_back({.token = token, .ranks = last_set_});
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

bool QuorumArbiter::IsFixed(size_t common, absl::Time now) const {
  if (common < options_.needed) return false;
  if (!options_.timeout.has_value()) return true;
  return common == options_.workers.size() ||
         now >= first_close_ + *options_.timeout;
}

void QuorumArbiter::FixIfPossible(absl::Time now, Answers* answers) {
  std::vector<uint32_t> common = Common();
  if (!clock_.has_value() || !IsFixed(common.size(), now)) return;
  for (const Waiting& waiting : waiting_) {
    answers->push_back({.token = waiting.token, .ranks = common});
  }
  waiting_.clear();
  last_set_ = std::move(common);
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
    if (where.empty()) continue;
    missing.push_back(absl::StrCat(options_.workers[rank], " (on ",
                                   absl::StrJoin(where, ", "), ")"));
  }
  return absl::StrCat(options_.label, ": ", Common().size(), " of the ",
                      options_.needed, " workers that clock ",
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

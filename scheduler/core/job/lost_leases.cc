#include "scheduler/core/job/lost_leases.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace syncline::scheduler {
namespace {

LostLeases::Settled Settle(const std::map<uint32_t, WorkerTakenOut>& answers) {
  LostLeases::Settled settled;
  std::vector<int64_t> leased;
  int64_t begun_until = 0;
  int64_t whole_until = std::numeric_limits<int64_t>::max();
  for (const auto& [rank, answer] : answers) {
    for (const WorkerTakenOut::Shard& shard : answer.shards()) {
      begun_until = std::max(begun_until, shard.begun_until());
      whole_until = std::min(whole_until, shard.whole_until());
      leased.insert(leased.end(), shard.leased().begin(), shard.leased().end());
    }
  }
  // A worker begins a clock when all shards have the one before it whole.
  if (whole_until < begun_until) settled.torn = begun_until - 1;
  // An earlier scheduler may have told some shards.
  for (const auto& [rank, answer] : answers) {
    for (const WorkerTakenOut::Shard& shard : answer.shards()) {
      if (!shard.settled()) continue;
      settled.returned.assign(shard.returned().begin(), shard.returned().end());
      return settled;
    }
  }
  for (const int64_t clock : leased) {
    if (clock >= begun_until) settled.returned.push_back(clock);
  }
  return settled;
}

}  // namespace

const std::optional<LostLeases::Settled>& LostLeases::OnTakenOut(
    uint32_t ps_rank, const WorkerTakenOut& answer, size_t ps_count) {
  if (settled_.has_value()) return settled_;
  answers_[ps_rank] = answer;
  if (answers_.size() == ps_count) settled_ = Settle(answers_);
  return settled_;
}

std::string DescribeLeases(const LostLeases::Settled& settled,
                           absl::string_view chief) {
  std::string text =
      settled.returned.empty()
          ? "no clock that was leased to it is open"
          : absl::StrCat(settled.returned.size() == 1 ? "clock " : "clocks ",
                         absl::StrJoin(settled.returned, " and "),
                         " of its leases, which no ps had anything of, ",
                         settled.returned.size() == 1 ? "is" : "are",
                         " made by ", chief);
  if (settled.torn.has_value()) {
    absl::StrAppend(&text, "; clock ", *settled.torn,
                    " is torn: what the ps had of it counts, and the rest of "
                    "this batch's gradient is lost");
  }
  return text;
}

}  // namespace syncline::scheduler

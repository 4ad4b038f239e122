#include "server/consistency/wait_reasons.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace syncline::ps {

absl::Status WaitReasons::Overdue(const ShardCall& call, absl::string_view what,
                                  int64_t clock, const std::string& why) const {
  return absl::DeadlineExceededError(absl::StrCat(
      options_.label, ": ", what, " of clock ", clock, " by ",
      options_.caller(call.rank).name, " ran out of time waiting for ", why));
}

absl::Status WaitReasons::OverduePush(const ShardCall& call) const {
  return Overdue(call, "push", call.push->clock, OfPush(call));
}

absl::Status WaitReasons::OverduePull(const ShardCall& call) const {
  return Overdue(call, "pull", call.pull->clock, OfPull(call));
}

std::string WaitReasons::OfPush(const ShardCall& call) const {
  const int64_t clock = call.push->clock;
  const Lost* const lost = FindLost(call.rank);
  if (clock > workers_[call.rank].closed() ||
      (lost != nullptr && !lost->settled)) {
    return absl::StrCat("its own earlier pushes: ", Standing(call.rank));
  }
  if (const CutSchedule::Cut* cut = cuts_.Gate(call.rank, clock);
      cut != nullptr) {
    // The chief lets go of an epoch's end once it has changed the regime there.
    const CutSchedule::Cut* change = cuts_.RegimeCut();
    const bool changes_first =
        change != nullptr && cut->passed && change->passed &&
        cut->use == CutUse::kEvaluation && !IsEvaluators(*cut) &&
        clock >= change->clocks[call.rank];
    return OfCut(changes_first ? *change : *cut);
  }
  if (sync_.IsReducing()) return sync_.ReductionText();
  if (sync_.AwaitsSet()) return OfSet();
  // SYNC's open clock, or the last one of a mode that waits for none.
  const int64_t open = in_sync_ ? sync_.clock() : clock - 1;
  return absl::StrCat("clock ", open,
                      "; missing: ", Missing([&](uint32_t rank) {
                        return workers_[rank].closed() <= open;
                      }));
}

std::string WaitReasons::OfCut(const CutSchedule::Cut& cut) const {
  if (cut.passed) {
    return absl::StrCat("the end of ", cut.Name(), " by ", CutterText(cut));
  }
  return absl::StrCat(cut.Name(), "; missing: ", Missing([&](uint32_t rank) {
                        return workers_[rank].closed() < cut.clocks[rank];
                      }));
}

std::string WaitReasons::OfSet() const {
  const int64_t clock = sync_.clock();
  return absl::StrCat(
      "clock ", clock, ", which ends once ",
      options_.quorum->loses_workers ? "all"
                                     : absl::StrCat(options_.quorum->needed),
      " workers have closed it on all shards: ", sync_.ClosedRanks().size(),
      " have here",
      sync_.set_trouble().empty()
          ? ""
          : absl::StrCat(" (", sync_.set_trouble(), ")"),
      "; missing: ",
      Missing([&](uint32_t rank) { return workers_[rank].closed() <= clock; }));
}

std::string WaitReasons::OfPull(const ShardCall& call) const {
  const PullFacts& pull = *call.pull;
  if (!initial_values_text_.empty()) return initial_values_text_;
  if (sync_.IsReducing()) return sync_.ReductionText();
  if (pull.cut_id != 0) {
    const CutSchedule::Cut& cut = *cuts_.Find(pull.cut_id);
    return absl::StrCat(cut.Name(), "; missing: ", Missing([&](uint32_t rank) {
                          return workers_[rank].closed() < cut.clocks[rank];
                        }));
  }
  if (sync_.AwaitsSet() && pull.clock > sync_.clock()) return OfSet();
  if (const CutSchedule::Cut* cut = cuts_.RegimeCut();
      cut != nullptr && pull.blocks.empty() && options_.is_worker(call.rank) &&
      pull.clock >= cut->clocks[call.rank]) {
    return OfCut(*cut);
  }
  // No later mode may miss a push that SYNC has still to apply.
  const std::optional<int64_t> bound =
      in_sync_ ? 0 : options_.regimes.At(pull.clock).bound();
  const auto lacks = [&](uint32_t rank) {
    const PushLedger& worker = workers_[rank];
    if (rank != call.rank && !bound.has_value()) return false;
    if (FindLost(rank) != nullptr) return false;
    const int64_t needed = pull.clock - (rank == call.rank ? 0 : *bound);
    if (worker.closed() >= needed) return false;
    // Where norms are reduced, no block is applied before all have arrived.
    return pull.blocks.empty() ||
           (in_sync_ && sync_.WaitsForReduction(pull.blocks[0])) ||
           std::any_of(pull.blocks.begin(), pull.blocks.end(),
                       [&](BlockIndex block) {
                         return worker.clocks_of(block) < needed;
                       });
  };
  return absl::StrCat("the pushes before it; missing: ", Missing(lacks));
}

std::string WaitReasons::Missing(
    const std::function<bool(uint32_t rank)>& lacks) const {
  std::vector<std::string> names;
  for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
    if (!workers_[rank].finished() && lacks(rank))
      names.push_back(Standing(rank));
  }
  return absl::StrJoin(names, ", ");
}

std::string WaitReasons::Standing(uint32_t rank) const {
  const PushLedger& worker = workers_[rank];
  std::string standing = worker.started()
                             ? absl::StrCat(worker.received_count(), " of ",
                                            worker.expected_count(), " blocks")
                             : "nothing of it yet";
  if (const std::string activity = ActivityText(rank); !activity.empty()) {
    absl::StrAppend(&standing, "; last heard of ", activity);
  }
  if (const Lost* lost = FindLost(rank); lost != nullptr) {
    absl::StrAppend(
        &standing, "; it was lost, and ",
        lost->settled
            ? absl::StrCat(options_.caller(0).name, " makes its clocks")
            : "the scheduler has not said yet which of its clocks return");
  }
  return absl::StrCat(options_.caller(rank).name, " (clock ", worker.closed(),
                      ", ", standing, ")");
}

const WaitReasons::Lost* WaitReasons::FindLost(uint32_t rank) const {
  const auto lost = absl::c_find_if(
      lost_, [rank](const Lost& each) { return each.rank == rank; });
  return lost == lost_.end() ? nullptr : &*lost;
}

bool WaitReasons::IsEvaluators(const CutSchedule::Cut& cut) const {
  return options_.evaluator.has_value() && cut.use == CutUse::kEvaluation;
}

std::string WaitReasons::CutterText(const CutSchedule::Cut& cut) const {
  const uint32_t rank =
      IsEvaluators(cut) ? static_cast<uint32_t>(workers_.size()) : 0;
  const std::string& name = options_.caller(rank).name;
  const std::string activity = ActivityText(rank);
  return activity.empty()
             ? name
             : absl::StrCat(name, " (last heard of ", activity, ")");
}

std::string WaitReasons::ActivityText(uint32_t rank) const {
  return activities_.Text(rank,
                          options_.is_worker(rank) ? &workers_[rank] : nullptr);
}

}  // namespace syncline::ps

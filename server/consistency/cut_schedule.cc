#include "server/consistency/cut_schedule.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace syncline::ps {

std::string CutSchedule::Cut::Name() const {
  const bool equal =
      std::all_of(clocks.begin(), clocks.end(),
                  [this](int64_t clock) { return clock == clocks.front(); });
  return absl::StrCat(
      "the ", CutUseName(use), " cut at clock", equal ? " " : "s ",
      equal ? absl::StrCat(clocks.front()) : absl::StrJoin(clocks, ","));
}

absl::Status CutSchedule::Announce(uint64_t id, std::vector<int64_t> clocks,
                                   absl::Duration hold, CutUse use,
                                   std::optional<TrainingRegime> regime) {
  if (const Cut* cut = Find(id); cut != nullptr) {
    if (cut->clocks == clocks) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("cut ", id, " is announced with other clocks"));
  }
  if (Knows(id)) return absl::OkStatus();
  if (cuts_.size() == kCutsMax) {
    return absl::FailedPreconditionError(
        absl::StrCat("cuts ",
                     absl::StrJoin(cuts_, ", ",
                                   [](std::string* out, const Cut& cut) {
                                     absl::StrAppend(out, cut.id);
                                   }),
                     " are announced; end one before cut ", id));
  }
  const std::vector<int64_t> smallest = SmallestClocks(id, clocks);
  if (smallest != clocks) {
    return absl::OutOfRangeError(
        absl::StrCat("cut ", id, " at clocks ", absl::StrJoin(clocks, ","),
                     " crosses another; possible are clocks ",
                     absl::StrJoin(smallest, ",")));
  }
  const auto place =
      std::find_if(cuts_.begin(), cuts_.end(), [&](const Cut& other) {
        return !other.passed && IsBefore(id, clocks, other);
      });
  Cut& cut = *cuts_.insert(place, Cut());
  cut.id = id;
  cut.clocks = std::move(clocks);
  cut.hold = hold;
  cut.use = use;
  cut.regime = std::move(regime);
  return absl::OkStatus();
}

absl::Status CutSchedule::End(uint64_t id) {
  for (auto cut = cuts_.begin(); cut != cuts_.end(); ++cut) {
    if (cut->id != id) continue;
    Forget(cut->id, /*abandoned=*/false);
    cuts_.erase(cut);
    return absl::OkStatus();
  }
  const bool repeat = std::any_of(
      past_.begin(), past_.end(),
      [&](const Past& past) { return past.id == id && !past.abandoned; });
  if (repeat) return absl::OkStatus();
  const absl::Status absent = absl::FailedPreconditionError(Absence(id));
  if (!Knows(id)) Forget(id, /*abandoned=*/false);
  return absent;
}

bool CutSchedule::IsBefore(uint64_t id, absl::Span<const int64_t> clocks,
                           const Cut& cut) {
  for (size_t rank = 0; rank < clocks.size(); ++rank) {
    if (cut.clocks[rank] < clocks[rank] + (cut.id < id ? 1 : 0)) return false;
  }
  return true;
}

std::vector<int64_t> CutSchedule::SmallestClocks(
    uint64_t id, std::vector<int64_t> clocks) const {
  for (const Cut& cut : cuts_) {
    if (!cut.passed && IsBefore(id, clocks, cut)) break;
    for (size_t rank = 0; rank < clocks.size(); ++rank) {
      clocks[rank] =
          std::max(clocks[rank], cut.clocks[rank] + (id < cut.id ? 1 : 0));
    }
  }
  return clocks;
}

bool CutSchedule::Knows(uint64_t id) const {
  return Find(id) != nullptr ||
         std::any_of(past_.begin(), past_.end(),
                     [&](const Past& past) { return past.id == id; });
}

const CutSchedule::Cut* CutSchedule::Gate(uint32_t rank, int64_t clock) const {
  for (const Cut& cut : cuts_) {
    if (clock >= cut.clocks[rank]) return &cut;
  }
  return nullptr;
}

const CutSchedule::Cut* CutSchedule::RegimeCut() const {
  for (const Cut& cut : cuts_) {
    if (cut.use == CutUse::kRegime) return &cut;
  }
  return nullptr;
}

const CutSchedule::Cut* CutSchedule::Find(uint64_t id) const {
  for (const Cut& cut : cuts_) {
    if (cut.id == id) return &cut;
  }
  return nullptr;
}

const CutSchedule::Cut* CutSchedule::Next() const {
  for (const Cut& cut : cuts_) {
    if (!cut.passed) return &cut;
  }
  return nullptr;
}

const CutSchedule::Cut& CutSchedule::PassNext(absl::Time now) {
  const auto next = std::find_if(cuts_.begin(), cuts_.end(),
                                 [](const Cut& cut) { return !cut.passed; });
  next->passed = true;
  next->held_until = now + next->hold;
  return *next;
}

void CutSchedule::Postpone(absl::Duration delay) {
  for (Cut& cut : cuts_) cut.held_until += delay;
}

int CutSchedule::Expire(absl::Time now) {
  int expired = 0;
  for (auto cut = cuts_.begin(); cut != cuts_.end();) {
    if (cut->held_until > now) {
      ++cut;
      continue;
    }
    Forget(cut->id, /*abandoned=*/true);
    cut = cuts_.erase(cut);
    ++expired;
  }
  return expired;
}

void CutSchedule::Export(uint64_t at, ControllerState* state) const {
  for (const Cut& cut : cuts_) {
    if (cut.id == at) continue;
    state->cuts.push_back({cut.id, cut.clocks, cut.hold, cut.use});
  }
  state->past_cuts.assign(past_.begin(), past_.end());
  state->past_cuts.push_back({at, /*abandoned=*/false});
}

void CutSchedule::Import(const ControllerState& state) {
  for (const Past& past : state.past_cuts) {
    if (!Knows(past.id)) Forget(past.id, past.abandoned);
  }
  for (const ControllerState::Cut& cut : state.cuts) {
    Announce(cut.id, cut.clocks, cut.hold, cut.use).IgnoreError();
  }
}

std::string CutSchedule::Absence(uint64_t id) const {
  for (const Past& past : past_) {
    if (past.id != id) continue;
    return past.abandoned
               ? absl::StrCat("cut ", id,
                              " was abandoned: it was held for too long")
               : absl::StrCat("cut ", id, " has ended");
  }
  return absl::StrCat("cut ", id, " is not announced");
}

void CutSchedule::Forget(uint64_t id, bool abandoned) {
  past_.push_back({id, abandoned});
  if (past_.size() > kRemembered) past_.pop_front();
}

}  // namespace syncline::ps

#include "server/consistency/cut_schedule.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace syncline::ps {

absl::Status CutSchedule::Announce(uint64_t id, std::vector<int64_t> clocks,
                                   absl::Duration hold) {
  if (const Cut* cut = Find(id); cut != nullptr) {
    if (cut->clocks == clocks) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("cut ", id, " is announced with other clocks"));
  }
  if (Knows(id)) return absl::OkStatus();
  if (cuts_.size() == kCutsMax) {
    return absl::FailedPreconditionError(
        absl::StrCat("cuts ", cuts_[0].id, " and ", cuts_[1].id,
                     " are announced; end one before cut ", id));
  }
  if (!cuts_.empty()) {
    for (size_t rank = 0; rank < clocks.size(); ++rank) {
      if (clocks[rank] >= cuts_.back().clocks[rank]) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "cut ", id, " is at clock ", clocks[rank], " of rank ", rank,
          ", before cut ", cuts_.back().id, " at ", cuts_.back().clocks[rank]));
    }
  }
  Cut& cut = cuts_.emplace_back();
  cut.id = id;
  cut.clocks = std::move(clocks);
  cut.hold = hold;
  return absl::OkStatus();
}

absl::Status CutSchedule::End(uint64_t id) {
  for (auto cut = cuts_.begin(); cut != cuts_.end(); ++cut) {
    if (cut->id != id) continue;
    Forget(*cut, /*abandoned=*/false);
    cuts_.erase(cut);
    return absl::OkStatus();
  }
  const bool repeat = std::any_of(
      past_.begin(), past_.end(),
      [&](const Past& past) { return past.id == id && !past.abandoned; });
  if (repeat) return absl::OkStatus();
  return absl::FailedPreconditionError(Absence(id));
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

void CutSchedule::PassNext(absl::Time now) {
  for (Cut& cut : cuts_) {
    if (cut.passed) continue;
    cut.passed = true;
    cut.held_until = now + cut.hold;
    return;
  }
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
    Forget(*cut, /*abandoned=*/true);
    cut = cuts_.erase(cut);
    ++expired;
  }
  return expired;
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

void CutSchedule::Forget(const Cut& cut, bool abandoned) {
  past_.push_back({cut.id, abandoned});
  if (past_.size() > kRemembered) past_.pop_front();
}

}  // namespace syncline::ps

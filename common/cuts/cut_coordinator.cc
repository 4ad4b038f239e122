#include "common/cuts/cut_coordinator.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace syncline {
namespace {

using Kind = CutAction::Kind;

// The headroom of a raised cut doubles with each raise up to this many clocks:
// enough for workers that make a step in much less time than a message takes.
constexpr int kHeadroomBitsMax = 12;

int64_t RoundUp(int64_t clock, int64_t period) {
  return (clock + period - 1) / period * period;
}

}  // namespace

CutCoordinator::CutCoordinator(Options options) : options_(std::move(options)) {
  SYNCLINE_CHECK(!options_.shards.empty() && options_.raises_max >= 0);
}

// --- The owner's events ------------------------------------------------------

absl::Status CutCoordinator::Check(const CutRequest& request) const {
  const auto refused = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat(options_.label, ": the ", CutUseName(request.use), " cut ",
                     request.name, ": ", why));
  };
  if (request.clocks.empty()) return refused("it has no clocks");
  if (!last_clocks_.empty() && last_clocks_.size() != request.clocks.size()) {
    return refused(absl::StrCat(request.clocks.size(), " clocks, the job has ",
                                last_clocks_.size(), " workers"));
  }
  for (const int64_t clock : request.clocks) {
    if (clock >= 0 && clock <= kCutClockMax) continue;
    return refused(
        absl::StrCat("clock ", clock, " is not from 0 to ", kCutClockMax));
  }
  if (request.period < 1 || request.period > kCutClockMax) {
    return refused(absl::StrCat("a period of ", request.period, " clocks"));
  }
  for (const Cut& cut : cuts_) {
    if (cut.request.name == request.name) return refused("it has not ended");
  }
  if (cuts_.size() >= kRequestsMax) {
    return absl::ResourceExhaustedError(absl::StrCat(
        options_.label, ": ", kRequestsMax, " cuts are asked for already"));
  }
  return absl::OkStatus();
}

absl::Status CutCoordinator::Request(CutRequest request, absl::Time now,
                                     CutActions* out) {
  SYNCLINE_RETURN_IF_ERROR(Check(request));
  Cut& cut = cuts_.emplace_back();
  cut.clocks = request.clocks;
  cut.smallest = std::vector<int64_t>(request.clocks.size(), 0);
  cut.request = std::move(request);
  cut.shards.assign(options_.shards.size(), Standing::kNone);
  Advance(now, out);
  return absl::OkStatus();
}

bool CutCoordinator::End(uint64_t name, absl::Time now, CutActions* out) {
  const CutIterator cut = FindName(name);
  if (cut == cuts_.end()) return false;
  if (cut->state == State::kAgreed) {
    Leave(&*cut, State::kEnding, now, out);
  } else if (cut->state != State::kEnding) {
    Fail(cut, absl::CancelledError("its owner has ended it"), now, out);
    Advance(now, out);
  }
  return true;
}

void CutCoordinator::OnLost(uint64_t name, const absl::Status& why,
                            absl::Time now, CutActions* out) {
  const CutIterator cut = FindName(name);
  if (cut == cuts_.end() || !IsAgreed(*cut)) return;
  if (cut->outcome.ok()) cut->outcome = why;
  if (cut->state == State::kAgreed) Leave(&*cut, State::kEnding, now, out);
}

// --- Answers -----------------------------------------------------------------

void CutCoordinator::OnBegun(uint32_t shard, uint64_t cut_id,
                             const CutAnswer& answer, absl::Time now,
                             CutActions* out) {
  const CutIterator cut = FindId(cut_id);
  if (cut == cuts_.end() || cut->state != State::kAnnouncing ||
      cut->shards[shard] != Standing::kAsked) {
    return;
  }
  cut->shards[shard] = Standing::kAnnounced;
  if (!answer.status.ok()) {
    cut->shards[shard] = Standing::kNone;
    NoteRefusal(&*cut, shard, answer);
  }
  const auto count = [&](Standing standing) {
    return std::count(cut->shards.begin(), cut->shards.end(), standing);
  };
  if (count(Standing::kAsked) > 0) return;
  if (count(Standing::kNone) > 0) {
    Leave(&*cut, State::kWithdrawing, now, out);
  } else {
    cut->state = State::kAgreed;
    last_clocks_ = cut->clocks;
    TellAgreed(*cut, out);
  }
  Advance(now, out);
}

void CutCoordinator::NoteRefusal(Cut* cut, uint32_t shard,
                                 const CutAnswer& answer) {
  cut->refusal =
      absl::StrCat(options_.shards[shard], ": ", answer.status.message());
  if (!answer.smallest.has_value() ||
      answer.smallest->size() != cut->clocks.size()) {
    if (cut->outcome.ok()) {
      cut->outcome = Annotate(answer.status, options_.shards[shard]);
    }
    return;
  }
  for (size_t rank = 0; rank < cut->clocks.size(); ++rank) {
    const int64_t smallest = (*answer.smallest)[rank];
    cut->smallest[rank] = std::max(cut->smallest[rank], smallest);
    if (smallest <= cut->clocks[rank]) continue;
    cut->refusal =
        absl::StrCat(options_.shards[shard], " cannot be cut before clock ",
                     smallest, " of the worker of rank ", rank,
                     ", the cut was at clock ", cut->clocks[rank]);
  }
}

void CutCoordinator::OnEnded(uint32_t shard, uint64_t cut_id,
                             const absl::Status& status, absl::Time now,
                             CutActions* out) {
  const CutIterator cut = FindId(cut_id);
  if (cut == cuts_.end() || cut->shards[shard] != Standing::kLeaving) return;
  cut->shards[shard] = Standing::kNone;
  if (cut->state == State::kEnding && !status.ok() && cut->outcome.ok()) {
    cut->outcome = Annotate(status, options_.shards[shard]);
  }
  const bool is_left = std::count(cut->shards.begin(), cut->shards.end(),
                                  Standing::kLeaving) == 0;
  if (!is_left) return;
  AfterLeaving(cut, now, out);
  Advance(now, out);
}

// --- Between them ------------------------------------------------------------

void CutCoordinator::Advance(absl::Time now, CutActions* out) {
  size_t agreed = 0;
  for (const Cut& cut : cuts_) agreed += IsAgreed(cut) ? 1 : 0;
  for (Cut& cut : cuts_) {
    if (IsAgreed(cut)) continue;
    // One after the other: the next goes behind it.
    if (cut.state != State::kQueued || now < cut.retry_at) return;
    cut.retry_at = absl::InfinitePast();
    if (agreed >= kCutsMax) return;
    return Announce(&cut, now, out);
  }
}

void CutCoordinator::Announce(Cut* cut, absl::Time now, CutActions* out) {
  Arrange(cut->request, &cut->clocks);
  cut->id = NextId(*cut);
  last_id_ = cut->id;
  ++cut->tries;
  cut->state = State::kAnnouncing;
  cut->sent_at = now;
  for (uint32_t shard = 0; shard < cut->shards.size(); ++shard) {
    cut->shards[shard] = Standing::kAsked;
    Send(*cut, shard, out);
  }
}

void CutCoordinator::Arrange(const CutRequest& request,
                             std::vector<int64_t>* clocks) const {
  const bool goes_behind = !last_clocks_.empty() && !GoesBeforeLast(*clocks);
  for (size_t rank = 0; rank < clocks->size(); ++rank) {
    int64_t& clock = (*clocks)[rank];
    if (goes_behind) clock = std::max(clock, last_clocks_[rank]);
    clock = std::min(RoundUp(clock, request.period), kCutClockMax);
  }
  const std::optional<int64_t> spread =
      request.equal_clocks ? 0 : options_.spread;
  if (!spread.has_value()) return;
  const int64_t least =
      *std::max_element(clocks->begin(), clocks->end()) - *spread;
  for (int64_t& clock : *clocks) {
    clock = RoundUp(std::max(clock, least), request.period);
  }
}

bool CutCoordinator::GoesBeforeLast(const std::vector<int64_t>& clocks) const {
  for (size_t rank = 0; rank < clocks.size(); ++rank) {
    if (clocks[rank] > last_clocks_[rank]) return false;
  }
  return true;
}

uint64_t CutCoordinator::NextId(const Cut& cut) const {
  if (cut.tries == 0 && cut.request.id > last_id_) return cut.request.id;
  const int64_t clock = *std::max_element(cut.clocks.begin(), cut.clocks.end());
  // 0 is the request's own.
  const uint64_t id = MakeCutId(options_.attempt, clock, options_.series, 1);
  return std::max(id, last_id_ + 1);
}

void CutCoordinator::Leave(Cut* cut, State state, absl::Time now,
                           CutActions* out) {
  cut->state = state;
  cut->sent_at = now;
  // Also where the cut was refused: a copy of the announcement may be under
  // way, and what refused it may be over when that comes.
  for (uint32_t shard = 0; shard < cut->shards.size(); ++shard) {
    cut->shards[shard] = Standing::kLeaving;
    Send(*cut, shard, out);
  }
}

void CutCoordinator::AfterLeaving(CutIterator cut, absl::Time now,
                                  CutActions* out) {
  if (cut->state == State::kEnding) {
    out->push_back({.kind = Kind::kEnded,
                    .name = cut->request.name,
                    .cut_id = cut->id,
                    .status = Annotate(cut->outcome, Name(*cut))});
    cuts_.erase(cut);
  } else if (cut->failed) {
    cuts_.erase(cut);
  } else if (!cut->outcome.ok()) {
    cut->state = State::kQueued;
    Fail(cut, cut->outcome, now, out);
  } else if ((MustRaise(*cut) && cut->raises >= options_.raises_max) ||
             now >= cut->request.deadline) {
    cut->state = State::kQueued;
    Fail(cut, GivenUp(*cut), now, out);
  } else {
    Raise(&*cut, now);
  }
}

bool CutCoordinator::MustRaise(const Cut& cut) const {
  for (size_t rank = 0; rank < cut.clocks.size(); ++rank) {
    if (cut.smallest[rank] > cut.clocks[rank]) return true;
  }
  return false;
}

void CutCoordinator::Raise(Cut* cut, absl::Time now) {
  cut->state = State::kQueued;
  if (!MustRaise(*cut)) {
    // Other members' cuts take all the room that a shard has for them. Each
    // member waits for another time, lest two meet again and again.
    const auto part = static_cast<int64_t>(options_.series) + 1;
    cut->retry_at = now + part * options_.wait_for_others *
                              (int64_t{1} << std::min(cut->waits++, 5));
    return;
  }
  const int64_t headroom =
      cut->raises == 0
          ? 0
          : int64_t{1} << std::min(cut->raises - 1, kHeadroomBitsMax);
  ++cut->raises;
  for (size_t rank = 0; rank < cut->clocks.size(); ++rank) {
    cut->clocks[rank] =
        std::max(cut->clocks[rank], cut->smallest[rank] + headroom);
  }
}

void CutCoordinator::Fail(CutIterator cut, absl::Status status, absl::Time now,
                          CutActions* out) {
  if (!std::exchange(cut->failed, true)) {
    cut->outcome = std::move(status);
    TellFailed(*cut, out);
  }
  if (cut->state == State::kQueued) {
    cuts_.erase(cut);
  } else if (cut->state == State::kAnnouncing) {
    Leave(&*cut, State::kWithdrawing, now, out);
  }
}

absl::Status CutCoordinator::GivenUp(const Cut& cut) const {
  std::string why = cut.refusal;
  if (cut.state == State::kAnnouncing) {
    std::vector<std::string> silent;
    for (uint32_t shard = 0; shard < cut.shards.size(); ++shard) {
      if (cut.shards[shard] != Standing::kAsked) continue;
      silent.push_back(options_.shards[shard]);
    }
    why = absl::StrCat("no answer from ", absl::StrJoin(silent, ", "));
  } else if (cut.tries == 0) {
    why = "cuts before it have not ended";
  }
  return absl::DeadlineExceededError(
      absl::StrCat("not agreed upon at clocks ", absl::StrJoin(cut.clocks, ","),
                   " after ", cut.tries, " tries: ", why));
}

void CutCoordinator::OnTick(absl::Time now, CutActions* out) {
  for (CutIterator next = cuts_.begin(); next != cuts_.end();) {
    const CutIterator cut = next++;
    if (IsUnderWay(*cut) && now >= cut->sent_at + options_.resend_after) {
      cut->sent_at = now;
      for (uint32_t shard = 0; shard < cut->shards.size(); ++shard) {
        Send(*cut, shard, out);
      }
    }
    if (!IsAgreed(*cut) && !cut->failed && now >= cut->request.deadline) {
      Fail(cut, GivenUp(*cut), now, out);
    }
  }
  Advance(now, out);
}

void CutCoordinator::UseShards(std::vector<std::string> shards, absl::Time now,
                               CutActions* out) {
  SYNCLINE_CHECK(!shards.empty());
  options_.shards = std::move(shards);
  for (Cut& cut : cuts_) {
    Standing standing = Standing::kNone;
    if (cut.state == State::kAnnouncing) standing = Standing::kAsked;
    if (cut.state == State::kAgreed) standing = Standing::kAnnounced;
    if (cut.state == State::kWithdrawing || cut.state == State::kEnding) {
      standing = Standing::kLeaving;
    }
    cut.shards.assign(options_.shards.size(), standing);
    cut.sent_at = now;
    for (uint32_t shard = 0; shard < cut.shards.size(); ++shard) {
      Send(cut, shard, out);
    }
    if (cut.state == State::kAgreed) TellAgreed(cut, out);
    if (cut.failed) TellFailed(cut, out);
  }
}

absl::Time CutCoordinator::next_tick() const {
  absl::Time next = absl::InfiniteFuture();
  for (const Cut& cut : cuts_) {
    if (IsUnderWay(cut)) {
      next = std::min(next, cut.sent_at + options_.resend_after);
    }
    if (cut.state == State::kQueued && cut.retry_at > absl::InfinitePast()) {
      next = std::min(next, cut.retry_at);
    }
    if (!IsAgreed(cut) && !cut.failed) {
      next = std::min(next, cut.request.deadline);
    }
  }
  return next;
}

// --- Small parts -------------------------------------------------------------

std::string CutCoordinator::Name(const Cut& cut) const {
  return absl::StrCat(options_.label, ": the ", CutUseName(cut.request.use),
                      " cut");
}

void CutCoordinator::TellAgreed(const Cut& cut, CutActions* out) const {
  out->push_back({.kind = Kind::kAgreed,
                  .name = cut.request.name,
                  .cut_id = cut.id,
                  .clocks = cut.clocks,
                  .use = cut.request.use});
}

void CutCoordinator::TellFailed(const Cut& cut, CutActions* out) const {
  out->push_back({.kind = Kind::kFailed,
                  .name = cut.request.name,
                  .cut_id = cut.id,
                  .status = Annotate(cut.outcome, Name(cut))});
}

void CutCoordinator::Send(const Cut& cut, uint32_t shard,
                          CutActions* out) const {
  if (cut.shards[shard] == Standing::kAsked) {
    out->push_back({.kind = Kind::kBegin,
                    .name = cut.request.name,
                    .cut_id = cut.id,
                    .shard = shard,
                    .clocks = cut.clocks,
                    .use = cut.request.use,
                    .hold = cut.request.hold});
  } else if (cut.shards[shard] == Standing::kLeaving) {
    out->push_back({.kind = Kind::kEnd,
                    .name = cut.request.name,
                    .cut_id = cut.id,
                    .shard = shard});
  }
}

uint64_t CutCoordinator::IdOf(uint64_t name) const {
  for (const Cut& cut : cuts_) {
    if (cut.request.name == name) return cut.id;
  }
  return 0;
}

bool CutCoordinator::Has(uint64_t name) const {
  return std::any_of(cuts_.begin(), cuts_.end(),
                     [&](const Cut& cut) { return cut.request.name == name; });
}

CutCoordinator::CutIterator CutCoordinator::FindName(uint64_t name) {
  return std::find_if(cuts_.begin(), cuts_.end(),
                      [&](const Cut& cut) { return cut.request.name == name; });
}

CutCoordinator::CutIterator CutCoordinator::FindId(uint64_t cut_id) {
  return std::find_if(cuts_.begin(), cuts_.end(),
                      [&](const Cut& cut) { return cut.id == cut_id; });
}

}  // namespace syncline

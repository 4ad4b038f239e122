#include "scheduler/core/cluster/address_checks.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace syncline::scheduler {
namespace {

constexpr absl::Duration kFirstRetry = absl::Milliseconds(500);
constexpr absl::Duration kRetryMax = absl::Seconds(10);
constexpr int kDoublingsMax = 5;  // beyond kRetryMax

constexpr char kWhatToDo[] =
    "; --advertise of that process must name an address at which the scheduler "
    "and the other members reach it";

std::string TroubleText(absl::string_view address, const absl::Status& answer) {
  if (absl::IsFailedPrecondition(answer)) {
    return absl::StrCat("another process answers at ", address, kWhatToDo);
  }
  if (absl::IsUnimplemented(answer)) {
    return absl::StrCat("at ", address, " answers what is no Syncline daemon, ",
                        "or one of an older release", kWhatToDo);
  }
  return absl::StrCat("nothing answers the scheduler at ", address, " (",
                      answer.message(), ")", kWhatToDo);
}

}  // namespace

void AddressChecks::Add(SessionId session, absl::Time now) {
  if (required_) checks_[session].ask_at = now;
}

void AddressChecks::Remove(SessionId session) { checks_.erase(session); }

void AddressChecks::Rebind(SessionId older, SessionId session, absl::Time now) {
  auto moved = checks_.extract(older);
  if (moved.empty()) return;
  moved.key() = session;
  if (std::exchange(moved.mapped().asking, false)) moved.mapped().ask_at = now;
  checks_.insert(std::move(moved));
}

std::vector<SessionId> AddressChecks::TakeDue(absl::Time now) {
  std::vector<SessionId> due;
  for (auto& [session, check] : checks_) {
    if (check.confirmed || check.asking || check.ask_at > now) continue;
    check.asking = true;
    due.push_back(session);
  }
  return due;
}

AddressChecks::Outcome AddressChecks::OnAnswer(SessionId session,
                                               absl::string_view address,
                                               const absl::Status& answer,
                                               absl::Time now) {
  const auto found = checks_.find(session);
  if (found == checks_.end() || found->second.confirmed) {
    return Outcome::kIgnored;
  }
  Check& check = found->second;
  check.asking = false;
  if (answer.ok()) {
    check.confirmed = true;
    check.trouble.clear();
    return Outcome::kConfirmed;
  }
  check.trouble = TroubleText(address, answer);
  check.ask_at =
      now + std::min(kRetryMax, kFirstRetry * (1 << std::min(check.failures,
                                                             kDoublingsMax)));
  ++check.failures;
  return check.failures == 1 ? Outcome::kFirstFailure : Outcome::kFailure;
}

bool AddressChecks::Confirmed(SessionId session) const {
  if (!required_) return true;
  const auto found = checks_.find(session);
  return found != checks_.end() && found->second.confirmed;
}

std::string AddressChecks::Trouble(SessionId session) const {
  const auto found = checks_.find(session);
  return found == checks_.end() ? "" : found->second.trouble;
}

}  // namespace syncline::scheduler

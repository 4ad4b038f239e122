#ifndef SYNCLINE_SCHEDULER_CORE_CLUSTER_ADDRESS_CHECKS_H_
#define SYNCLINE_SCHEDULER_CORE_CLUSTER_ADDRESS_CHECKS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "scheduler/core/membership.h"

namespace syncline::scheduler {

// Which members have answered, at the address that they claim, as the process
// that registered. An address is a claim until then: it may be a typo, the
// address before a NAT, or another member's. Asks again, at growing intervals,
// until the answer is yes; a yes holds for as long as its process is a member.
// Pure and thread-compatible.
class AddressChecks {
 public:
  // Not `required`: every address counts as confirmed, and no member is asked.
  explicit AddressChecks(bool required) : required_(required) {}

  // A session whose member is to be asked, at once.
  void Add(SessionId session, absl::Time now);
  void Remove(SessionId session);
  // The member of `older` has `session` now: a yes holds for it, too. An answer
  // that is still to come for `older` is ignored, so that one is asked again.
  void Rebind(SessionId older, SessionId session, absl::Time now);

  // The sessions to ask now. Each is due again only after OnAnswer.
  std::vector<SessionId> TakeDue(absl::Time now);

  enum class Outcome { kIgnored, kConfirmed, kFirstFailure, kFailure };
  // Takes the outcome of asking `address`. kIgnored: the session has ended, or
  // its member was confirmed already.
  Outcome OnAnswer(SessionId session, absl::string_view address,
                   const absl::Status& answer, absl::Time now);

  bool Confirmed(SessionId session) const;
  // Why it is not confirmed, for people; empty if it is.
  std::string Trouble(SessionId session) const;

 private:
  struct Check {
    bool confirmed = false;
    bool asking = false;
    int failures = 0;
    absl::Time ask_at = absl::InfinitePast();
    std::string trouble = "it is being asked";
  };

  const bool required_;
  std::map<SessionId, Check> checks_;
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_CLUSTER_ADDRESS_CHECKS_H_

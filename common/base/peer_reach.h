#ifndef SYNCLINE_COMMON_BASE_PEER_REACH_H_
#define SYNCLINE_COMMON_BASE_PEER_REACH_H_

#include <algorithm>
#include <optional>

#include "absl/time/time.h"

namespace syncline {

// Tells from the outcomes of calls to one peer if the peer can be reached.
// Pure, thread-compatible.
class PeerReach {
 public:
  // A shorter outage is not reported; the least of this and `patience` / 16.
  static constexpr absl::Duration kUntold = absl::Seconds(2);
  // How often a lasting outage is reported.
  static constexpr absl::Duration kTellPeriod = absl::Seconds(2);

  // `patience`: the caller gives the peer up after so long. It reports outages
  // well before that.
  explicit PeerReach(absl::Duration patience = absl::InfiniteDuration())
      : untold_(std::min(kUntold, patience / 16)) {}

  // The peer has answered, whatever it said.
  void OnAnswer(absl::Time now);
  // A call did not get through. Returns for how long the peer has been out of
  // reach, if it is time to report that. The time counts from the first failure
  // after the peer's last answer, not from the start of the failed call,
  // because a reachable ps parks calls.
  std::optional<absl::Duration> OnFailure(absl::Time now);
  // The same for a call that the peer answers at once: no answer has come since
  // `asked`. Nullopt if the peer has answered another call since `asked`; the
  // next call will tell.
  std::optional<absl::Duration> OnSilence(absl::Time asked, absl::Time now);

 private:
  const absl::Duration untold_;
  absl::Time since_ = absl::InfiniteFuture();  // a call has failed since
  absl::Time told_ = absl::InfinitePast();
  absl::Time answered_ = absl::InfinitePast();  // last
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_PEER_REACH_H_

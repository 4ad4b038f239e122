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
  // A shorter outage is told to nobody, where its caller has the patience.
  static constexpr absl::Duration kUntold = absl::Seconds(2);
  // How often one that lasts is told.
  static constexpr absl::Duration kTellPeriod = absl::Seconds(2);

  // `patience`: the caller gives the peer up after so long, and tells before
  // that: a sixteenth of it is too short to be told.
  explicit PeerReach(absl::Duration patience = absl::InfiniteDuration())
      : untold_(std::min(kUntold, patience / 16)) {}

  // The peer has answered, whatever it said.
  void OnAnswer(absl::Time now);
  // A call did not get through. Returns for how long the peer has been out of
  // reach if that is to be told now: since the first call after its last answer
  // that failed. When that call was started says nothing, because calls are
  // parked at a ps that can be reached.
  std::optional<absl::Duration> OnFailure(absl::Time now);
  // The same for a question that is answered at once where it arrives: nothing
  // has come since it was asked. Nullopt if the peer has answered another one
  // since: then the next question tells.
  std::optional<absl::Duration> OnSilence(absl::Time asked, absl::Time now);

 private:
  const absl::Duration untold_;
  absl::Time since_ = absl::InfiniteFuture();  // a call has failed since
  absl::Time told_ = absl::InfinitePast();
  absl::Time answered_ = absl::InfinitePast();  // last
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_PEER_REACH_H_

#ifndef SYNCLINE_COMMON_BASE_PEER_REACH_H_
#define SYNCLINE_COMMON_BASE_PEER_REACH_H_

#include <optional>

#include "absl/time/time.h"

namespace syncline {

// Tells from the outcomes of calls to one peer if the peer can be reached.
// Pure, thread-compatible.
class PeerReach {
 public:
  // A shorter outage is told to nobody.
  static constexpr absl::Duration kUntold = absl::Seconds(2);
  // How often one that lasts is told.
  static constexpr absl::Duration kTellPeriod = absl::Seconds(2);

  // The peer has answered, whatever it said.
  void OnAnswer();
  // A call did not get through. Returns for how long the peer has been out of
  // reach if that is to be told now: since the first call after its last answer
  // that failed. When that call was started says nothing, because calls are
  // parked at a ps that can be reached.
  std::optional<absl::Duration> OnFailure(absl::Time now);

 private:
  absl::Time since_ = absl::InfiniteFuture();  // a call has failed since
  absl::Time told_ = absl::InfinitePast();
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_PEER_REACH_H_

#include "common/base/peer_reach.h"

#include <algorithm>

namespace syncline {

void PeerReach::OnAnswer() { since_ = absl::InfiniteFuture(); }

std::optional<absl::Duration> PeerReach::OnFailure(absl::Time now) {
  since_ = std::min(since_, now);
  const absl::Duration out_of_reach = now - since_;
  if (out_of_reach < kUntold || now < told_ + kTellPeriod) return std::nullopt;
  told_ = now;
  return out_of_reach;
}

}  // namespace syncline

#include "common/base/peer_reach.h"

#include <algorithm>

namespace syncline {

void PeerReach::OnAnswer(absl::Time now) {
  since_ = absl::InfiniteFuture();
  answered_ = now;
}

std::optional<absl::Duration> PeerReach::OnFailure(absl::Time now) {
  return OnSilence(now, now);
}

std::optional<absl::Duration> PeerReach::OnSilence(absl::Time asked,
                                                   absl::Time now) {
  if (asked < answered_) return std::nullopt;
  since_ = std::min(since_, asked);
  const absl::Duration out_of_reach = now - since_;
  if (out_of_reach < untold_ || now < told_ + kTellPeriod) return std::nullopt;
  told_ = now;
  return out_of_reach;
}

}  // namespace syncline

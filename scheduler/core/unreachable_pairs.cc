#include "scheduler/core/unreachable_pairs.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "common/base/utf8.h"
#include "scheduler/core/describe.h"

namespace syncline::scheduler {
namespace {

// Bounds on a report, which may be a hostile member's.
constexpr size_t kErrorBytesMax = 1024;
constexpr double kSecondsMax = 24 * 3600;

}  // namespace

void UnreachablePairs::OnReport(const Member& reporter, const Member& peer,
                                const PeerUnreachable& report, absl::Time now) {
  // Not a number fails both comparisons.
  const double seconds =
      report.seconds() > 0 ? std::min(report.seconds(), kSecondsMax) : 0;
  pairs_[{reporter.incarnation(), peer.incarnation()}] = {
      reporter, peer, now - absl::Seconds(seconds), now,
      std::string(Utf8Prefix(report.error(), kErrorBytesMax))};
}

void UnreachablePairs::Forget(const Member& member) {
  for (auto pair = pairs_.begin(); pair != pairs_.end();) {
    const auto& [reporter, peer] = pair->first;
    const bool has_it =
        reporter == member.incarnation() || peer == member.incarnation();
    pair = has_it ? pairs_.erase(pair) : std::next(pair);
  }
}

std::optional<std::string> UnreachablePairs::Longest(absl::Duration grace,
                                                     absl::Time now) const {
  const Pair* longest = nullptr;
  for (const auto& [ids, pair] : pairs_) {
    // The outage counts until its last report: the peer may have been reached
    // since.
    if (now - pair.heard > kFresh || pair.heard - pair.since < grace) continue;
    if (longest == nullptr || pair.since < longest->since) longest = &pair;
  }
  if (longest == nullptr) return std::nullopt;
  return absl::StrCat(MemberText(longest->reporter), " cannot reach ",
                      MemberText(longest->peer), " since ",
                      SecondsText(now - longest->since), ": ", longest->error);
}

}  // namespace syncline::scheduler

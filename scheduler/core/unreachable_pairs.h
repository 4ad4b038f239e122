#ifndef SYNCLINE_SCHEDULER_CORE_UNREACHABLE_PAIRS_H_
#define SYNCLINE_SCHEDULER_CORE_UNREACHABLE_PAIRS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "proto/cluster.pb.h"
#include "proto/scheduler.pb.h"

namespace syncline::scheduler {

// The pairs of members of one job of which one says that it cannot reach the
// other (PeerUnreachable in proto/scheduler.proto). Pure, thread-compatible.
class UnreachablePairs {
 public:
  // A report that is not repeated for so long is over: the peer was reached.
  static constexpr absl::Duration kFresh = absl::Seconds(8);

  // `peer` is the member of the job that the report names.
  void OnReport(const Member& reporter, const Member& peer,
                const PeerUnreachable& report, absl::Time now);

  // Nothing that this member has said, or others of it, counts any more.
  void Forget(const Member& member);

  // The pair that has been apart for longest, in words: "worker 1 at A cannot
  // reach ps 0 at B since 15 s: connection refused". Nothing if none has been
  // apart for at least `grace`.
  std::optional<std::string> Longest(absl::Duration grace,
                                     absl::Time now) const;

 private:
  struct Pair {
    Member reporter;
    Member peer;
    absl::Time since;
    absl::Time heard;
    std::string error;
  };

  std::map<std::pair<uint64_t, uint64_t>, Pair> pairs_;  // by incarnations
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_UNREACHABLE_PAIRS_H_

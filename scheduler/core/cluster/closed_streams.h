#ifndef SYNCLINE_SCHEDULER_CORE_CLUSTER_CLOSED_STREAMS_H_
#define SYNCLINE_SCHEDULER_CORE_CLUSTER_CLOSED_STREAMS_H_

#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "scheduler/core/membership.h"

namespace syncline::scheduler {

// Members whose stream has closed. A killed process closes its stream, but so
// does a connection that broke or had its age under TLS, or a scheduler that
// was frozen for longer than the keep-alive. The process itself is asked, at
// its address, until it has registered again: an answer of its own counts as a
// heartbeat, a port that refuses connections means that the process is dead.
// Pure and thread-compatible.
class ClosedStreams {
 public:
  // A member that answers is waited for no longer than `register_limit`.
  explicit ClosedStreams(absl::Duration register_limit)
      : register_limit_(register_limit) {}

  // The session's stream has closed; its member is to be asked at once.
  void Add(SessionId session, absl::Time now) {
    Add(session, now, now + register_limit_);
  }
  // The same, of a member that may take until `register_by`.
  void Add(SessionId session, absl::Time now, absl::Time register_by) {
    streams_[session] = {register_by, now};
  }
  // The member is lost, or has registered again.
  void Remove(SessionId session) { streams_.erase(session); }
  bool Contains(SessionId session) const { return streams_.contains(session); }

  // The sessions to ask now. Each is due again only after OnAnswer.
  std::vector<SessionId> TakeDue(absl::Time now);

  // kAlive: the process answered. kDead: another process answered, or the port
  // refuses connections. kUnknown: no answer; the member's lease goes on.
  enum class Outcome { kAlive, kDead, kUnknown };
  // `answer` as AddressConfirmer says. REQUIRES: Contains(session).
  Outcome OnAnswer(SessionId session, const absl::Status& answer,
                   absl::Time now);

  // The sessions that have not registered again in time.
  std::vector<SessionId> Overdue(absl::Time now) const;

 private:
  struct Stream {
    absl::Time register_by;
    absl::Time ask_at;  // InfiniteFuture: it is being asked
  };

  const absl::Duration register_limit_;
  std::map<SessionId, Stream> streams_;
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_CLUSTER_CLOSED_STREAMS_H_

#ifndef SYNCLINE_SCHEDULER_CORE_MEMBERSHIP_H_
#define SYNCLINE_SCHEDULER_CORE_MEMBERSHIP_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/cluster.pb.h"
#include "proto/scheduler.pb.h"

namespace syncline::scheduler {

// Live members that a cluster takes. Each is in ClusterStatus, with the texts
// that a registration may have, so all of them fit into one message.
inline constexpr size_t kMembersMax = 4096;

// One stream of one daemon; given by the shell, never 0, never used twice.
using SessionId = uint64_t;

// Sessions from here on are of members that an earlier scheduler gave a job,
// and that have not registered with this one yet. The shell gives smaller ones.
inline constexpr SessionId kAbsentSessions = SessionId{1} << 63;
inline bool IsAbsent(SessionId session) { return session >= kAbsentSessions; }

// Which processes hold which tasks. Pure and thread-compatible.
//
// A process is live from Admit to Remove. A task belongs to at most one live
// process; when another process takes the task of one that is gone, the
// incarnation of the old one is fenced: it is refused from then on.
class Membership {
 public:
  struct Entry {
    Member member;
    SessionId session = 0;
    absl::Time last_heard;
  };

  // `version`: members must run the same major and minor number.
  explicit Membership(std::string version) : version_(std::move(version)) {}

  // Makes the process live and returns it with the index it was given.
  // REQUIRES: its incarnation is not live. Errors: InvalidArgument (task,
  // address, incarnation, version, texts that are too long), AlreadyExists (a
  // live process holds the task, or has the address), FailedPrecondition
  // (fenced), ResourceExhausted (kMembersMax are live), Unavailable (the task
  // or the address is kept for a member that is absent).
  absl::StatusOr<const Entry*> Admit(SessionId session, const Register& request,
                                     absl::Time now);
  void Remove(SessionId session);
  // Takes in a member that is absent; it counts as heard of at `last_heard`,
  // which may be to come. False: another process has its task or incarnation.
  // REQUIRES: IsAbsent(session).
  bool Keep(SessionId session, const Member& member, absl::Time last_heard);
  // Whether a process with this registration may be a member at all. Errors: as
  // Admit's InvalidArgument.
  absl::Status CheckRequest(const Register& request) const;
  // The member of `older` has `session` now, and was heard of. REQUIRES: it is
  // live.
  void Rebind(SessionId older, SessionId session, absl::Time now);

  // A message of the member counts as one. No effect on ended sessions.
  void RecordHeartbeat(SessionId session, absl::Time now);
  // Sessions that were silent for longer than `lease`.
  std::vector<SessionId> Expired(absl::Time now, absl::Duration lease) const;

  // Live ones; null if there is none.
  const Entry* Find(SessionId session) const;
  const Entry* FindIncarnation(uint64_t incarnation) const;
  // In task order: the chief, then workers, ps, evaluators, each by index.
  std::vector<const Entry*> All() const;
  size_t size() const { return live_.size(); }

 private:
  // Orders by TaskType's number, then index.
  using TaskKey = std::pair<int, uint32_t>;

  TaskKey ChooseTask(const Register& request) const;
  absl::Status CheckFree(const TaskKey& task, const Register& request) const;
  absl::Status CheckAddressFree(const Member& member) const;
  void TakeOver(const TaskKey& task, uint64_t incarnation);
  void Fence(uint64_t incarnation);

  const std::string version_;
  std::map<TaskKey, Entry> live_;
  absl::flat_hash_map<SessionId, TaskKey> by_session_;
  // The last holder of each task, live or not; tells which process a newcomer
  // replaces.
  std::map<TaskKey, uint64_t> last_holder_;
  // Oldest first; bounded, an incarnation that old is not coming back.
  std::deque<uint64_t> fenced_order_;
  absl::flat_hash_set<uint64_t> fenced_;
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_MEMBERSHIP_H_

#ifndef SYNCLINE_SCHEDULER_CORE_CLUSTER_MEMBER_USES_H_
#define SYNCLINE_SCHEDULER_CORE_CLUSTER_MEMBER_USES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "proto/scheduler.pb.h"

namespace syncline::scheduler {

// The uses of members that people have set: cordoned ones get no more jobs,
// drained ones also let go the job that they have. A use is of a task, not of a
// process: a daemon that is started anew keeps the use of the one before it,
// until people set another one. Pure, thread-compatible.
class MemberUses {
 public:
  using Use = SetMemberUseRequest::Use;

  // Tasks that are not used as any other.
  static constexpr size_t kMax = 4096;
  static constexpr size_t kReasonBytesMax = 256;

  // The request's form. Errors: InvalidArgument; ResourceExhausted: kMax.
  absl::Status Check(const SetMemberUseRequest& request) const;
  // REQUIRES: Check is OK. SCHEDULE: as any other again.
  void Set(const SetMemberUseRequest& request);

  // Null: it is used as any other.
  const SetMemberUseRequest* Find(const Task& task) const;
  bool TakesJobs(const Task& task) const { return Find(task) == nullptr; }
  bool IsDrained(const Task& task) const;

 private:
  using Key = std::pair<int, uint32_t>;  // TaskType's number, index
  static Key KeyOf(const Task& task) { return {task.type(), task.index()}; }

  std::map<Key, SetMemberUseRequest> uses_;
};

// "ps 1 is drained (new kernel)", for people.
std::string UseText(const SetMemberUseRequest& use);

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_CLUSTER_MEMBER_USES_H_

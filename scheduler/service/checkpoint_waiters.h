#ifndef SYNCLINE_SCHEDULER_SERVICE_CHECKPOINT_WAITERS_H_
#define SYNCLINE_SCHEDULER_SERVICE_CHECKPOINT_WAITERS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace syncline::scheduler {

// The calls that wait for a checkpoint, by the number of their request. Calls
// come from one thread, that of the control loop.
class CheckpointWaiters {
 public:
  using Done = std::function<void(absl::StatusOr<CheckpointInfo>)>;

  // `done` runs once: at Answer, or at AnswerAll.
  void Add(uint64_t request, Done done) { waiters_[request] = std::move(done); }
  // Nothing, if no call waits for it.
  void Answer(uint64_t request, const absl::StatusOr<CheckpointInfo>& outcome);
  void AnswerAll(const absl::Status& why);

 private:
  std::map<uint64_t, Done> waiters_;
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_SERVICE_CHECKPOINT_WAITERS_H_

#include "scheduler/service/checkpoint_waiters.h"

#include <utility>

namespace syncline::scheduler {

void CheckpointWaiters::Answer(uint64_t request,
                               const absl::StatusOr<CheckpointInfo>& outcome) {
  const auto waiter = waiters_.extract(request);
  if (!waiter.empty()) waiter.mapped()(outcome);
}

void CheckpointWaiters::AnswerAll(const absl::Status& why) {
  for (const auto& [request, done] : std::exchange(waiters_, {})) done(why);
}

}  // namespace syncline::scheduler

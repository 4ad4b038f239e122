// Jobs that get another number of workers: ControlLoop's part of it.

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "scheduler/service/control_loop.h"

namespace syncline::scheduler {

void ControlLoop::Scale(const ScaleRequest& request,
                        std::function<void(absl::StatusOr<JobStatus>)> done) {
  auto outcome = std::make_shared<absl::Status>(
      absl::UnavailableError("the scheduler is stopping"));
  const bool posted = Post(
      [=, this](ClusterCore* core, absl::Time now, ClusterActions* actions) {
        if (!draining_) *outcome = core->Scale(request, now, actions);
      },
      [=, this] {
        if (!outcome->ok()) return done(*outcome);
        done(Get(request.job_id()));
      });
  if (!posted) done(absl::UnavailableError("the scheduler is stopping"));
}

}  // namespace syncline::scheduler

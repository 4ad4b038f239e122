#include "server/service/checkpoint_calls.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/job/step_limits.h"
#include "server/service/value_calls.h"

namespace syncline::ps {

void CheckpointReactor::CancelWith(std::weak_ptr<ShardCheckpoints> checkpoints,
                                   uint64_t token) {
  checkpoints_ = std::move(checkpoints);
  token_ = token;
}

void CheckpointReactor::OnCancel() {
  if (const auto checkpoints = checkpoints_.lock()) {
    checkpoints->Cancel(token_);
  }
}

absl::StatusOr<std::shared_ptr<ShardCheckpoints>>
CheckpointCalls::CheckpointsOf(const Caller& caller) const {
  SYNCLINE_ASSIGN_OR_RETURN(const auto job, jobs_->Find(caller));
  if (job->checkpoints != nullptr) return job->checkpoints;
  return absl::FailedPreconditionError(
      absl::StrCat(job->config.label, ": the job makes no checkpoints"));
}

absl::Status CheckpointCalls::Await(const grpc::CallbackServerContext& context,
                                    const AwaitCheckpointRequest& request,
                                    AwaitCheckpointResponse* response,
                                    CheckpointReactor* reactor) const {
  SYNCLINE_ASSIGN_OR_RETURN(const auto checkpoints,
                            CheckpointsOf(request.caller()));
  if (!(request.wait_seconds() > 0 &&
        request.wait_seconds() <= kHoldSecondsMax)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "job ", request.caller().job_id(), ": wait_seconds is ",
        request.wait_seconds(), ", must be > 0 and at most ", kHoldSecondsMax));
  }
  const uint64_t token = checkpoints->Await(
      request.cut_id(),
      ParkDeadline(context, absl::Seconds(request.wait_seconds())),
      [response, reactor](absl::StatusOr<AwaitCheckpointResponse> written) {
        const absl::Status status = written.status();
        if (status.ok()) *response = *std::move(written);
        reactor->Answer(status);
      });
  if (token != 0) reactor->CancelWith(checkpoints, token);
  return absl::OkStatus();
}

absl::Status CheckpointCalls::Commit(const CommitCheckpointRequest& request,
                                     CommitCheckpointResponse* response,
                                     ShardReactor* reactor) const {
  SYNCLINE_ASSIGN_OR_RETURN(const auto checkpoints,
                            CheckpointsOf(request.caller()));
  checkpoints->Commit(
      request.manifest(),
      [response, reactor](absl::StatusOr<CommitCheckpointResponse> committed) {
        const absl::Status status = committed.status();
        if (status.ok()) *response = *std::move(committed);
        reactor->Answer(status);
      });
  return absl::OkStatus();
}

}  // namespace syncline::ps

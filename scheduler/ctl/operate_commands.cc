#include "scheduler/ctl/operate_commands.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/cluster/cluster_config.h"
#include "google/protobuf/struct.pb.h"
#include "scheduler/ctl/interrupt_signals.h"
#include "scheduler/ctl/jobs_client.h"
#include "scheduler/ctl/text/exit_codes.h"
#include "scheduler/ctl/text/job_text.h"

namespace syncline::ctl {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(200);

absl::StatusOr<SetMemberUseRequest> RequestFor(const UseOptions& options,
                                               SetMemberUseRequest::Use use) {
  SYNCLINE_ASSIGN_OR_RETURN(const TaskId task, ParseTaskName(options.task));
  // A task without an index would be the first of its kind.
  if (!absl::StrContains(options.task, ':')) {
    return absl::InvalidArgumentError(
        absl::StrCat("TASK: which ", TaskKindName(task.kind),
                     "? Give its index too, as in ", TaskName(task)));
  }
  if (task.kind == TaskKind::kScheduler) {
    return absl::InvalidArgumentError(
        "the scheduler is no member that jobs are given to");
  }
  SetMemberUseRequest request;
  request.mutable_task()->set_type(static_cast<TaskType>(task.kind));
  request.mutable_task()->set_index(task.index);
  request.set_use(use);
  request.set_reason(options.reason);
  return request;
}

// The member's entry; unset if there is none.
absl::StatusOr<ClusterStatus::Entry> EntryOf(JobsClient* client,
                                             const Task& task) {
  SYNCLINE_ASSIGN_OR_RETURN(const ClusterStatus cluster, client->GetCluster());
  for (const ClusterStatus::Entry& entry : cluster.members()) {
    if (entry.member().task().type() == task.type() &&
        entry.member().task().index() == task.index()) {
      return entry;
    }
  }
  return ClusterStatus::Entry();
}

// Until the job has left the member, or the member the cluster.
absl::Status AwaitLeft(JobsClient* client, const SetMemberUseRequest& request,
                       const std::string& job_id, const UseOptions& options) {
  InterruptSignals interrupts;
  const absl::Time deadline =
      MonotonicNow() + absl::Seconds(options.timeout_seconds);
  for (;;) {
    SYNCLINE_ASSIGN_OR_RETURN(const ClusterStatus::Entry entry,
                              EntryOf(client, request.task()));
    if (entry.job_id() != job_id) return absl::OkStatus();
    if (entry.use() != SetMemberUseRequest::DRAIN) {
      return absl::FailedPreconditionError(absl::StrCat(
          options.task, " is not to be drained any more: its use was changed"));
    }
    if (MonotonicNow() > deadline) {
      const auto job = client->Get(job_id);
      return absl::FailedPreconditionError(absl::StrCat(
          "job ", job_id, " has not left ", options.task, " within ",
          absl::FormatDuration(absl::Seconds(options.timeout_seconds)),
          job.ok() && !job->waiting_for().empty()
              ? absl::StrCat(" (", job->waiting_for(), ")")
              : "",
          "; it still will: `synctl cluster` shows it"));
    }
    if (interrupts.WaitFor(kPollInterval)) {
      return absl::CancelledError(absl::StrCat(
          "interrupted; ", options.task, " is being drained all the same"));
    }
  }
}

int RunUse(const UseOptions& options, SetMemberUseRequest::Use use,
           const char* done, const Console& console) {
  const auto request = RequestFor(options, use);
  if (!request.ok()) {
    console.PrintError(request.status());
    return kExitUsage;
  }
  JobsClient client(options.scheduler);
  const auto answer = client.SetMemberUse(*request);
  if (!answer.ok()) return console.PrintError(answer.status());
  const std::string& job_id = answer->job_id();
  if (!job_id.empty() && options.timeout_seconds > 0) {
    const absl::Status left = AwaitLeft(&client, *request, job_id, options);
    if (!left.ok()) return console.PrintError(left);
  }
  if (console.json) {
    google::protobuf::Struct object;
    SetField(&object, "task", options.task);
    SetField(&object, "use", SetMemberUseRequest::Use_Name(use));
    if (!job_id.empty()) SetField(&object, "job_id", job_id);
    console.PrintJson(object);
  } else {
    console.out << options.task << " " << done;
    if (!job_id.empty()) {
      console.out << (options.timeout_seconds > 0 ? "; it had "
                                                  : "; it still has ")
                  << job_id;
    }
    console.out << std::endl;
  }
  return kExitOk;
}

}  // namespace

int RunCordon(const UseOptions& options, const Console& console) {
  return RunUse(options, SetMemberUseRequest::CORDON, "gets no more jobs",
                console);
}

int RunUncordon(const UseOptions& options, const Console& console) {
  return RunUse(options, SetMemberUseRequest::SCHEDULE, "gets jobs again",
                console);
}

int RunDrain(const UseOptions& options, const Console& console) {
  return RunUse(options, SetMemberUseRequest::DRAIN,
                options.timeout_seconds > 0 ? "is drained: it can be stopped"
                                            : "is being drained",
                console);
}

int RunCheckpoint(const CheckpointOptions& options, const Console& console) {
  const auto whole =
      JobsClient(options.scheduler)
          .TakeCheckpoint(options.job_id,
                          absl::Seconds(options.timeout_seconds));
  if (!whole.ok()) return console.PrintError(whole.status());
  if (console.json) {
    console.PrintJson(*whole);
  } else {
    console.out << CheckpointText(*whole) << std::endl;
  }
  return kExitOk;
}

}  // namespace syncline::ctl

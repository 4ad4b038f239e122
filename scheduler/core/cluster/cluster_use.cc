// Requests of people about members and running jobs: ClusterCore's part of it.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/job/evaluate_validator.h"
#include "scheduler/core/cluster/cluster_core.h"
#include "scheduler/core/describe.h"

namespace syncline::scheduler {
namespace {

// Members that are named to someone whose job waits.
constexpr size_t kNamedMax = 3;

}  // namespace

absl::StatusOr<uint64_t> ClusterCore::TakeCheckpoint(const std::string& job_id,
                                                     absl::Time now,
                                                     ClusterActions* actions) {
  SYNCLINE_RETURN_IF_ERROR(FindJob(job_id).status());
  const uint64_t request = ++checkpoint_requests_;
  SYNCLINE_RETURN_IF_ERROR(
      jobs_.Find(job_id)->RequestCheckpoint(request, now, actions));
  return request;
}

void ClusterCore::OnRevoked(SessionId session, const absl::Status& why,
                            absl::Time now, ClusterActions* actions) {
  actions->push_back(EndSession{session, why});
  OnMemberLost(session, LossCause::kRevoked, why.message(), now, actions);
}

const Membership::Entry* ClusterCore::FindTask(const Task& task) const {
  for (const Membership::Entry* entry : membership_.All()) {
    if (entry->member.task().type() == task.type() &&
        entry->member.task().index() == task.index()) {
      return entry;
    }
  }
  return nullptr;
}

absl::StatusOr<SetMemberUseResponse> ClusterCore::CheckMemberUse(
    const SetMemberUseRequest& request, absl::Time now) const {
  SYNCLINE_RETURN_IF_ERROR(uses_.Check(request));
  const Membership::Entry* const entry = FindTask(request.task());
  const bool is_known = uses_.Find(request.task()) != nullptr;
  if (entry == nullptr &&
      !(is_known && request.use() == SetMemberUseRequest::SCHEDULE)) {
    return absl::NotFoundError(
        absl::StrCat("the cluster has no ", TaskText(request.task()),
                     "; `synctl cluster` lists its members"));
  }
  SetMemberUseResponse response;
  if (entry == nullptr || request.use() != SetMemberUseRequest::DRAIN) {
    return response;
  }
  const auto engagement = engaged_.find(entry->session);
  if (engagement == engaged_.end()) return response;
  response.set_job_id(engagement->second.job_id);
  const auto job = FindJob(response.job_id());
  if (job.ok()) {
    SYNCLINE_RETURN_IF_ERROR((*job)->CheckCanLeave(entry->member, now));
  }
  return response;
}

void ClusterCore::SetMemberUse(const SetMemberUseRequest& request,
                               absl::Time now, ClusterActions* actions) {
  uses_.Set(request);
  const Membership::Entry* const entry = FindTask(request.task());
  const Job* const job = entry == nullptr ? nullptr : JobOf(entry->session);
  if (job != nullptr) {
    NoteEvent(*job, "drain",
              request.use() == SetMemberUseRequest::SCHEDULE
                  ? absl::StrCat(TaskText(request.task()), " gets jobs again")
                  : UseText(request),
              now);
  }
  MoveJobs(now, actions);
  StartJobs(now, actions);
}

void ClusterCore::RestoreUses(const std::vector<SetMemberUseRequest>& uses) {
  for (const SetMemberUseRequest& use : uses) uses_.Set(use);
}

void ClusterCore::MoveJobs(absl::Time now, ClusterActions* actions) {
  std::vector<std::pair<Job*, const SetMemberUseRequest*>> leaving;
  for (const auto& [session, engagement] : engaged_) {
    const Membership::Entry* const entry = membership_.Find(session);
    Job* const job = jobs_.Find(engagement.job_id);
    if (entry == nullptr || job == nullptr ||
        engagement.release_by != absl::InfiniteFuture() ||
        !uses_.IsDrained(entry->member.task())) {
      continue;
    }
    leaving.emplace_back(job, uses_.Find(entry->member.task()));
  }
  for (const auto& [job, use] : leaving) {
    Move(job, UseText(*use), /*for_scale=*/false, now, actions);
  }
}

std::string ClusterCore::UnusedText() const {
  std::vector<std::string> unused;
  for (const Membership::Entry* entry : membership_.All()) {
    const SetMemberUseRequest* const use = uses_.Find(entry->member.task());
    if (use != nullptr) unused.push_back(UseText(*use));
  }
  if (unused.empty()) return "";
  const size_t count = unused.size();
  if (count > kNamedMax) unused.resize(kNamedMax);
  return absl::StrCat("; not counted: ", absl::StrJoin(unused, ", "),
                      count > kNamedMax
                          ? absl::StrCat(" and ", count - kNamedMax, " more")
                          : "",
                      "; `synctl uncordon` gives a member jobs again");
}

absl::Status ClusterCore::CheckHasEvaluator(const JobSpec& spec) const {
  if (!EvaluatesCheckpoints(spec) || options_.expects_evaluator) {
    return absl::OkStatus();
  }
  const bool wants_gpu = spec.resources().device() == ResourcesSpec::CUDA;
  for (const Membership::Entry* entry : membership_.All()) {
    if (entry->member.task().type() == EVALUATOR &&
        (!wants_gpu || entry->member.has_gpu())) {
      return absl::OkStatus();
    }
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "evaluate.checkpoints: the cluster has no evaluator",
      wants_gpu ? " with a GPU, which resources.device: CUDA asks for" : "",
      "; start one with syncline-worker --task=evaluator, or leave it out"));
}

}  // namespace syncline::scheduler

// Jobs that go on with more workers or fewer: ClusterCore's part of it.

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/job/evaluate_validator.h"
#include "common/job/lost_workers.h"
#include "common/job/step_shares.h"
#include "scheduler/core/cluster/cluster_core.h"
#include "scheduler/core/describe.h"
#include "scheduler/core/job/worker_range.h"
#include "scheduler/core/message_sizes.h"

namespace syncline::scheduler {
namespace {

constexpr size_t kScaleReasonBytesMax = 256;

uint32_t HadOf(const Job& job) { return WorkersLeft(job.status()); }

}  // namespace

absl::Status ClusterCore::Scale(const ScaleRequest& request, absl::Time now,
                                ClusterActions* actions) {
  SYNCLINE_RETURN_IF_ERROR(FindJob(request.job_id()).status());
  if (request.reason().size() > kScaleReasonBytesMax ||
      !IsUtf8(request.reason())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "reason: is not UTF-8 of at most ", kScaleReasonBytesMax, " bytes"));
  }
  Job* const job = jobs_.Find(request.job_id());
  SYNCLINE_RETURN_IF_ERROR(job->CheckScale(request.workers()));
  const JobSpec spec = SpecForWorkers(job->status().spec(), request.workers());
  SYNCLINE_RETURN_IF_ERROR(
      CheckMessageSizes(spec, job->parameters(), job->tables()));
  SYNCLINE_RETURN_IF_ERROR(quotas_.CheckFits(
      job->status().tenant(), DemandOf(spec, job->parameters())));
  const uint32_t had = HadOf(*job);
  if (!job->Scale(request.workers(), request.reason(), actions)) {
    return absl::OkStatus();
  }
  NoteEvent(
      *job, "scale",
      absl::StrCat("is to have ", CountText(request.workers(), "worker"),
                   had > 0 ? absl::StrCat(", and has ", had) : "",
                   request.reason().empty() ? "" : ": ", request.reason()),
      now);
  ScaleJobs(now, actions);
  StartJobs(now, actions);
  return absl::OkStatus();
}

uint32_t ClusterCore::WithinQuota(const Job& job, uint32_t more) const {
  const std::string& tenant = job.status().tenant();
  if (more == 0 || !quotas_.HasQuota(tenant)) return more;
  const TenantAmounts use = UseOfTenants(jobs_.NewestFirst())[tenant];
  JobDemand demand;
  for (; more > 0; --more) {
    demand.amounts[Quota::kWorkers] = more;
    if (quotas_.WhyWaits(tenant, demand, use).empty()) break;
  }
  return more;
}

bool ClusterCore::MayTakeMost(const Job& job) const {
  return queue_.empty() && !quotas_.HasQuota(job.status().tenant());
}

bool ClusterCore::IsReleasing() const {
  return absl::c_any_of(engaged_, [](const auto& engaged) {
    return engaged.second.release_by != absl::InfiniteFuture();
  });
}

MemberPool ClusterCore::PoolAfter(const Job& job, MemberPool free) const {
  for (const SessionId session : job.Participants()) {
    const Membership::Entry* const entry = membership_.Find(session);
    if (entry == nullptr || !uses_.TakesJobs(entry->member.task())) continue;
    free.Free(session, entry->member);
  }
  return free;
}

std::vector<Job*> ClusterCore::JobsToScale() {
  std::set<std::string> running;
  for (const auto& [session, engagement] : engaged_) {
    if (engagement.release_by == absl::InfiniteFuture()) {
      running.insert(engagement.job_id);
    }
  }
  std::vector<Job*> jobs;
  for (const std::string& job_id : running) {
    Job* const job = jobs_.Find(job_id);
    if (job == nullptr || job->status().state() != RUNNING || job->stopping() ||
        OnlyEvaluates(job->status().spec())) {
      continue;
    }
    const WorkerRange range = RangeAfterSave(job->status());
    const uint32_t had = HadOf(*job);
    if (had != range.wanted || had != range.most) jobs.push_back(job);
  }
  std::stable_partition(jobs.begin(), jobs.end(),
                        [](const Job* job) { return job->IsMoving(); });
  return jobs;
}

void ClusterCore::ScaleJobs(absl::Time now, ClusterActions* actions) {
  if (shut_down_) return;
  const std::vector<Job*> jobs = JobsToScale();
  if (jobs.empty()) return;
  for (Job* job : jobs) Shrink(job, now, actions);
  // Members that are being released may be enough for the job that waits, and
  // jobs that have just left it count on what they have seen.
  if (IsReleasing()) return;
  if (held_up_.has_value()) {
    GiveBack(jobs, now, actions);
  } else {
    Grow(jobs, now, actions);
  }
}

void ClusterCore::Shrink(Job* job, absl::Time now, ClusterActions* actions) {
  const WorkerRange range = RangeAfterSave(job->status());
  const uint32_t had = HadOf(*job);
  // With a quota, workers above `wanted` are for the tenant's other jobs.
  const bool has_quota = quotas_.HasQuota(job->status().tenant());
  const uint32_t most = has_quota ? range.wanted : range.most;
  if (had <= most || !PoolAfter(*job, Pool()).Take(*job, most)) return;
  Move(job,
       job->ScaleText(most, had > range.most ? "it is to have fewer workers"
                                             : "its tenant has a quota"),
       /*for_scale=*/true, now, actions);
}

void ClusterCore::GiveBack(absl::Span<Job* const> jobs, absl::Time now,
                           ClusterActions* actions) {
  MemberPool free = Pool();
  std::vector<Job*> givers;
  for (Job* job : jobs) {
    if (free.free().Covers(*held_up_)) break;
    const uint32_t wanted = RangeAfterSave(job->status()).wanted;
    if (HadOf(*job) <= wanted) continue;
    MemberPool after = PoolAfter(*job, free);
    if (!after.Take(*job, wanted)) continue;
    free = std::move(after);
    givers.push_back(job);
  }
  if (!free.free().Covers(*held_up_)) return;
  for (Job* job : givers) {
    const uint32_t wanted = RangeAfterSave(job->status()).wanted;
    Move(job, job->ScaleText(wanted, "another job waits for workers"),
         /*for_scale=*/true, now, actions);
  }
}

void ClusterCore::Grow(absl::Span<Job* const> jobs, absl::Time now,
                       ClusterActions* actions) {
  MemberPool free = Pool();
  for (Job* job : jobs) {
    const WorkerRange range = RangeAfterSave(job->status());
    const uint32_t had = HadOf(*job);
    const uint32_t most = MayTakeMost(*job) ? range.most : range.wanted;
    if (had >= most || !job->MayTakeMore(now, options_.grow_pause)) continue;
    MemberPool after = PoolAfter(*job, free);
    const uint32_t there = std::min(most, UsableWorkers(*job, after.free()));
    if (there <= had) continue;
    const uint32_t count = had + WithinQuota(*job, there - had);
    if (count == had || !after.Take(*job, count)) continue;
    free = std::move(after);
    Move(job, job->ScaleText(count, "more workers are free"),
         /*for_scale=*/true, now, actions);
  }
}

void ClusterCore::Move(Job* job, absl::string_view why, bool for_scale,
                       absl::Time now, ClusterActions* actions) {
  const uint64_t request = checkpoint_requests_ + 1;
  if (job->RequestMove(request, why, for_scale, now, actions)) {
    checkpoint_requests_ = request;
  }
}

}  // namespace syncline::scheduler

#include "scheduler/core/cluster/job_placement.h"

#include <algorithm>
#include <iterator>

#include "absl/algorithm/container.h"

namespace syncline::scheduler {

void MemberPool::Add(SessionId session, const Member& member, bool is_free) {
  switch (member.task().type()) {
    case CHIEF:
    case WORKER:
      ++total.workers;
      total.gpu_workers += member.has_gpu() ? 1 : 0;
      if (is_free) workers.push_back({session, member});
      break;
    case PS:
      ++total.ps;
      if (is_free) ps.push_back({session, member});
      break;
    case EVALUATOR:
      has_evaluator = true;
      if (is_free) evaluators.push_back({session, member});
      break;
    default:
      break;
  }
}

namespace {

bool HasGpu(const Job::Place& place) { return place.member.has_gpu(); }

}  // namespace

Capacity MemberPool::free() const {
  return {static_cast<uint32_t>(workers.size()),
          static_cast<uint32_t>(ps.size()),
          static_cast<uint32_t>(absl::c_count_if(workers, HasGpu))};
}

std::vector<Job::Place> MemberPool::WorkersFor(ResourcesSpec::Device device,
                                               uint32_t count) const {
  const auto with_gpu =
      static_cast<uint32_t>(absl::c_count_if(workers, HasGpu));
  const uint32_t without = static_cast<uint32_t>(workers.size()) - with_gpu;
  const bool prefers_gpus =
      device == ResourcesSpec::CUDA ||
      (device != ResourcesSpec::CPU && (with_gpu >= count || without < count));
  std::vector<Job::Place> ordered = workers;
  std::stable_partition(
      ordered.begin(), ordered.end(),
      [&](const Job::Place& place) { return HasGpu(place) == prefers_gpus; });
  ordered.erase(std::next(ordered.begin(), count), ordered.end());
  return ordered;
}

std::optional<Job::Place> MemberPool::EvaluatorFor(
    ResourcesSpec::Device device) const {
  for (const Job::Place& place : evaluators) {
    if (device != ResourcesSpec::CUDA || HasGpu(place)) return place;
  }
  return std::nullopt;
}

Capacity NeedOf(const Job& job) {
  const ResourcesSpec& resources = job.status().spec().resources();
  const bool wants_gpus = resources.device() == ResourcesSpec::CUDA;
  return {resources.workers(), resources.ps(),
          wants_gpus ? resources.workers() : 0};
}

void JobPlacement::OnStart(absl::Time now) {
  started_at_ = now;
  settled_at_ = now + settle_;
}

JobPlacement::Decision JobPlacement::Decide(const Job& job,
                                            const MemberPool& pool,
                                            absl::Time now) {
  const Capacity need = NeedOf(job);
  const bool fits = pool.total.Covers(need);
  if (fits) too_large_since_.erase(job.id());
  if (pool.free().Covers(need)) {
    return AwaitsEvaluator(job, pool, now) ? Decision::kHoldUp
                                           : Decision::kStart;
  }
  return fits || MayComeTogether(job, now) ? Decision::kHoldUp
                                           : Decision::kPass;
}

// A member that comes and goes all the time settles nothing: a job that has
// been too large for as long as settling takes is not waited for any longer.
bool JobPlacement::MayComeTogether(const Job& too_large, absl::Time now) {
  const auto since = too_large_since_.try_emplace(too_large.id(), now).first;
  return now < settled_at_ && now < since->second + settle_;
}

// Once the cluster is there no job waits for an evaluator: it is taken if it is
// free.
bool JobPlacement::AwaitsEvaluator(const Job& job, const MemberPool& pool,
                                   absl::Time now) const {
  return expects_evaluator_ && job.WantsEvaluator() &&
         now < started_at_ + settle_ && !pool.has_evaluator;
}

std::string JobPlacement::WaitingText(const Job& job, const MemberPool& pool,
                                      absl::Time now) const {
  if (pool.free().Covers(NeedOf(job)) && AwaitsEvaluator(job, pool, now)) {
    return "the cluster's evaluator, which may still come";
  }
  return scheduler::WaitingText(NeedOf(job), pool.free(), pool.total);
}

}  // namespace syncline::scheduler

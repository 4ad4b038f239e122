#include "scheduler/core/cluster/job_placement.h"

namespace syncline::scheduler {

void MemberPool::Add(SessionId session, const Member& member, bool is_free) {
  switch (member.task().type()) {
    case CHIEF:
    case WORKER:
      ++total.workers;
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

Capacity MemberPool::free() const {
  return {static_cast<uint32_t>(workers.size()),
          static_cast<uint32_t>(ps.size())};
}

Capacity NeedOf(const Job& job) {
  const ResourcesSpec& resources = job.status().spec().resources();
  return {resources.workers(), resources.ps()};
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

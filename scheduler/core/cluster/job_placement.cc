#include "scheduler/core/cluster/job_placement.h"

#include <algorithm>
#include <iterator>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/job/evaluate_validator.h"
#include "common/job/worker_groups.h"
#include "scheduler/core/describe.h"
#include "scheduler/core/job/worker_range.h"

namespace syncline::scheduler {

void MemberPool::Add(SessionId session, const Member& member, bool is_free) {
  switch (member.task().type()) {
    case CHIEF:
    case WORKER:
      ++total.workers;
      total.gpu_workers += member.has_gpu() ? 1 : 0;
      break;
    case PS:
      ++total.ps;
      break;
    case EVALUATOR:
      has_evaluator = true;
      has_gpu_evaluator |= member.has_gpu();
      break;
    default:
      break;
  }
  if (is_free) Free(session, member);
}

void MemberPool::Free(SessionId session, const Member& member) {
  switch (member.task().type()) {
    case CHIEF:
    case WORKER:
      workers.push_back({session, member});
      break;
    case PS:
      ps.push_back({session, member});
      break;
    case EVALUATOR:
      evaluators.push_back({session, member});
      break;
    default:
      break;
  }
}

namespace {

bool HasGpu(const Job::Place& place) { return place.member.has_gpu(); }

// Whether an evaluator is free that the job can have.
bool EvaluatorIn(const MemberPool& pool, const Job& job) {
  return pool.EvaluatorFor(job.status().spec().resources().device())
      .has_value();
}

bool WantsGpus(const Job& job) {
  return job.status().spec().resources().device() == ResourcesSpec::CUDA;
}

// Whether there is an evaluator that the job can have, free or not.
bool HasEvaluatorFor(const MemberPool& pool, const Job& job) {
  return WantsGpus(job) ? pool.has_gpu_evaluator : pool.has_evaluator;
}

}  // namespace

Capacity MemberPool::free() const {
  return {static_cast<uint32_t>(workers.size()),
          static_cast<uint32_t>(ps.size()),
          static_cast<uint32_t>(absl::c_count_if(workers, HasGpu))};
}

namespace {

// `group` places of each of count / group hosts; nothing: there are too few.
// `hosts`: places by host. REQUIRES: group divides count.
std::vector<Job::Place> OfEqualHosts(
    absl::Span<const std::vector<Job::Place>> hosts, uint32_t group,
    uint32_t count) {
  std::vector<Job::Place> chosen;
  for (const std::vector<Job::Place>& of_host : hosts) {
    if (of_host.size() < group || chosen.size() == count) continue;
    chosen.insert(chosen.end(), of_host.begin(), of_host.begin() + group);
  }
  if (chosen.size() < count) chosen.clear();
  return chosen;
}

// As WorkersFor, of a job with groups.by_host.
std::vector<Job::Place> ByHost(const Job& job,
                               absl::Span<const Job::Place> ordered,
                               uint32_t count) {
  std::vector<std::vector<Job::Place>> hosts;  // by their first place
  for (const Job::Place& place : ordered) {
    const auto host = absl::c_find_if(hosts, [&](const auto& of) {
      return of[0].member.hostname() == place.member.hostname();
    });
    if (host == hosts.end()) {
      hosts.push_back({place});
    } else {
      host->push_back(place);
    }
  }
  std::vector<uint32_t> sizes;
  if (const auto former = WorkerGroups::Of(job.status());
      former.ok() && former->count() > 0) {
    sizes.push_back(former->size());
  }
  for (uint32_t group = count; group > 0; --group) sizes.push_back(group);
  for (const uint32_t group : sizes) {
    if (count % group != 0) continue;
    std::vector<Job::Place> chosen = OfEqualHosts(hosts, group, count);
    if (!chosen.empty()) return chosen;
  }
  return {ordered.begin(), ordered.begin() + count};
}

}  // namespace

std::vector<Job::Place> MemberPool::WorkersFor(const Job& job,
                                               uint32_t count) const {
  const ResourcesSpec::Device device = job.status().spec().resources().device();
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
  // Those of the other kind come where there are too few of one.
  const auto fitting = static_cast<uint32_t>(absl::c_count_if(
      ordered,
      [&](const Job::Place& place) { return HasGpu(place) == prefers_gpus; }));
  if (job.status().spec().groups().by_host()) {
    return ByHost(job,
                  absl::MakeConstSpan(ordered).first(
                      fitting >= count ? fitting : ordered.size()),
                  count);
  }
  ordered.erase(std::next(ordered.begin(), count), ordered.end());
  return ordered;
}

bool MemberPool::HasEvenHosts(const Job& job, uint32_t count) const {
  absl::flat_hash_map<std::string, uint32_t> workers;
  for (const Job::Place& place : WorkersFor(job, count)) {
    ++workers[place.member.hostname()];
  }
  return absl::c_all_of(workers, [&](const auto& host) {
    return host.second == workers.begin()->second;
  });
}

namespace {

// The job waits for other hosts, though enough workers are free.
bool LacksHosts(const Job& job, const MemberPool& pool) {
  const uint32_t workers = NeedOf(job).workers;
  return job.status().spec().groups().by_host() && job.status().attempt() > 0 &&
         pool.free().workers >= workers && !pool.HasEvenHosts(job, workers);
}

}  // namespace

std::optional<Job::Place> MemberPool::EvaluatorFor(
    ResourcesSpec::Device device) const {
  for (const Job::Place& place : evaluators) {
    if (device != ResourcesSpec::CUDA || HasGpu(place)) return place;
  }
  return std::nullopt;
}

namespace {

void Remove(const Job::Place& place, std::vector<Job::Place>* places) {
  places->erase(absl::c_find_if(*places, [&](const Job::Place& other) {
    return other.session == place.session;
  }));
}

}  // namespace

bool MemberPool::Take(const Job& job, uint32_t count) {
  const Capacity need = CapacityOf(job, count);
  if (!free().Covers(need) ||
      (job.NeedsEvaluator() && !EvaluatorIn(*this, job))) {
    return false;
  }
  const ResourcesSpec::Device device = job.status().spec().resources().device();
  for (const Job::Place& place : WorkersFor(job, need.workers)) {
    Remove(place, &workers);
  }
  ps.erase(ps.begin(), ps.begin() + need.ps);
  const std::optional<Job::Place> evaluator = EvaluatorFor(device);
  if (job.WantsEvaluator() && evaluator.has_value()) {
    Remove(*evaluator, &evaluators);
  }
  return true;
}

Capacity CapacityOf(const Job& job, uint32_t workers) {
  if (OnlyEvaluates(job.status().spec())) {
    return {1, 0, WantsGpus(job) ? 1u : 0u};
  }
  return {workers, job.status().spec().resources().ps(),
          WantsGpus(job) ? workers : 0};
}

uint32_t UsableWorkers(const Job& job, const Capacity& there) {
  return WantsGpus(job) ? there.gpu_workers : there.workers;
}

Capacity NeedOf(const Job& job) {
  return CapacityOf(job, RangeOf(job.status()).wanted);
}

Capacity LeastOf(const Job& job) {
  return CapacityOf(job, RangeOf(job.status()).least);
}

uint32_t WorkersToTake(const Job& job, const MemberPool& free,
                       bool takes_most) {
  if (OnlyEvaluates(job.status().spec())) return 1;
  const WorkerRange range = RangeOf(job.status());
  return std::min(UsableWorkers(job, free.free()),
                  takes_most ? range.most : range.wanted);
}

void JobPlacement::OnStart(absl::Time now) {
  started_at_ = now;
  settled_at_ = now + settle_;
}

JobPlacement::Decision JobPlacement::Decide(const Job& job,
                                            const MemberPool& pool,
                                            absl::Time now) {
  if (now < job.restart_time()) {
    return job.restart_time() - now <= settle_ ? Decision::kHoldUp
                                               : Decision::kPass;
  }
  const Capacity least = LeastOf(job);
  const bool fits = pool.total.Covers(least);
  if (fits) too_large_since_.erase(job.id());
  if (OnlyEvaluates(job.status().spec()) && EvaluatorIn(pool, job)) {
    return Decision::kStart;
  }
  if (fits && job.NeedsEvaluator() && !EvaluatorIn(pool, job)) {
    return HasEvaluatorFor(pool, job) || now < settled_at_ ? Decision::kHoldUp
                                                           : Decision::kPass;
  }
  const Capacity free = pool.free();
  if (free.Covers(NeedOf(job)) ||
      (free.Covers(least) && MayStartShort(job, now))) {
    if (LacksHosts(job, pool)) return Decision::kPass;
    if (AwaitsEvaluator(job, pool, now)) return Decision::kHoldUp;
    short_since_.erase(job.id());
    return Decision::kStart;
  }
  if (!free.Covers(least)) short_since_.erase(job.id());
  return fits || MayComeTogether(job, now) ? Decision::kHoldUp
                                           : Decision::kPass;
}

// A member that comes and goes all the time settles nothing: a job that has
// been too large for as long as settling takes is not waited for any longer.
bool JobPlacement::MayComeTogether(const Job& too_large, absl::Time now) {
  const auto since = too_large_since_.try_emplace(too_large.id(), now).first;
  return now < settled_at_ && now < since->second + settle_;
}

bool JobPlacement::MayStartShort(const Job& job, absl::Time now) {
  if (job.status().attempt() > 0) {
    // One that an earlier scheduler left in the queue waits for its cluster.
    return job.since() > started_at_ || now >= started_at_ + settle_;
  }
  return now >= short_since_.try_emplace(job.id(), now).first->second + settle_;
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
  if (now < job.restart_time()) {
    return absl::StrCat("its next attempt, which begins ",
                        SecondsText(job.restart_time() - job.since()),
                        " after the end of the one before");
  }
  if (pool.free().Covers(NeedOf(job)) && LacksHosts(job, pool)) {
    return "as many free workers on each of some hosts: groups.by_host";
  }
  if (pool.free().Covers(NeedOf(job)) && AwaitsEvaluator(job, pool, now)) {
    return "the cluster's evaluator, which may still come";
  }
  if (job.NeedsEvaluator() && !EvaluatorIn(pool, job) &&
      pool.free().Covers(NeedOf(job))) {
    return HasEvaluatorFor(pool, job)
               ? "the cluster's evaluator to be free: evaluate.checkpoints "
                 "needs it"
               : absl::StrCat(
                     WantsGpus(job) ? "an evaluator with a GPU, "
                                    : "an evaluator, ",
                     "which evaluate.checkpoints needs and the cluster has "
                     "not: start syncline-worker --task=evaluator");
  }
  const Capacity need = NeedOf(job);
  const Capacity least = LeastOf(job);
  if (need.workers == least.workers) {
    return scheduler::WaitingText(need, pool.free(), pool.total);
  }
  if (pool.free().Covers(least)) {
    return absl::StrCat(scheduler::WaitingText(need, pool.free(), need),
                        "; it begins with fewer workers where no more come "
                        "within ",
                        SecondsText(settle_));
  }
  return absl::StrCat(scheduler::WaitingText(least, pool.free(), pool.total),
                      "; it should have ", CountText(need.workers, "worker"));
}

}  // namespace syncline::scheduler

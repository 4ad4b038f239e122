#ifndef SYNCLINE_SCHEDULER_CORE_CLUSTER_JOB_PLACEMENT_H_
#define SYNCLINE_SCHEDULER_CORE_CLUSTER_JOB_PLACEMENT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "proto/cluster.pb.h"
#include "scheduler/core/cluster/job_queue.h"
#include "scheduler/core/job/job.h"

namespace syncline::scheduler {

// The members of a cluster that jobs are placed on: those whose address is
// confirmed.
struct MemberPool {
  // Free ones: they work for no job.
  std::vector<Job::Place> workers;
  std::vector<Job::Place> ps;
  std::vector<Job::Place> evaluators;
  // All of them, whether they work or not.
  Capacity total;
  bool has_evaluator = false;
  bool has_gpu_evaluator = false;

  void Add(SessionId session, const Member& member, bool is_free);
  // A member that was added as one that works is free.
  void Free(SessionId session, const Member& member);
  // Without the members that the job is given with so many workers. False: they
  // are not free; nothing has changed.
  bool Take(const Job& job, uint32_t count);
  Capacity free() const;
  // The free workers that a job is given which needs `count` of them, by rank.
  // ResourcesSpec.Device says which; of equal ones the first. With
  // groups.by_host as many of each host, those of a host next to each other, so
  // that a group has the same ranks in each attempt: groups of the size that
  // they had before, else the largest that there are. Where there is no such
  // choice the groups will be refused. REQUIRES: there are enough.
  std::vector<Job::Place> WorkersFor(const Job& job, uint32_t count) const;
  // Whether these are as many of each host. REQUIRES: as WorkersFor.
  bool HasEvenHosts(const Job& job, uint32_t count) const;
  // The evaluator for such a job, if one is free that fits.
  std::optional<Job::Place> EvaluatorFor(ResourcesSpec::Device device) const;
};

// The capacity of the job with so many workers, the one that it should have,
// and the least that it goes on with (WorkerRange).
Capacity CapacityOf(const Job& job, uint32_t workers);
Capacity NeedOf(const Job& job);
Capacity LeastOf(const Job& job);
// How many of these count for the job: all workers, or those with a GPU.
uint32_t UsableWorkers(const Job& job, const Capacity& there);
// How many of the free workers it is given: as many as it should have, with
// `takes_most` up to its most, or as many as there are. REQUIRES: they cover
// LeastOf.
uint32_t WorkersToTake(const Job& job, const MemberPool& free, bool takes_most);

// Decides whether a queued job starts, and whether it holds up those behind it.
// A job that has to wait for running ones holds up those behind it, so that it
// is not starved. One that the members there are could never run does not: it
// keeps its place for when more of them join.
//
// A job whose next attempt is put off holds up those behind it if the wait is
// no longer than `settle`: the members that it had are soon needed again.
//
// A job with groups.by_host that has run before waits until as many workers are
// free on each host, and holds up nobody: other hosts may come back. Its first
// attempt says at once what is wrong.
//
// A job that goes on with fewer workers than it should have (LeastOf) is given
// those that are free at once where it has run before: members of its own were
// lost or are drained. Its first attempt waits for all of them, for `settle`
// from when it could have begun; so does one that was in the queue when the
// scheduler started.
//
// After the scheduler's start and after a loss the cluster may still come
// together: for `settle` no job overtakes one that the cluster is too small
// for. Pure, thread-compatible.
class JobPlacement {
 public:
  // `expects_evaluator`: one is on its way. After the start, for `settle`, a
  // job that has something to evaluate waits for it.
  JobPlacement(absl::Duration settle, bool expects_evaluator)
      : settle_(settle), expects_evaluator_(expects_evaluator) {}

  // The scheduler has started; a member was lost.
  void OnStart(absl::Time now);
  void OnMemberLost(absl::Time now) { settled_at_ = now + settle_; }
  // The job has left the queue.
  void Forget(const std::string& job_id) {
    too_large_since_.erase(job_id);
    short_since_.erase(job_id);
  }

  // kStart: the free members are enough. kHoldUp: it waits, and so do those
  // behind it. kPass: it waits, those behind it need not.
  enum class Decision { kStart, kHoldUp, kPass };
  Decision Decide(const Job& job, const MemberPool& pool, absl::Time now);

  // The reason why the job waits, for people.
  std::string WaitingText(const Job& job, const MemberPool& pool,
                          absl::Time now) const;

 private:
  bool MayComeTogether(const Job& too_large, absl::Time now);
  bool MayStartShort(const Job& job, absl::Time now);
  bool AwaitsEvaluator(const Job& job, const MemberPool& pool,
                       absl::Time now) const;

  const absl::Duration settle_;
  const bool expects_evaluator_;
  absl::Time started_at_ = absl::InfinitePast();
  absl::Time settled_at_ = absl::InfinitePast();
  absl::flat_hash_map<std::string, absl::Time> too_large_since_;  // by job
  // Jobs that could begin with fewer workers than they should have.
  absl::flat_hash_map<std::string, absl::Time> short_since_;
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_CLUSTER_JOB_PLACEMENT_H_

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

  void Add(SessionId session, const Member& member, bool is_free);
  Capacity free() const;
  // The free workers that a job is given which needs `count` of them, in their
  // order; ResourcesSpec.Device says which. REQUIRES: there are enough.
  std::vector<Job::Place> WorkersFor(ResourcesSpec::Device device,
                                     uint32_t count) const;
  // The evaluator for such a job, if one is free that fits.
  std::optional<Job::Place> EvaluatorFor(ResourcesSpec::Device device) const;
};

Capacity NeedOf(const Job& job);

// Decides whether a queued job starts, and whether it holds up those behind it.
// A job that has to wait for running ones holds up those behind it, so that it
// is not starved. One that the members there are could never run does not: it
// keeps its place for when more of them join.
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
  void Forget(const std::string& job_id) { too_large_since_.erase(job_id); }

  // kStart: the free members are enough. kHoldUp: it waits, and so do those
  // behind it. kPass: it waits, those behind it need not.
  enum class Decision { kStart, kHoldUp, kPass };
  Decision Decide(const Job& job, const MemberPool& pool, absl::Time now);

  // The reason why the job waits, for people.
  std::string WaitingText(const Job& job, const MemberPool& pool,
                          absl::Time now) const;

 private:
  bool MayComeTogether(const Job& too_large, absl::Time now);
  bool AwaitsEvaluator(const Job& job, const MemberPool& pool,
                       absl::Time now) const;

  const absl::Duration settle_;
  const bool expects_evaluator_;
  absl::Time started_at_ = absl::InfinitePast();
  absl::Time settled_at_ = absl::InfinitePast();
  absl::flat_hash_map<std::string, absl::Time> too_large_since_;  // by job
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_CLUSTER_JOB_PLACEMENT_H_

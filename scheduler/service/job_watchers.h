#ifndef SYNCLINE_SCHEDULER_SERVICE_JOB_WATCHERS_H_
#define SYNCLINE_SCHEDULER_SERVICE_JOB_WATCHERS_H_

#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "proto/job.pb.h"

namespace syncline::scheduler {

// Sees a job change. Calls come from the control loop's thread and must not
// block.
class JobWatcher {
 public:
  virtual ~JobWatcher() = default;
  // In order; at most one per tick, but each new state at once, and one every
  // two seconds even if nothing changes. After a final state nothing more
  // comes.
  virtual void OnStatus(std::shared_ptr<const JobStatus> status) = 0;
  virtual void OnDrain() = 0;
};

// The watchers of all jobs, and the jobs that have changed since their watchers
// were told. For one thread, that of the control loop.
class JobWatchers {
 public:
  void Add(const std::string& job_id, std::shared_ptr<JobWatcher> watcher);
  // No effect if it does not watch the job any more.
  void Remove(const std::string& job_id, const JobWatcher* watcher);

  void MarkChanged(const std::string& job_id) { changed_.insert(job_id); }
  // The jobs whose watchers are to be told at this tick: those that have
  // changed, and every two seconds all that are watched.
  std::set<std::string> TakeChanged(absl::Time now);
  // Sends the status to the job's watchers. A final state ends their streams.
  void Tell(const std::shared_ptr<const JobStatus>& status);

  // Tells every watcher that the scheduler stops, and ends its stream.
  void Drain();

 private:
  std::multimap<std::string, std::shared_ptr<JobWatcher>> watchers_;  // by job
  std::set<std::string> changed_;
  absl::Time beat_at_ = absl::InfinitePast();
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_SERVICE_JOB_WATCHERS_H_

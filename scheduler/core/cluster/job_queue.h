#ifndef SYNCLINE_SCHEDULER_CORE_CLUSTER_JOB_QUEUE_H_
#define SYNCLINE_SCHEDULER_CORE_CLUSTER_JOB_QUEUE_H_

#include <cstdint>
#include <deque>
#include <string>

namespace syncline::scheduler {

// How many members of each kind: needed, free, or ever there. The chief counts
// as a worker.
struct Capacity {
  uint32_t workers = 0;
  uint32_t ps = 0;
  uint32_t gpu_workers = 0;  // of the workers: with a GPU
  bool Covers(const Capacity& need) const {
    return workers >= need.workers && ps >= need.ps &&
           gpu_workers >= need.gpu_workers;
  }
};

// Jobs that wait, in the order of submission. Pure, thread-compatible.
class JobQueue {
 public:
  void Push(std::string job_id) { ids_.push_back(std::move(job_id)); }
  // Of a job that waits again: before those that were submitted later. No
  // effect if it is in the queue.
  void Return(const std::string& job_id);
  // False if it is not in the queue.
  bool Remove(const std::string& job_id);

  bool empty() const { return ids_.empty(); }
  size_t size() const { return ids_.size(); }
  const std::deque<std::string>& ids() const { return ids_; }

 private:
  std::deque<std::string> ids_;
};

// The reason why a queued job waits: "needs 3 workers and 2 ps; free: 2
// workers, 2 ps"; of one that needs GPUs: "needs 3 workers with a GPU and 2 ps;
// free: 4 workers (1 with a GPU), 2 ps". `total` are all members. The text of a
// job that needs more than `total` says so, because only more daemons will
// start it.
std::string WaitingText(const Capacity& need, const Capacity& free,
                        const Capacity& total);

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_CLUSTER_JOB_QUEUE_H_

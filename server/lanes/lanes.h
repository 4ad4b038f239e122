#ifndef SYNCLINE_SERVER_LANES_LANES_H_
#define SYNCLINE_SERVER_LANES_LANES_H_

#include <deque>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "common/base/mutex.h"
#include "common/system/thread_pool.h"
#include "common/update/dense_updater.h"
#include "server/consistency/shard_call.h"

namespace syncline::ps {

// Threads that own blocks and slots of tables: only its lane touches one. Dense
// block b of every shard belongs to lane b mod count; TableShard::LaneOf deals
// out slots. Tasks of one lane run in the order in which they were submitted,
// so data needs no lock. Thread-safe.
class Lanes {
 public:
  using Task = absl::AnyInvocable<void(DenseUpdater::Scratch*)>;

  explicit Lanes(int count);
  ~Lanes();  // runs what was submitted, joins

  int count() const { return static_cast<int>(lanes_.size()); }
  // Tasks that wait in the queues now, over all lanes.
  size_t queued() const;
  int LaneOf(BlockIndex block) const {
    return static_cast<int>(block % lanes_.size());
  }
  // Never blocks and never refuses: what may wait is bounded by what callers
  // may have in flight.
  void Submit(int lane, Task task);
  // The same; but if the lane has nothing to do, it returns true and leaves the
  // task to the caller, for whom waking another thread would take longer than
  // the task: RunHere must follow soon, with no lock held that tasks take.
  // Until then the lane stands still.
  [[nodiscard]] bool SubmitHere(int lane, Task task);
  void RunHere(int lane);
  // Runs `task` in some lane once all that was submitted before has run, in all
  // lanes.
  void SubmitAfterAll(Task task);
  // Blocks until all that was submitted before has run. Not from a lane.
  void Drain();

 private:
  struct Lane {
    explicit Lane(int index);
    DenseUpdater::Scratch scratch;  // of the thread that runs the lane
    Mutex mu;
    std::deque<Task> queue ABSL_GUARDED_BY(mu);
    // A thread runs it, or is about to. False: the queue is empty.
    bool running ABSL_GUARDED_BY(mu) = false;
    ThreadPool thread;  // last: it uses the rest
  };
  // Has the lane's own thread run what is queued.
  static void Wake(Lane* lane);
  static void RunQueued(Lane* lane);

  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_LANES_LANES_H_

#ifndef SYNCLINE_WORKER_DATA_PREFETCHER_H_
#define SYNCLINE_WORKER_DATA_PREFETCHER_H_

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "worker/data/batch.h"
#include "worker/data/dataset.h"
#include "worker/data/rounds.h"

namespace syncline::worker {

// Reads the batches of a worker's clocks, from first_clock on, on its own
// thread, a few ahead of the training thread. A clock has one batch, or in
// LOCAL those of its steps; they are the same wherever reading begins, and the
// samples of earlier ones are not read.
// Thread-compatible: one thread calls Next.
class Prefetcher {
 public:
  struct Options {
    BatchPlan::Options plan;
    int64_t clocks = 0;          // of the job
    int64_t steps_of_clock = 1;  // Rounds
    int64_t first_clock = 0;     // in [0, clocks]; clocks: there is nothing
    int depth = 2;  // batches read ahead, > 0; this bounds the memory
  };
  // `dataset` outlives the prefetcher. Starts reading.
  Prefetcher(const Dataset* dataset, const Options& options);
  ~Prefetcher();  // stops after the batch being read, joins
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // The batch of the next step; its size is 0 where the plan gives this rank
  // nothing. Borrowed until the next call that succeeds. Blocks until the batch
  // is there. Errors: DeadlineExceeded (call again to go on waiting),
  // OutOfRange after the last clock.
  absl::StatusOr<const Batch*> Next(absl::Time deadline);

  // Next goes on with the first batch of `clock`; those before it are not read,
  // unless they have been already. Ends the loan of what Next has returned.
  // REQUIRES: no clock before the next one's, nor behind the last one's.
  void SkipTo(int64_t clock);

  // The batch that Next will return, if it has been read; else null. Borrowed
  // as that one will be; what Next has returned stays borrowed. Does not block.
  const Batch* Peek();

  // Any thread.
  const Rounds& rounds() const { return rounds_; }
  // How long Next has blocked in all. Any thread.
  absl::Duration waited() const { return absl::Nanoseconds(waited_ns_.load()); }

 private:
  void ReadAhead();
  // Waits until the batch of `step` has a free slot; false: closed.
  bool AwaitSlot(int64_t step);
  bool IsSkipped(int64_t step);

  const Dataset* const dataset_;
  BatchPlan plan_;  // the reading thread's, but for its constants
  const Rounds rounds_;
  const int64_t clocks_;
  // Steps are numbered over all epochs, as Rounds has them.
  const int64_t steps_;
  const int64_t first_step_;
  std::vector<Batch> slots_;  // step s is in slot s % (depth + 1)
  std::atomic<int64_t> waited_ns_{0};

  Mutex mu_;
  CondVar changed_;
  // Steps [first_step_, read_) were read, [first_step_, consumed_) may go.
  int64_t read_ ABSL_GUARDED_BY(mu_);
  int64_t consumed_ ABSL_GUARDED_BY(mu_);
  int64_t skipped_to_ ABSL_GUARDED_BY(mu_) = 0;  // batches below are not wanted
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  int64_t next_;  // the caller's
  std::thread thread_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DATA_PREFETCHER_H_

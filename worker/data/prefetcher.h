#ifndef SYNCLINE_WORKER_DATA_PREFETCHER_H_
#define SYNCLINE_WORKER_DATA_PREFETCHER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <optional>
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
// samples of earlier ones are not read. With leased data it reads the batches
// of the steps that it is given.
// Thread-compatible: one thread calls Next.
class Prefetcher {
 public:
  struct Options {
    BatchPlan::Options plan;
    int64_t clocks = 0;          // of the job
    int64_t steps_of_clock = 1;  // Rounds
    int64_t first_clock = 0;     // in [0, clocks]; clocks: there is nothing
    // The rank's steps come with AddStep, none is known at the start.
    // REQUIRES: steps_of_clock is 1.
    bool leases = false;
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
  // OutOfRange after the last clock. With leases, REQUIRES: it was given.
  absl::StatusOr<const Batch*> Next(absl::Time deadline);

  // With leases: the rank will make this step behind those it was given before,
  // which are smaller.
  void AddStep(int64_t step);

  // Next goes on with the first batch of `clock`; those before it are not read,
  // unless they have been already. Ends the loan of what Next has returned.
  // REQUIRES: no clock before the next one's, nor behind the last one's.
  void SkipTo(int64_t clock);

  // From `clock` on, whose first batch is the one that Next returns next, the
  // rank's batches are those of rank `rank` among so many workers
  // (BatchPlan::ShareAmong); what was read ahead is read again. Ends the loan
  // of what Next has returned. REQUIRES: no leases.
  void ShareAmong(int64_t clock, uint32_t workers, uint32_t rank);

  // The batch that Next will return, if it has been read; else null. Borrowed
  // as that one will be; what Next has returned stays borrowed. Does not block.
  const Batch* Peek();

  // Any thread.
  const Rounds& rounds() const { return rounds_; }
  // How long Next has blocked in all. Any thread.
  absl::Duration waited() const { return absl::Nanoseconds(waited_ns_.load()); }

 private:
  void ReadAhead();
  // Waits until the rank's step of this number is known and its batch has a
  // free slot; takes another share over, which sets the number back. None:
  // reading ends.
  std::optional<int64_t> AwaitStep(int64_t* number);
  bool IsSkipped(int64_t step);

  const Dataset* const dataset_;
  BatchPlan plan_;  // the reading thread's, but for its constants
  const Rounds rounds_;
  const int64_t clocks_;
  // Steps are numbered over all epochs, as Rounds has them. Those of the rank
  // are counted from 0: number n is first_step_ + n, or with leases the one
  // that AddStep gave as the n-th.
  const int64_t steps_;
  const int64_t first_step_;
  const bool leases_;
  std::vector<Batch> slots_;  // number n is in slot n % (depth + 1)
  std::atomic<int64_t> waited_ns_{0};

  Mutex mu_;
  CondVar changed_;
  // Numbers below read_ were read, those below consumed_ may go.
  int64_t read_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t consumed_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t skipped_to_ ABSL_GUARDED_BY(mu_) = 0;  // batches below are not wanted
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  // ShareAmong's, until the reading thread has taken it over.
  struct Share {
    int64_t from = 0;  // the number of its first step
    uint32_t workers = 1;
    uint32_t rank = 0;
  };
  std::optional<Share> share_ ABSL_GUARDED_BY(mu_);
  // With leases: those that are not read yet, and how many there were.
  std::deque<int64_t> given_ ABSL_GUARDED_BY(mu_);
  int64_t given_count_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t next_ = 0;  // the caller's
  std::thread thread_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DATA_PREFETCHER_H_

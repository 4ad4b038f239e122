#ifndef SYNCLINE_WORKER_TRAINING_STEP_ROWS_H_
#define SYNCLINE_WORKER_TRAINING_STEP_ROWS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/compute/late_gradient.h"
#include "worker/data/prefetcher.h"
#include "worker/embedding/training_row_cache.h"
#include "worker/exchange/parameter_exchange.h"
#include "worker/job/prepared_job.h"
#include "worker/job/worker_metrics.h"

namespace syncline::worker {

// The rows of a job's embedding tables around one training step after the
// other: which rows the step's batch reads, which of them the training row
// cache has, and which are pulled when. One thread.
//
//   Ready(c) -> PullEarly -> backward -> Next -> OnGradient(c)
//            -> ParameterExchange::Wait -> OnPulled -> Ready(the clock after c)
//
// PullEarly and Next are left out where nothing is pulled for the next step.
// Where the clock after c pushes the late gradient of c, ReadyLate takes the
// place of Ready, and neither PullEarly nor backward follows.
class StepRows {
 public:
  // REQUIRES: the job has tables. The objects outlive this.
  StepRows(const PreparedJob& job, int64_t clocks_total, Prefetcher* prefetcher,
           ParameterExchange* parameters, WorkerMetrics* metrics);

  // Has the rows of `batch`, which is that of `clock`, and gives them to the
  // executor. Blocks where the step before did not pull them. `following`: the
  // rank's clock after it. Errors: ParameterExchange's.
  absl::Status Ready(int64_t clock, int64_t following, const Batch& batch);
  // In place of Ready, where step `clock` pushes the gradients of the latest
  // step, which are in current() still: returns them, by table. `reads`: with
  // the values of that step, and the rows of its keys as of `clock`, for which
  // this blocks; these take the memory of the rows that were read for `clock`'s
  // own batch. Good until Next. Errors: ParameterExchange's.
  absl::StatusOr<std::vector<LateGradient::Rows>> ReadyLate(int64_t clock,
                                                            int64_t following,
                                                            bool reads);
  absl::Span<RowBatch* const> current() const { return job_.rows->current(); }

  // Asks for the rows of the next batch that the consistency mode lets be read
  // before this step's gradients are applied.
  void PullEarly();
  // The rows that the next batch reads; empty if that batch is not known yet.
  absl::Span<RowBatch* const> Next() { return Collected(/*early=*/false); }
  // The gradients of `clock`, of so many samples, are known: applies them to
  // the cached rows.
  void OnGradient(int64_t clock, uint64_t samples);
  // Rows that were read for the next step do not count: Ready reads them again.
  void Forget() { next_clock_ = -1; }
  // The rows of Next have been read: caches them.
  void OnPulled();

 private:
  // Next; `early`: rows that this step does not push are wanted early.
  absl::Span<RowBatch* const> Collected(bool early);
  // Wants of `rows`, which step `clock` reads, those that are not cached.
  // `current`, of the step before, is still to be pushed; or empty.
  void Select(int64_t clock, bool early, absl::Span<RowBatch* const> current,
              absl::Span<RowBatch* const> rows);
  void Cache(int64_t clock, absl::Span<RowBatch* const> rows);

  const PreparedJob& job_;
  Prefetcher& prefetcher_;
  ParameterExchange& parameters_;
  WorkerMetrics& metrics_;
  // By table; null: the table has no cache.
  std::vector<std::unique_ptr<TrainingRowCache>> caches_;
  // The clock that job_.rows->next() has been collected for; -1: none.
  int64_t next_clock_ = -1;
  int64_t following_ = 0;  // the clock after the step's
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_TRAINING_STEP_ROWS_H_

#ifndef SYNCLINE_WORKER_EMBEDDING_TRAINING_ROW_CACHE_H_
#define SYNCLINE_WORKER_EMBEDDING_TRAINING_ROW_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/regime/regime_schedule.h"
#include "common/update/step_rule.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/optimizer/row_optimizer.h"
#include "proto/job_spec.pb.h"
#include "worker/embedding/row_batch.h"
#include "worker/embedding/row_cache.h"

namespace syncline::worker {

// Rows of one embedding table that a rank has pulled for a step and trains on
// in later ones without a pull (TableSpec.cache_clocks). Cached rows keep the
// promises of the consistency mode as pulled rows do:
//
//   staleness  a row is used at step c if all workers' steps before c - bound
//              were in it when it was pulled, and at most cache_clocks clocks
//              after the step it was pulled for
//   own        the rank's pushes are applied to the cached rows by the code
//   writes     that a ps runs, StepRule and RowOptimizer; hence SGD only, whose
//              update is a function of value, gradient and clock
//
// For each step c, in this order: Select while it is known which rows step c +
// 1 reads, Update when the gradients of c are, Keep when the pulled rows of c +
// 1 are there. Thread-compatible.
class TrainingRowCache {
 public:
  struct Options {
    size_t rows_max = 0;
    size_t dim = 0;
    int64_t clocks = 0;         // > 0
    OptimizerParams optimizer;  // kSgd
    // Its regimes have the bound and the wire type of gradients, too; none of
    // them is SYNC.
    StepRule rule;
  };
  // For a job whose spec has its defaults and passed validation; none where
  // table `table` has no such cache. `regimes` and `total_clocks` are the
  // job's.
  static std::optional<Options> OptionsOf(const JobSpec& spec,
                                          const RegimeSchedule& regimes,
                                          int table, size_t dim,
                                          int64_t total_clocks);

  explicit TrainingRowCache(const Options& options);

  // `next` has the rows that step `clock` will read, `current` those of the
  // step before, or is null if its Update is done. Marks the rows of `next`
  // that are not cached as wanted; if `early`, those that `current` does not
  // push as wanted early. The other rows get their values at once or, if
  // `current` pushes them, by Update.
  void Select(int64_t clock, const RowBatch* current, bool early,
              RowBatch* next);
  // Applies the gradients of `current`, of step `clock`, with `samples`
  // samples (0: none of them was pushed), to the cached rows, and gives `next`
  // of the latest Select the values that it lacks; null: there is none.
  void Update(int64_t clock, uint64_t samples, const RowBatch& current,
              RowBatch* next);
  // Caches the pulled rows of `rows`, which step `clock` will read.
  void Keep(int64_t clock, RowBatch* rows);

 private:
  int64_t OldestAsOf(int64_t clock) const;

  const Options options_;
  const RowOptimizer optimizer_;
  RowCache cache_;
  std::vector<uint32_t> due_;  // of `next`, by place: wait for Update
  // Update's scratch.
  std::vector<const float*> gradients_;
  std::vector<float*> rows_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_EMBEDDING_TRAINING_ROW_CACHE_H_

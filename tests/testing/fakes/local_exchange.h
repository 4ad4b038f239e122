#ifndef SYNCLINE_TESTS_TESTING_FAKES_LOCAL_EXCHANGE_H_
#define SYNCLINE_TESTS_TESTING_FAKES_LOCAL_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/update/dense_updater.h"
#include "common/update/float_source.h"
#include "common/update/norm_reducer.h"
#include "common/update/reduction_round.h"
#include "common/wire/block_map.h"
#include "kernels/optimizer/row_optimizer.h"
#include "server/shard/job_config.h"
#include "worker/exchange/dense_tensors.h"
#include "worker/exchange/parameter_exchange.h"
#include "worker/job/prepared_job.h"

namespace syncline {

// The exchange of a rank that is alone: no network and no ps. It owns
// all blocks, as workers do that reduce among themselves: DenseUpdater applies
// gradients in this process, each as soon as it is ready, or all at the end of
// backward where the job needs their norm, which is folded here, too. The rows
// of tables are in a map. The result is that of a SYNC job of one worker, bit
// for bit.
//
// A call that breaks the contract of ParameterExchange ends the process.
class LocalExchange : public worker::ParameterExchange {
 public:
  // `job` has one worker, is complete, and outlives this. Errors:
  // InvalidArgument: a job with tables and LAMB, clipping by the global norm,
  // or a policy for values that are not finite but FAIL_JOB; what a ps says of
  // a job that it cannot obey.
  static absl::StatusOr<std::unique_ptr<LocalExchange>> Create(
      const worker::PreparedJob& job);
  // Pull or PullCut brings these values, by tensor, once: the state that an
  // attempt which does not begin at clock 0 starts from. REQUIRES: the
  // optimizer has no slots and there are no tables.
  void StartFrom(std::vector<std::vector<float>> values);
  // Says where a cut that is wanted at `clock` is taken, not before it, or why
  // there is none: as if other ranks were past it.
  void OnCut(std::function<absl::StatusOr<int64_t>(int64_t clock)> on_cut) {
    on_cut_ = std::move(on_cut);
  }

  void Cancel(const absl::Status& reason) override;
  absl::Status Init(int64_t total_clocks) override;
  absl::Status Pull(int64_t clock) override;
  absl::Status PullRows(int64_t clock, uint64_t cut_id,
                        absl::Span<worker::RowBatch* const> rows) override;
  absl::Status ReportActivity(int64_t clock, absl::string_view what,
                              uint64_t done, uint64_t total) override;
  absl::StatusOr<std::vector<int64_t>> BeginCut(const Cut& cut) override;
  absl::Status PullCut(uint64_t cut_id, int64_t clock) override;
  absl::Status ScanTable(uint32_t table, int64_t dim, uint64_t cut_id,
                         int64_t clock, RowSink sink) override;
  absl::Status EndCut(uint64_t cut_id, int64_t clock) override;
  void BeginStep(const Step& step) override;
  void PullEarly(absl::Span<worker::RowBatch* const> next_rows,
                 int64_t min_clock) override;
  void AbandonStep(bool own_values) override;
  bool step_abandoned() const override { return abandoned_; }
  // Its jobs leave out no step.
  bool was_skipped(int64_t) const override { return false; }
  void OnGradientReady(uint32_t tensor) override;
  void EndBackward(absl::Span<worker::RowBatch* const> next_rows) override;
  absl::Status Wait() override;
  WaitTimes wait_times() const override { return {}; }

 private:
  struct Table {
    int64_t dim = 0;
    RowInitializer initializer;
    RowOptimizer optimizer;
    std::map<int64_t, std::vector<float>> rows;  // values, then state
  };

  LocalExchange(const ps::JobConfig& config, BlockMap map,
                worker::DenseTensors tensors, int64_t start_clock);
  // The updater has the values of the tensors.
  void InitBlocks();
  // Applies the gradients of these blocks; the tensors have the values.
  void Apply(absl::Span<const uint32_t> blocks, double squared_norm);
  // Likewise of all, with what the job folds before that.
  void ApplyAll();
  void ApplyLamb(double squared_norm);
  // Folds what each block brings to a stage of the open step.
  std::vector<double> Fold(ReductionStage stage,
                           absl::Span<const double> norms);
  // A gradient was not finite, and the job fails of that.
  void CheckFinite(uint32_t block);
  void CopyValues(uint32_t block);
  absl::Status status() const;
  // Of the open step, without the count of updates.
  OptimizerStep OptimizerStepNow() const;
  void PushRows(const worker::RowBatch& rows, Table* table);
  // Fills in the wanted rows from the `first` on.
  void ReadRows(absl::Span<worker::RowBatch* const> rows, int64_t clock,
                bool early);
  void TakeStartValues();
  // The state is that of the cut.
  void CheckCut(uint64_t cut_id, int64_t clock) const;

  const worker::DenseTensors tensors_;
  const std::string label_;
  const BlockMap map_;  // of one owner
  const DenseUpdater::Options options_;
  const bool needs_norm_;  // of the whole gradient
  const bool needs_total_clocks_;
  DenseUpdater updater_;
  DenseUpdater::Scratch scratch_;
  NormReducer norms_;
  std::vector<std::shared_ptr<const FloatSource>> gradients_;  // by tensor
  std::vector<int64_t> clocks_;  // by tensor: of its next step
  std::vector<Table> tables_;
  std::map<uint64_t, int64_t> cuts_;  // clocks of those that are announced
  int64_t clock_;                     // of the next step, or of the open one
  std::vector<std::vector<float>> start_values_;
  std::function<absl::StatusOr<int64_t>(int64_t)> on_cut_;
  bool is_open_ = false;    // from BeginStep to Wait
  bool has_ended_ = false;  // EndBackward was called
  bool abandoned_ = false;
  Step step_;
  absl::Span<worker::RowBatch* const> next_rows_;
  mutable Mutex mu_;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline

#endif  // SYNCLINE_TESTS_TESTING_FAKES_LOCAL_EXCHANGE_H_

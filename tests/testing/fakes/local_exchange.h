#ifndef SYNCLINE_TESTS_TESTING_FAKES_LOCAL_EXCHANGE_H_
#define SYNCLINE_TESTS_TESTING_FAKES_LOCAL_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/aligned_buffer.h"
#include "common/base/mutex.h"
#include "common/update/step_rule.h"
#include "kernels/optimizer/row_optimizer.h"
#include "server/shard/job_config.h"
#include "worker/exchange/dense_tensors.h"
#include "worker/exchange/parameter_exchange.h"
#include "worker/job/prepared_job.h"

namespace syncline {

// The exchange of a rank that is alone: no network and no ps. It applies the
// job's optimizer in this process, to each parameter where the executor has it
// as soon as its gradient is ready, and keeps the rows of tables in a map. Its
// result is that of a SYNC job of one worker, bit for bit.
//
// A call that breaks the contract of ParameterExchange ends the process.
class LocalExchange : public worker::ParameterExchange {
 public:
  // `job` has one worker, is complete, and outlives this. Errors:
  // InvalidArgument: LAMB, clipping by the global norm, or a policy for values
  // that are not finite but FAIL_JOB; what a ps says of a job that it cannot
  // obey.
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
  void OnGradientReady(uint32_t tensor) override;
  void EndBackward(absl::Span<worker::RowBatch* const> next_rows) override;
  absl::Status Wait() override;
  WaitTimes wait_times() const override { return {}; }

 private:
  // One parameter's state.
  struct Tensor {
    std::optional<float> momentum;  // of a running mean
    std::vector<AlignedFloats> slots;
    int64_t updates = 0;
    int64_t clock = 0;  // of the next step
  };
  struct Table {
    int64_t dim = 0;
    RowInitializer initializer;
    RowOptimizer optimizer;
    std::map<int64_t, std::vector<float>> rows;  // values, then state
  };

  LocalExchange(const ps::JobConfig& config, worker::DenseTensors tensors,
                int64_t start_clock);
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
  const OptimizerParams optimizer_;
  StepRule rule_;
  const bool needs_total_clocks_;
  std::vector<Tensor> state_;  // by tensor
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

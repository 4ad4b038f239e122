#ifndef SYNCLINE_WORKER_EXCHANGE_HYBRID_EXCHANGE_H_
#define SYNCLINE_WORKER_EXCHANGE_HYBRID_EXCHANGE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/exchange/parameter_exchange.h"

namespace syncline::worker {

// The exchange of a HYBRID job, made of two: `dense` has the tensors, which the
// ranks reduce among themselves in SYNC; `rows` has the rows of tables, which
// are on the ps, and no tensor (ADR 073). ParameterExchange has the contract of
// each call; what both take part in is done by both:
//
//   a step        both are told all of it. Rows leave with EndBackward, so they
//                 are under way while the dense part is reduced; Wait waits for
//                 the dense part first, then for the rows.
//   a cut         announced for both, at one clock of all ranks: no rank gets
//                 past a step that this one has not reduced. What the
//                 ps cannot give at that clock is not to be had.
//   a checkpoint  one folder and one manifest: first the parts of the shards,
//                 with rows, then those of the ranks, with blocks. The ps of
//                 shard 0 writes the manifest when all parts are there.
//   an activity   told to both: a rank may wait for this one at either
//
// An error of one ends the other as well: then no call of it uses the caller's
// memory any more when Wait returns. The regime is fixed.
class HybridExchange final : public ParameterExchange {
 public:
  HybridExchange(std::unique_ptr<ParameterExchange> dense,
                 std::unique_ptr<ParameterExchange> rows);

  void Cancel(const absl::Status& reason) override;
  absl::Status Init(int64_t total_clocks) override;
  absl::Status Pull(int64_t clock) override;
  absl::Status PullRows(int64_t clock, uint64_t cut_id,
                        absl::Span<RowBatch* const> rows) override;
  absl::Status ReportActivity(int64_t clock, absl::string_view what,
                              uint64_t done, uint64_t total) override;
  absl::StatusOr<std::vector<int64_t>> BeginCut(const Cut& cut) override;
  absl::Status PullCut(uint64_t cut_id, int64_t clock) override;
  absl::Status ScanTable(uint32_t table, int64_t dim, uint64_t cut_id,
                         int64_t clock, RowSink sink) override;
  absl::Status EndCut(uint64_t cut_id, int64_t clock) override;
  absl::Status AwaitCut(uint64_t cut_id, int64_t clock) override;
  std::unique_ptr<CheckpointWriting> OpenCheckpoint(uint64_t cut_id) override;
  void BeginStep(const Step& step) override;
  void PullEarly(absl::Span<RowBatch* const> next_rows,
                 int64_t min_clock) override;
  void AbandonStep(bool own_values) override;
  bool step_abandoned() const override;
  bool was_skipped(int64_t clock) const override;
  void OnGradientReady(uint32_t tensor) override;
  void EndBackward(absl::Span<RowBatch* const> next_rows) override;
  absl::Status Wait() override;
  WaitTimes wait_times() const override;
  absl::Status Leave(int64_t clock) override;

 private:
  // The dense part's name of a cut. A checkpoint has the ps' one, which is its
  // folder's: it may be another one than the cut was asked for by.
  uint64_t DenseId(uint64_t cut_id) const;

  const std::unique_ptr<ParameterExchange> dense_;
  const std::unique_ptr<ParameterExchange> rows_;
  std::map<uint64_t, uint64_t>
      checkpoint_ids_;  // by cut, while it is announced
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_EXCHANGE_HYBRID_EXCHANGE_H_

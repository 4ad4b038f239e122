#include "worker/exchange/hybrid_exchange.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"

namespace syncline::worker {
namespace {

// The parts of the shards, and those of the ranks behind them.
class HybridCheckpointWriting final : public CheckpointWriting {
 public:
  HybridCheckpointWriting(std::unique_ptr<CheckpointWriting> rows,
                          std::unique_ptr<CheckpointWriting> dense)
      : rows_(std::move(rows)), dense_(std::move(dense)) {}

  uint64_t cut_id() const override { return rows_->cut_id(); }
  // Both are waited for: who still writes takes no new checkpoint.
  absl::StatusOr<std::vector<Part>> AwaitParts() override {
    absl::StatusOr<std::vector<Part>> parts = rows_->AwaitParts();
    absl::StatusOr<std::vector<Part>> of_ranks = dense_->AwaitParts();
    if (!parts.ok()) return parts;
    if (!of_ranks.ok()) return of_ranks;
    for (Part& part : *of_ranks) parts->push_back(std::move(part));
    return parts;
  }
  absl::StatusOr<Whole> Commit(const std::string& manifest) override {
    return rows_->Commit(manifest);
  }
  void Cancel() override {
    rows_->Cancel();
    dense_->Cancel();
  }
  std::vector<uint32_t> block_shards() const override {
    return dense_->block_shards();
  }

 private:
  const std::unique_ptr<CheckpointWriting> rows_;
  const std::unique_ptr<CheckpointWriting> dense_;
};

}  // namespace

HybridExchange::HybridExchange(std::unique_ptr<ParameterExchange> dense,
                               std::unique_ptr<ParameterExchange> rows)
    : dense_(std::move(dense)), rows_(std::move(rows)) {}

void HybridExchange::Cancel(const absl::Status& reason) {
  dense_->Cancel(reason);
  rows_->Cancel(reason);
}

// --- The state between steps ---

// A rank that has the chief's first values may push rows: the ps first.
absl::Status HybridExchange::Init(int64_t total_clocks) {
  SYNCLINE_RETURN_IF_ERROR(rows_->Init(total_clocks));
  return dense_->Init(total_clocks);
}

absl::Status HybridExchange::Pull(int64_t clock) {
  SYNCLINE_RETURN_IF_ERROR(dense_->Pull(clock));
  return rows_->Pull(clock);
}

absl::Status HybridExchange::PullRows(int64_t clock, uint64_t cut_id,
                                      absl::Span<RowBatch* const> rows) {
  return rows_->PullRows(clock, cut_id, rows);
}

absl::Status HybridExchange::ReportActivity(int64_t clock,
                                            absl::string_view what,
                                            uint64_t done, uint64_t total) {
  SYNCLINE_RETURN_IF_ERROR(dense_->ReportActivity(clock, what, done, total));
  return rows_->ReportActivity(clock, what, done, total);
}

// --- Cuts ---

absl::StatusOr<std::vector<int64_t>> HybridExchange::BeginCut(const Cut& cut) {
  if (cut.use == CutUse::kRegime) {
    return absl::UnimplementedError("the regime of a HYBRID job is fixed");
  }
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<int64_t> agreed,
                            rows_->BeginCut(cut));
  Cut same = cut;
  same.clocks = agreed;
  if (cut.use == CutUse::kCheckpoint) {
    if (const auto writing = rows_->OpenCheckpoint(cut.id);
        writing != nullptr) {
      same.id = writing->cut_id();
    }
    checkpoint_ids_[cut.id] = same.id;
  }
  const absl::StatusOr<std::vector<int64_t>> of_dense = dense_->BeginCut(same);
  if (of_dense.ok() && *of_dense == agreed) return agreed;
  const absl::Status why =
      !of_dense.ok()
          ? of_dense.status()
          : absl::FailedPreconditionError(absl::StrCat(
                "the ps have agreed on a cut at clocks ",
                absl::StrJoin(agreed, ","),
                ", and the workers reduce the dense parameters of all ranks at "
                "one clock, ",
                absl::StrJoin(*of_dense, ",")));
  // Neither holds a rank for a cut that is not to be had.
  if (of_dense.ok()) dense_->EndCut(same.id, agreed[0]).IgnoreError();
  checkpoint_ids_.erase(cut.id);
  SYNCLINE_RETURN_IF_ERROR(rows_->EndCut(cut.id, agreed[0]));
  return why;
}

absl::Status HybridExchange::PullCut(uint64_t cut_id, int64_t clock) {
  SYNCLINE_RETURN_IF_ERROR(dense_->PullCut(cut_id, clock));
  return rows_->PullCut(cut_id, clock);
}

absl::Status HybridExchange::ScanTable(uint32_t table, int64_t dim,
                                       uint64_t cut_id, int64_t clock,
                                       RowSink sink) {
  return rows_->ScanTable(table, dim, cut_id, clock, sink);
}

uint64_t HybridExchange::DenseId(uint64_t cut_id) const {
  const auto found = checkpoint_ids_.find(cut_id);
  return found == checkpoint_ids_.end() ? cut_id : found->second;
}

absl::Status HybridExchange::AwaitCut(uint64_t cut_id, int64_t clock) {
  SYNCLINE_RETURN_IF_ERROR(dense_->AwaitCut(DenseId(cut_id), clock));
  return rows_->AwaitCut(cut_id, clock);
}

std::unique_ptr<CheckpointWriting> HybridExchange::OpenCheckpoint(
    uint64_t cut_id) {
  std::unique_ptr<CheckpointWriting> rows = rows_->OpenCheckpoint(cut_id);
  std::unique_ptr<CheckpointWriting> dense =
      dense_->OpenCheckpoint(DenseId(cut_id));
  if (rows == nullptr || dense == nullptr) return nullptr;
  return std::make_unique<HybridCheckpointWriting>(std::move(rows),
                                                   std::move(dense));
}

absl::Status HybridExchange::EndCut(uint64_t cut_id, int64_t clock) {
  const absl::Status dense = dense_->EndCut(DenseId(cut_id), clock);
  checkpoint_ids_.erase(cut_id);
  const absl::Status rows = rows_->EndCut(cut_id, clock);
  return dense.ok() ? rows : dense;
}

// --- A step ---

void HybridExchange::BeginStep(const Step& step) {
  Step of_dense = step;
  of_dense.rows = {};
  dense_->BeginStep(of_dense);
  rows_->BeginStep(step);
}

void HybridExchange::PullEarly(absl::Span<RowBatch* const> next_rows,
                               int64_t min_clock) {
  rows_->PullEarly(next_rows, min_clock);
}

// One of them counts it.
void HybridExchange::AbandonStep(bool own_values) {
  dense_->AbandonStep(own_values);
  rows_->AbandonStep(/*own_values=*/false);
}

bool HybridExchange::step_abandoned() const {
  return dense_->step_abandoned() || rows_->step_abandoned();
}

bool HybridExchange::was_skipped(int64_t clock) const {
  return dense_->was_skipped(clock);
}

void HybridExchange::OnGradientReady(uint32_t tensor) {
  dense_->OnGradientReady(tensor);
}

void HybridExchange::EndBackward(absl::Span<RowBatch* const> next_rows) {
  rows_->EndBackward(next_rows);
  dense_->EndBackward({});
}

absl::Status HybridExchange::Wait() {
  const absl::Status dense = dense_->Wait();
  if (!dense.ok()) rows_->Cancel(dense);
  const absl::Status rows = rows_->Wait();
  if (!dense.ok()) return dense;
  if (!rows.ok()) dense_->Cancel(rows);
  return rows;
}

ParameterExchange::WaitTimes HybridExchange::wait_times() const {
  const WaitTimes dense = dense_->wait_times();
  const WaitTimes rows = rows_->wait_times();
  return {.push = dense.push + rows.push,
          .wait = dense.wait + rows.wait,
          .pull = dense.pull + rows.pull};
}

absl::Status HybridExchange::Leave(int64_t clock) {
  SYNCLINE_RETURN_IF_ERROR(dense_->Leave(clock));
  return rows_->Leave(clock);
}

}  // namespace syncline::worker

#include "tests/testing/fakes/local_exchange.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/update/norm_blocks.h"
#include "kernels/optimizer/lamb.h"
#include "worker/job/job_exchange.h"

namespace syncline {
namespace {

using worker::RowBatch;

// Rows of a scan that the sink gets at a time.
constexpr size_t kScannedRows = 7;

// A tensor's gradient in memory of the executor.
class TensorSource final : public FloatSource {
 public:
  explicit TensorSource(absl::Span<const float> values) : values_(values) {}
  void CopyTo(size_t first, size_t count, float* out) const override {
    std::copy_n(values_.data() + first, count, out);
  }

 private:
  const absl::Span<const float> values_;
};

std::vector<size_t> CountsOf(const BlockMap& map) {
  std::vector<size_t> counts;
  for (const Block& block : map.blocks()) {
    counts.push_back(static_cast<size_t>(block.count));
  }
  return counts;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalExchange>> LocalExchange::Create(
    const worker::PreparedJob& job) {
  SYNCLINE_ASSIGN_OR_RETURN(const ps::JobConfig config,
                            ps::ReadJobConfig(job.assignment, /*shard=*/0));
  const bool folds = config.update.rule.clip_norm > 0 ||
                     config.update.optimizer.kind == OptimizerKind::kLamb ||
                     config.update.on_non_finite != OnNonFinite::kFailJob;
  if (job.assignment.workers_size() != 1 || (folds && !config.tables.empty())) {
    return absl::InvalidArgumentError(
        absl::StrCat("job ", config.job_id,
                     ": several workers, and tables with LAMB, clip_norm or "
                     "non_finite, are not built"));
  }
  worker::DenseTensors tensors = worker::DenseTensorsOf(job);
  std::vector<TensorSize> sizes;
  for (size_t t = 0; t < tensors.values.size(); ++t) {
    sizes.push_back(
        {tensors.names[t], static_cast<int64_t>(tensors.values[t].size())});
  }
  SYNCLINE_ASSIGN_OR_RETURN(BlockMap map,
                            BlockMap::Create(sizes, /*shard_count=*/1));
  return std::unique_ptr<LocalExchange>(
      new LocalExchange(config, std::move(map), std::move(tensors),
                        job.assignment.start_clock()));
}

LocalExchange::LocalExchange(const ps::JobConfig& config, BlockMap map,
                             worker::DenseTensors tensors, int64_t start_clock)
    : tensors_(std::move(tensors)),
      label_(absl::StrCat("job ", config.job_id, ", which trains alone")),
      map_(std::move(map)),
      options_(config.update),
      needs_norm_(options_.rule.clip_norm > 0 ||
                  options_.on_non_finite == OnNonFinite::kSkipStep),
      needs_total_clocks_(config.needs_total_clocks),
      updater_(options_, CountsOf(map_)),
      norms_("worker",
             {{.incarnation = 1,
               .name = "this rank",
               .blocks = NormBlocksOf(map_, {}, /*owner=*/0)}},
             TensorsOfBlocks(map_), label_),
      clocks_(tensors_.values.size(), start_clock),
      clock_(start_clock) {
  for (const absl::Span<const float> gradient : tensors_.gradients) {
    gradients_.push_back(std::make_shared<TensorSource>(gradient));
  }
  for (uint32_t block = 0; block < map_.blocks().size(); ++block) {
    const auto momentum = config.momenta[map_.blocks()[block].tensor];
    if (momentum.has_value()) updater_.MakeRunningMean(block, *momentum);
  }
  for (const ps::JobConfig::Table& table : config.tables) {
    tables_.push_back(
        {.dim = table.options.dim,
         .initializer = table.options.initializer,
         .optimizer = RowOptimizer(table.options.optimizer, table.options.dim),
         .rows = {}});
  }
}

void LocalExchange::Cancel(const absl::Status& reason) {
  MutexLock lock(&mu_);
  if (status_.ok()) status_ = reason;
}

absl::Status LocalExchange::status() const {
  MutexLock lock(&mu_);
  return status_;
}

// --- The state between steps ---

absl::Status LocalExchange::Init(int64_t total_clocks) {
  SYNCLINE_CHECK(!is_open_);
  if (needs_total_clocks_) updater_.SetTotalClocks(total_clocks);
  InitBlocks();
  return status();
}

void LocalExchange::InitBlocks() {
  for (uint32_t block = 0; block < map_.blocks().size(); ++block) {
    const Block& part = map_.blocks()[block];
    updater_.Init(block, TensorSource(tensors_.values[part.tensor]),
                  static_cast<size_t>(part.offset));
  }
}

void LocalExchange::StartFrom(std::vector<std::vector<float>> values) {
  SYNCLINE_CHECK(OptimizerSlots(options_.optimizer) == 0 && tables_.empty());
  SYNCLINE_CHECK(values.size() == tensors_.values.size());
  start_values_ = std::move(values);
}

absl::Status LocalExchange::Pull(int64_t clock) {
  SYNCLINE_CHECK(clock == clock_ && !is_open_);
  TakeStartValues();
  return status();
}

void LocalExchange::TakeStartValues() {
  for (size_t t = 0; t < start_values_.size(); ++t) {
    SYNCLINE_CHECK(start_values_[t].size() == tensors_.values[t].size());
    std::copy(start_values_[t].begin(), start_values_[t].end(),
              tensors_.values[t].begin());
  }
  if (!start_values_.empty()) InitBlocks();
  start_values_.clear();
}

absl::Status LocalExchange::PullRows(int64_t clock, uint64_t cut_id,
                                     absl::Span<RowBatch* const> rows) {
  SYNCLINE_CHECK(clock == clock_ && !is_open_);
  if (cut_id != 0) CheckCut(cut_id, clock);
  ReadRows(rows, clock, /*early=*/false);
  return status();
}

absl::Status LocalExchange::ReportActivity(int64_t, absl::string_view, uint64_t,
                                           uint64_t) {
  return status();  // nobody waits for this rank
}

void LocalExchange::ReadRows(absl::Span<RowBatch* const> rows, int64_t clock,
                             bool early) {
  for (size_t t = 0; t < rows.size(); ++t) {
    const Table& table = tables_[t];
    const absl::Span<const uint32_t> wanted =
        early ? rows[t]->wanted().first(rows[t]->early_count())
              : rows[t]->wanted().subspan(rows[t]->early_count());
    for (const uint32_t i : wanted) {
      const int64_t key = rows[t]->keys()[i];
      const auto row = table.rows.find(key);
      if (row == table.rows.end()) {
        table.initializer.Fill(key, rows[t]->value(i), table.dim);
      } else {
        std::copy_n(row->second.data(), table.dim, rows[t]->value(i));
      }
      rows[t]->SetAsOf(i, clock);
    }
  }
}

// --- Cuts: nobody else makes steps, so each is where this rank is ---

absl::StatusOr<std::vector<int64_t>> LocalExchange::BeginCut(const Cut& cut) {
  SYNCLINE_CHECK(cut.id != 0 && cut.clocks.size() == 1);
  SYNCLINE_RETURN_IF_ERROR(status());
  int64_t clock = std::max(cut.clocks[0], clock_);
  if (on_cut_ != nullptr) {
    SYNCLINE_ASSIGN_OR_RETURN(clock, on_cut_(clock));
  }
  SYNCLINE_CHECK(cuts_.emplace(cut.id, clock).second);
  return std::vector<int64_t>{clock};
}

void LocalExchange::CheckCut(uint64_t cut_id, int64_t clock) const {
  const auto cut = cuts_.find(cut_id);
  SYNCLINE_CHECK(cut != cuts_.end() && cut->second == clock);
  SYNCLINE_CHECK(clock == clock_ && !is_open_);
}

absl::Status LocalExchange::PullCut(uint64_t cut_id, int64_t clock) {
  CheckCut(cut_id, clock);
  TakeStartValues();
  return status();
}

absl::Status LocalExchange::ScanTable(uint32_t table, int64_t dim,
                                      uint64_t cut_id, int64_t clock,
                                      RowSink sink) {
  CheckCut(cut_id, clock);
  SYNCLINE_CHECK(dim == tables_[table].dim);
  std::vector<int64_t> keys;
  std::vector<float> values;
  const auto give = [&] {
    const absl::Status status = sink(keys, values);
    keys.clear();
    values.clear();
    return status;
  };
  for (const auto& [key, row] : tables_[table].rows) {
    keys.push_back(key);
    values.insert(values.end(), row.begin(), row.begin() + dim);
    if (keys.size() == kScannedRows) SYNCLINE_RETURN_IF_ERROR(give());
  }
  if (!keys.empty()) SYNCLINE_RETURN_IF_ERROR(give());
  return status();
}

absl::Status LocalExchange::EndCut(uint64_t cut_id, int64_t clock) {
  CheckCut(cut_id, clock);
  cuts_.erase(cut_id);
  return status();
}

// --- A step ---

void LocalExchange::BeginStep(const Step& step) {
  SYNCLINE_CHECK(step.clock == clock_ && !is_open_);
  for (const auto& [id, clock] : cuts_) SYNCLINE_CHECK(clock > clock_);
  step_ = step;
  is_open_ = true;
  has_ended_ = false;
  abandoned_ = false;
  next_rows_ = {};
}

void LocalExchange::PullEarly(absl::Span<RowBatch* const> next_rows, int64_t) {
  SYNCLINE_CHECK(is_open_ && !has_ended_);
  ReadRows(next_rows, clock_, /*early=*/true);
}

void LocalExchange::AbandonStep(bool) {
  SYNCLINE_CHECK(is_open_ && !has_ended_);
  step_.sample_count = 0;
  abandoned_ = true;
}

OptimizerStep LocalExchange::OptimizerStepNow() const {
  return updater_.rule().StepAt(clock_, step_.sample_count);
}

// Nothing reads the value again in this step, so it can be changed at once.
void LocalExchange::OnGradientReady(uint32_t index) {
  SYNCLINE_CHECK(is_open_ && !has_ended_ && step_.sample_count > 0);
  SYNCLINE_CHECK(clocks_[index] == clock_);
  ++clocks_[index];
  for (const uint32_t block : map_.tensor_blocks(index)) {
    updater_.BufferGradient(block, /*rank=*/0, gradients_[index],
                            static_cast<size_t>(map_.blocks()[block].offset),
                            step_.sample_count);
  }
  if (needs_norm_ || options_.optimizer.kind == OptimizerKind::kLamb) return;
  Apply(map_.tensor_blocks(index), /*squared_norm=*/-1);
}

void LocalExchange::Apply(absl::Span<const uint32_t> blocks,
                          double squared_norm) {
  for (const uint32_t block : blocks) {
    updater_.Apply(block, clock_, step_.sample_count, squared_norm, &scratch_);
    CheckFinite(block);
    CopyValues(block);
  }
}

// The stages of a ps's clock, in the same order (server/consistency/
// sync_clock.h).
void LocalExchange::ApplyAll() {
  const absl::Span<const uint32_t> blocks = map_.shard_blocks(0);
  double squared_norm = -1;
  if (needs_norm_) {
    std::vector<double> norms;
    for (const uint32_t block : blocks) {
      norms.push_back(
          updater_.ReduceGradients(block, step_.sample_count, &scratch_));
      CheckFinite(block);
    }
    squared_norm = Fold(ReductionStage::kGradient, norms)[0];
    if (options_.on_non_finite == OnNonFinite::kSkipStep &&
        !std::isfinite(squared_norm)) {
      for (const uint32_t block : blocks) updater_.DropGradients(block);
      return;
    }
  }
  if (options_.optimizer.kind == OptimizerKind::kLamb) {
    ApplyLamb(squared_norm);
  } else if (needs_norm_) {
    Apply(blocks, squared_norm);
  }
}

void LocalExchange::ApplyLamb(double squared_norm) {
  const absl::Span<const uint32_t> blocks = map_.shard_blocks(0);
  std::vector<double> norms;
  for (const uint32_t block : blocks) {
    const LambNorms part = updater_.ComputeLambUpdate(block, step_.sample_count,
                                                      squared_norm, &scratch_);
    CheckFinite(block);
    norms.push_back(part.value);
    norms.push_back(part.update);
  }
  const std::vector<double> ratios =
      LambTrustRatios(Fold(ReductionStage::kTrust, norms));
  for (const uint32_t block : blocks) {
    updater_.ApplyLambUpdate(block, clock_,
                             ratios[map_.blocks()[block].tensor]);
    CopyValues(block);
  }
}

std::vector<double> LocalExchange::Fold(ReductionStage stage,
                                        absl::Span<const double> norms) {
  NormReducer::Answers answers;
  norms_.OnNorms(/*token=*/1, /*rank=*/0, /*incarnation=*/1, {clock_, stage},
                 map_.shard_blocks(0), norms, absl::InfiniteFuture(), &answers);
  // It is the only owner.
  SYNCLINE_CHECK(answers.size() == 1 && answers[0].status.ok());
  return std::move(answers[0].sums);
}

void LocalExchange::CheckFinite(uint32_t block) {
  if (options_.on_non_finite != OnNonFinite::kFailJob ||
      scratch_.non_finite.empty()) {
    return;
  }
  const Block& part = map_.blocks()[block];
  Cancel(absl::FailedPreconditionError(absl::StrCat(
      label_, ": the gradient of clock ", clock_, " is not finite: element ",
      part.offset + static_cast<int64_t>(scratch_.non_finite[0].element),
      " of '", tensors_.names[part.tensor], "'")));
}

void LocalExchange::CopyValues(uint32_t block) {
  const Block& part = map_.blocks()[block];
  const absl::Span<const float> values = updater_.values(block);
  std::copy(values.begin(), values.end(),
            tensors_.values[part.tensor].data() + part.offset);
}

void LocalExchange::EndBackward(absl::Span<RowBatch* const> next_rows) {
  SYNCLINE_CHECK(is_open_ && !has_ended_);
  has_ended_ = true;
  next_rows_ = next_rows;
  for (int64_t& clock : clocks_) {
    SYNCLINE_CHECK(step_.sample_count == 0 || clock == clock_ + 1);
    clock = clock_ + 1;
  }
  if (step_.sample_count == 0) return;
  ApplyAll();
  for (size_t t = 0; t < step_.rows.size(); ++t) {
    PushRows(*step_.rows[t], &tables_[t]);
  }
}

void LocalExchange::PushRows(const RowBatch& rows, Table* table) {
  const size_t dim = static_cast<size_t>(table->dim);
  for (size_t i = 0; i < rows.keys().size(); ++i) {
    const auto [at, is_new] = table->rows.try_emplace(rows.keys()[i]);
    std::vector<float>& row = at->second;
    if (is_new) {
      row.resize(dim + table->optimizer.state_floats());
      table->initializer.Fill(rows.keys()[i], row.data(), dim);
      table->optimizer.InitState(row.data() + dim);
    }
    const float* const gradient = rows.gradient(i);
    float* const values = row.data();
    table->optimizer.Apply(OptimizerStepNow(), 1, &gradient, &values);
  }
}

absl::Status LocalExchange::Wait() {
  SYNCLINE_CHECK(is_open_ && has_ended_);
  is_open_ = false;
  ++clock_;
  ReadRows(next_rows_, clock_, /*early=*/false);
  return status();
}

}  // namespace syncline

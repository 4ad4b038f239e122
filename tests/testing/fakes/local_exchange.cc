#include "tests/testing/fakes/local_exchange.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "worker/job/job_exchange.h"

namespace syncline {
namespace {

using worker::RowBatch;

// Rows of a scan that the sink gets at a time.
constexpr size_t kScannedRows = 7;

}  // namespace

absl::StatusOr<std::unique_ptr<LocalExchange>> LocalExchange::Create(
    const worker::PreparedJob& job) {
  SYNCLINE_ASSIGN_OR_RETURN(const ps::JobConfig config,
                            ps::ReadJobConfig(job.assignment, /*shard=*/0));
  if (job.assignment.workers_size() != 1 || config.update.rule.clip_norm > 0 ||
      config.update.optimizer.kind == OptimizerKind::kLamb ||
      config.update.on_non_finite != OnNonFinite::kFailJob) {
    return absl::InvalidArgumentError(
        "several workers, LAMB, clip_norm and non_finite are not built");
  }
  return std::unique_ptr<LocalExchange>(new LocalExchange(
      config, worker::DenseTensorsOf(job), job.assignment.start_clock()));
}

LocalExchange::LocalExchange(const ps::JobConfig& config,
                             worker::DenseTensors tensors, int64_t start_clock)
    : tensors_(std::move(tensors)),
      optimizer_(config.update.optimizer),
      rule_(config.update.rule),
      needs_total_clocks_(config.needs_total_clocks),
      clock_(start_clock) {
  for (size_t t = 0; t < tensors_.values.size(); ++t) {
    Tensor tensor = {
        .momentum = config.momenta[t], .slots = {}, .clock = clock_};
    for (int slot = 0; slot < OptimizerSlots(optimizer_); ++slot) {
      AlignedFloats& floats =
          tensor.slots.emplace_back(tensors_.values[t].size());
      std::fill_n(floats.data(), floats.size(),
                  InitialSlotValue(optimizer_, slot));
    }
    state_.push_back(std::move(tensor));
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
  if (needs_total_clocks_) rule_.learning_rate.total_clocks = total_clocks;
  return status();
}

void LocalExchange::StartFrom(std::vector<std::vector<float>> values) {
  SYNCLINE_CHECK(OptimizerSlots(optimizer_) == 0 && tables_.empty());
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
  return rule_.StepAt(clock_, step_.sample_count);
}

// Nothing reads the value again in this step, so it can be changed at once.
void LocalExchange::OnGradientReady(uint32_t index) {
  Tensor& tensor = state_[index];
  SYNCLINE_CHECK(is_open_ && !has_ended_ && step_.sample_count > 0);
  SYNCLINE_CHECK(tensor.clock == clock_);
  ++tensor.clock;
  const absl::Span<const float> gradient = tensors_.gradients[index];
  float* const value = tensors_.values[index].data();
  OptimizerStep step = OptimizerStepNow();
  if (tensor.momentum.has_value()) {
    return AverageIn(*tensor.momentum, step.gradient_scale, gradient.data(),
                     value, gradient.size());
  }
  step.t = ++tensor.updates;
  float* slots[kOptimizerSlotsMax] = {};
  for (size_t slot = 0; slot < tensor.slots.size(); ++slot) {
    slots[slot] = tensor.slots[slot].data();
  }
  ApplyOptimizer(optimizer_, step, gradient.data(), value, slots,
                 gradient.size());
}

void LocalExchange::EndBackward(absl::Span<RowBatch* const> next_rows) {
  SYNCLINE_CHECK(is_open_ && !has_ended_);
  has_ended_ = true;
  next_rows_ = next_rows;
  for (Tensor& tensor : state_) {
    SYNCLINE_CHECK(step_.sample_count == 0 || tensor.clock == clock_ + 1);
    tensor.clock = clock_ + 1;
  }
  if (step_.sample_count == 0) return;
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

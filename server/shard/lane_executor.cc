#include "server/shard/lane_executor.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace syncline::ps {
namespace {

using Kind = ShardAction::Kind;

std::vector<std::string> WorkerNames(const JobConfig& config) {
  std::vector<std::string> names;
  for (const auto& worker : config.controller.workers) {
    names.push_back(worker.name);
  }
  return names;
}

// True if the step changes values or optimizer state of its dense block.
bool ChangesState(Kind kind) {
  return kind == Kind::kInit || kind == Kind::kApply ||
         kind == Kind::kComputeLambUpdate;
}

}  // namespace

// --- Reading -----------------------------------------------------------------

void PullReading::Copy(absl::Span<const float> values, size_t first) {
  Narrow(result_.type, values.data(), At(first), values.size());
  StepDone(absl::OkStatus());
}

void PullReading::CopyChange(absl::string_view change, size_t first) {
  std::memcpy(reinterpret_cast<char*>(result_.floats()) + first, change.data(),
              change.size());
  StepDone(absl::OkStatus());
}

void PullReading::StepDone(absl::Status status) {
  if (!status.ok()) {
    MutexLock lock(&mu_);
    status_ = std::move(status);
  }
  if (left_.fetch_sub(1) == 1) done_(Status(), std::move(result_));
}

absl::Status PullReading::Status() {
  MutexLock lock(&mu_);
  return status_;
}

// --- Steps -------------------------------------------------------------------

LaneExecutor::LaneExecutor(const JobConfig* config, const ShardLayout* layout,
                           std::unique_ptr<EmbeddingTables> tables)
    : config_(config),
      layout_(layout),
      dense_(config->update, layout->counts()),
      norms_(layout->block_count()),
      trust_norms_(layout->counts().size()),
      tables_(std::move(tables)),
      non_finite_(config->update.on_non_finite, WorkerNames(*config),
                  config->label) {
  dense_.UseRegimes(&layout->regimes());
  if (const TrainingRegime& first = config->regimes.regimes()[0];
      first.SendsChanges()) {
    sent_.emplace(layout->counts(), first.compression.block_elements);
  }
  for (BlockIndex block = 0; block < layout->ids().size(); ++block) {
    const uint32_t tensor = layout->map().blocks()[layout->ids()[block]].tensor;
    const std::optional<float>& momentum = config->momenta[tensor];
    if (momentum.has_value()) dense_.MakeRunningMean(block, *momentum);
  }
}

absl::Status LaneExecutor::MakeResident(const GoOnCheck& go_on) {
  SYNCLINE_RETURN_IF_ERROR(dense_.MakeResident(go_on));
  return sent_.has_value() ? sent_->MakeResident(go_on) : absl::OkStatus();
}

void LaneExecutor::Run(int lane, std::vector<LaneStep>& steps,
                       DenseUpdater::Scratch* scratch) {
  for (LaneStep& step : steps) {
    // A step's memory is freed with the step: the countdown behind it may
    // answer the call, and the call's hold on the budget must be free by then.
    if (step.rows != nullptr) {
      const std::unique_ptr<RowsStep> rows = std::move(step.rows);
      RunRows(lane, *rows);
    } else if (step.countdown != nullptr) {
      if (step.countdown->left.fetch_sub(1) == 1) step.countdown->then();
    } else if (step.visit != nullptr) {
      (*step.visit)(lane);
    } else {
      RunBlock(step, std::move(step.source), scratch);
    }
  }
}

void LaneExecutor::RunBlock(const LaneStep& step,
                            std::shared_ptr<const FloatSource> source,
                            DenseUpdater::Scratch* scratch) {
  if (snapshots_ != nullptr && ChangesState(step.kind)) {
    snapshots_->OnWrite(step.block);
  }
  switch (step.kind) {
    case Kind::kInit:
      dense_.Init(step.block, *source, step.first);
      break;
    case Kind::kBufferGradient:
      dense_.BufferGradient(step.block, step.rank, std::move(source),
                            step.first, step.sample_count);
      break;
    case Kind::kReduceGradients:
      norms_[step.block] =
          dense_.ReduceGradients(step.block, step.sample_count, scratch);
      TellNonFinite(step, scratch->non_finite);
      break;
    case Kind::kDropGradients:
      dense_.DropGradients(step.block);
      break;
    case Kind::kDropGradientOf:
      dense_.DropGradientOf(step.block, step.rank);
      break;
    case Kind::kComputeLambUpdate:
      trust_norms_[step.block] = dense_.ComputeLambUpdate(
          step.block, step.sample_count, step.squared_norm, scratch);
      TellNonFinite(step, scratch->non_finite);
      break;
    case Kind::kApply:
      if (config_->controller.trust_ratio) {
        dense_.ApplyLambUpdate(step.block, step.clock, step.trust_ratio);
      } else {
        dense_.Apply(step.block, step.clock, step.sample_count,
                     step.squared_norm, scratch);
        TellNonFinite(step, scratch->non_finite);
      }
      break;
    default:
      Read(step);
      break;
  }
}

void LaneExecutor::Read(const LaneStep& step) {
  PullReading& reading = *step.reading;
  if (non_finite_.failed()) return reading.StepDone(non_finite_.failure());
  const absl::Span<const float> own = dense_.values(step.block);
  if (reading.form() == ValueForm::kOwn) return reading.Copy(own, step.first);
  if (reading.form() == ValueForm::kSent) {
    return reading.Copy(sent_->At(step.block, step.clock, own), step.first);
  }
  const absl::StatusOr<absl::string_view> change =
      sent_->ChangeAt(step.block, step.clock, own);
  if (!change.ok()) {
    return reading.StepDone(Annotate(change.status(), config_->label));
  }
  reading.CopyChange(*change, step.first);
}

void LaneExecutor::TellNonFinite(
    const LaneStep& step, absl::Span<const DenseUpdater::NonFinite> found) {
  for (const DenseUpdater::NonFinite& one : found) {
    const Block& block = layout_->map().blocks()[layout_->ids()[step.block]];
    non_finite_.Found(
        one.rank, step.clock,
        absl::StrCat("element ", block.offset + one.element, " of '",
                     config_->tensor_names[block.tensor], "'"));
  }
}

void LaneExecutor::RunRows(int lane, const RowsStep& step) {
  if (step.kind == Kind::kRead) {
    if (non_finite_.failed()) {
      return step.reading->StepDone(non_finite_.failure());
    }
    const CallRowSpan& rows = step.ranks[0];
    void* const out =
        step.reading->At(rows.first_element(tables_->dim(rows.list->table)));
    step.reading->StepDone(
        tables_->Read(lane, rows, step.clock, step.reading->type(), out));
    return;
  }
  const OptimizerStep shared =
      dense_.rule().StepAt(step.clock, step.sample_count, step.squared_norm);
  const RowStep rows = {.clock = step.clock,
                        .learning_rate = shared.learning_rate,
                        .gradient_scale = shared.gradient_scale};
  if (step.kind == Kind::kReduceGradients)
    return ComputeRowNorms(lane, step, rows);
  // A reduction, which SYNC alone has, has checked its gradients for NaN and
  // infinity already.
  const bool is_reduced = config_->controller.NeedsGradientNorm() &&
                          layout_->regimes().At(step.clock).sync();
  tables_->Push(lane, step.ranks, rows, is_reduced ? nullptr : &non_finite_);
}

void LaneExecutor::ComputeRowNorms(int lane, const RowsStep& step,
                                   const RowStep& rows) {
  const uint32_t table = step.ranks[0].list->table;
  const TableMap& map = layout_->tables()[table].map;
  const BlockIndex first = layout_->FirstSlotBlock(table);
  const bool finite = tables_->SquaredNorms(
      lane, step.ranks, rows,
      absl::MakeSpan(norms_).subspan(first, map.SlotCount(config_->shard)),
      &non_finite_);
  // Then nothing of the clock is applied, not the other rows alone.
  if (!finite && config_->update.on_non_finite == OnNonFinite::kSkipStep) {
    norms_[step.block] = std::numeric_limits<double>::quiet_NaN();
  }
}

// --- Norms -------------------------------------------------------------------

std::vector<double> LaneExecutor::Norms(ReductionStage stage) const {
  if (stage == ReductionStage::kGradient) return norms_;
  std::vector<double> norms;
  for (const LambNorms& block : trust_norms_) {
    norms.insert(norms.end(), {block.value, block.update});
  }
  return norms;
}

void LaneExecutor::ClearNorms(ReductionStage stage) {
  if (stage == ReductionStage::kGradient) {
    std::fill(norms_.begin(), norms_.end(), 0);
  } else {
    std::fill(trust_norms_.begin(), trust_norms_.end(), LambNorms());
  }
}

}  // namespace syncline::ps

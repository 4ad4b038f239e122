#include "worker/peers/step_reduction.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/update/norm_blocks.h"
#include "common/update/norm_reducer.h"
#include "kernels/optimizer/lamb.h"
#include "worker/peers/wire_floats.h"

namespace syncline::worker {
namespace {

using Kind = StepReduction::Outgoing::Kind;

bool IsHere(const BlockMap& map, const StepReduction::Options& options,
            uint32_t block) {
  return options.replicates || map.blocks()[block].shard == options.rank;
}

std::vector<size_t> Counts(const BlockMap& map,
                           const StepReduction::Options& options) {
  std::vector<size_t> counts;
  for (uint32_t id = 0; id < map.blocks().size(); ++id) {
    if (!IsHere(map, options, id)) continue;
    counts.push_back(static_cast<size_t>(map.blocks()[id].count));
  }
  return counts;
}

size_t IndexOf(ReductionStage stage) {
  return stage == ReductionStage::kTrust ? 1 : 0;
}

}  // namespace

StepReduction::StepReduction(Options options, BlockMap map,
                             std::vector<Bucket> buckets,
                             const DenseTensors* tensors)
    : options_(std::move(options)),
      map_(std::move(map)),
      buckets_(std::move(buckets)),
      tensors_(*tensors),
      needs_norm_(options_.update.rule.clip_norm > 0 ||
                  options_.update.on_non_finite == OnNonFinite::kSkipStep),
      lamb_(options_.update.optimizer.kind == OptimizerKind::kLamb),
      tensor_of_(TensorsOfBlocks(map_)),
      local_(map_.blocks().size(), kNotHere),
      updater_(options_.update, Counts(map_, options_)),
      facts_(map_.shard_count()),
      delivered_(buckets_.size()),
      delivered_count_(buckets_.size()),
      sums_(map_.blocks().size()),
      trust_(map_.blocks().size() * 2),
      found_(map_.shard_count()) {
  SYNCLINE_CHECK(!options_.keeps_values || !options_.replicates);
  SYNCLINE_CHECK(!options_.applies_together || options_.replicates);
  uint32_t next = 0;
  for (uint32_t id = 0; id < map_.blocks().size(); ++id) {
    if (!IsHere(map_, options_, id)) continue;
    local_[id] = next++;
    const auto& momentum = options_.momenta.empty()
                               ? std::nullopt
                               : options_.momenta[tensor_of_[id]];
    if (momentum.has_value()) updater_.MakeRunningMean(local_[id], *momentum);
  }
  for (const absl::Span<const float> gradient : tensors_.gradients) {
    own_.push_back(
        std::make_shared<TensorAsSent>(options_.wire_type, gradient));
  }
  for (uint32_t rank = 0; rank < map_.shard_count(); ++rank) {
    if (!map_.shard_blocks(rank).empty()) ++owner_count_;
  }
}

template <typename Visit>
void StepReduction::ForUpdated(Visit visit) const {
  for (uint32_t id = 0; id < local_.size(); ++id) {
    if (local_[id] != kNotHere) visit(id);
  }
}

void StepReduction::SetTotalClocks(int64_t total_clocks) {
  if (options_.needs_total_clocks) updater_.SetTotalClocks(total_clocks);
}

void StepReduction::Restore(uint32_t block, uint32_t array, size_t first,
                            absl::string_view floats) {
  if (local_[block] == kNotHere) return;
  const absl::Span<float> to =
      updater_.mutable_array(local_[block], static_cast<int>(array));
  SYNCLINE_CHECK(first + floats.size() / sizeof(float) <= to.size());
  std::memcpy(to.data() + first, floats.data(), floats.size());
}

void StepReduction::RestoreUpdates(uint32_t block, int64_t updates) {
  if (local_[block] != kNotHere) updater_.SetUpdates(local_[block], updates);
}

void StepReduction::Init(int64_t total_clocks) {
  SetTotalClocks(total_clocks);
  ForUpdated([&](uint32_t id) {
    const Block& block = map_.blocks()[id];
    updater_.Init(
        local_[id],
        TensorAsSent(ElementType::kFloat32, tensors_.values[block.tensor]),
        static_cast<size_t>(block.offset));
  });
}

void StepReduction::Show(Shown shown) {
  if (options_.wire_type == ElementType::kFloat32 || shown == shown_) return;
  ForUpdated([&](uint32_t id) { ShowBlock(id, shown); });
  shown_ = shown;
}

void StepReduction::ShowBlock(uint32_t id, Shown shown) {
  const Block& block = map_.blocks()[id];
  const absl::Span<const float> values = updater_.values(local_[id]);
  CopyAsSent(TypeOf(shown), values.data(),
             tensors_.values[block.tensor].data() + block.offset,
             values.size());
}

// --- Updates on a device ---

void StepReduction::UpdateOn(std::unique_ptr<DeviceUpdater> device) {
  SYNCLINE_CHECK(!lamb_ && !options_.keeps_values &&
                 device->block_count() == updater_.block_count());
  SYNCLINE_CHECK(!options_.replicates ||
                 options_.wire_type == ElementType::kFloat32);
  device_ = std::move(device);
  if (updater_.block_count() > 0) {
    // Blocks lie one behind the other.
    float* const begin = updater_.mutable_array(0, 0).data();
    const absl::Span<float> last = updater_.mutable_array(
        updater_.block_count() - 1, updater_.arrays() - 1);
    device_->PinHost(absl::MakeSpan(begin, last.data() + last.size()));
  }
  staged_.resize(map_.blocks().size());
  ForUpdated([this](uint32_t id) { block_there_.push_back(id); });
}

absl::Status StepReduction::BeginOnDevice() {
  if (device_ == nullptr) return absl::OkStatus();
  has_stream_ = false;
  if (!is_loaded_) {
    for (uint32_t local = 0; local < updater_.block_count(); ++local) {
      device_updates_.push_back(updater_.updates(local));
    }
    SYNCLINE_RETURN_IF_ERROR(
        device_->LoadState([this](uint32_t local, int array) {
          return updater_.array(local, array);
        }));
    is_loaded_ = true;
  }
  if (!options_.replicates) return absl::OkStatus();
  SYNCLINE_RETURN_IF_ERROR(device_->AwaitCopies());
  device_->ShowValues();
  device_->TakeValues(true);
  return absl::OkStatus();
}

absl::Status StepReduction::OfDevice(const absl::Status& failure,
                                     absl::string_view label) {
  return absl::UnavailableError(absl::StrCat(label, ": ", failure.message()));
}

void StepReduction::UseStream() {
  has_stream_ = true;
  for (const uint32_t id : uncopied_) {
    device_->CopySum(local_[id], device_->sum(local_[id]));
  }
  uncopied_.clear();
}

void StepReduction::Stage(uint32_t bucket) {
  for (const uint32_t id : buckets_[bucket].blocks) {
    const uint64_t samples = SamplesOf(id);
    if (samples == 0) continue;
    staged_[id] = updater_.TakeSum(local_[id], samples,
                                   device_->sum(local_[id]).data(), &scratch_);
    Note(id);
    if (staged_[id] == 0) continue;
    has_staged_ = true;
    uncopied_.push_back(id);
  }
  if (has_stream_) UseStream();
  --unapplied_;
}

DeviceUpdater::BlockStep StepReduction::StepThere(uint32_t block,
                                                  uint64_t samples) {
  const uint32_t local = local_[block];
  DeviceUpdater::BlockStep of = {
      .block = local,
      .step = std::nullopt,
      .scale_of_mean = updater_.rule().GradientScale(samples, -1)};
  if (options_.momenta.empty() ||
      !options_.momenta[tensor_of_[block]].has_value()) {
    of.step = updater_.rule().StepAt(clock_, samples, squared_norm_);
    of.step->t = ++device_updates_[local];
  }
  return of;
}

void StepReduction::FinishOnDevice() {
  if (device_ == nullptr || !options_.replicates) return;
  device_->TakeValues(false);
  if (!has_staged_) return;
  UseStream();
  std::vector<DeviceUpdater::BlockStep> steps;
  for (uint32_t id = 0; id < staged_.size(); ++id) {
    const uint64_t samples = std::exchange(staged_[id], 0);
    if (samples > 0) steps.push_back(StepThere(id, samples));
  }
  device_->Update(steps);
  has_staged_ = false;
  has_own_state_ = false;
  has_all_state_ = false;
  has_values_ = false;
}

void StepReduction::ApplyThere(uint32_t bucket) {
  std::vector<DeviceUpdater::BlockStep> steps;
  std::vector<uint32_t> changed;
  for (const uint32_t id : buckets_[bucket].blocks) {
    const uint32_t local = local_[id];
    WillChange(id);
    // The sum goes from the place that the values come back to.
    const absl::Span<float> values = updater_.mutable_array(local, 0);
    const uint64_t samples =
        updater_.TakeSum(local, samples_, values.data(), &scratch_);
    Note(id);
    if (samples == 0) continue;
    device_->CopySum(local, values);
    steps.push_back(StepThere(id, samples));
    changed.push_back(local);
  }
  --unapplied_;
  if (!changed.empty()) {
    has_own_state_ = false;
    has_all_state_ = false;
    device_->Update(steps);
    const absl::Status back = device_->ReadValuesOf(
        changed,
        [this](uint32_t local) { return updater_.mutable_array(local, 0); });
    if (!back.ok()) {
      status_ = OfDevice(back, options_.label);
      return;
    }
  }
  for (const uint32_t id : buckets_[bucket].blocks) ShowBlock(id, step_shows_);
  shown_ = step_shows_;
}

absl::Status StepReduction::FetchState(bool own_alone) {
  if (own_alone ? has_own_state_ : has_all_state_) return absl::OkStatus();
  const auto wants = [&](uint32_t local) {
    return !own_alone ||
           map_.blocks()[block_there_[local]].shard == options_.rank;
  };
  for (uint32_t local = 0; local < block_there_.size(); ++local) {
    if (!wants(local)) continue;
    WillChange(block_there_[local]);
    updater_.SetUpdates(local, device_updates_[local]);
  }
  SYNCLINE_RETURN_IF_ERROR(
      device_->ReadState([&](uint32_t local, int array) -> absl::Span<float> {
        if (!wants(local)) return {};
        return updater_.mutable_array(local, array);
      }));
  has_own_state_ = true;
  has_all_state_ = !own_alone || !options_.replicates;
  return absl::OkStatus();
}

absl::Status StepReduction::FetchValues() {
  if (has_values_) return absl::OkStatus();
  SYNCLINE_RETURN_IF_ERROR(device_->ReadValues(tensors_.values));
  has_values_ = true;
  return absl::OkStatus();
}

// --- One step ---

void StepReduction::Begin(int64_t clock, Shown shown) {
  clock_ = clock;
  step_shows_ = shown;
  std::fill(facts_.begin(), facts_.end(), std::nullopt);
  facts_left_ = static_cast<uint32_t>(facts_.size());
  samples_ = 0;
  givers_ = 0;
  skipped_ = false;
  unreduced_ = 0;
  for (uint32_t b = 0; b < buckets_.size(); ++b) {
    delivered_count_[b] = 0;
    if (!Owns(b)) continue;
    delivered_[b].assign(facts_.size(), false);
    ++unreduced_;
  }
  ready_.clear();
  appliable_.clear();
  outgoing_.clear();
  unapplied_ =
      options_.replicates ? static_cast<uint32_t>(buckets_.size()) : unreduced_;
  results_left_ = options_.keeps_values
                      ? 0
                      : static_cast<uint32_t>(buckets_.size()) - unreduced_;
  result_here_.assign(buckets_.size(), false);
  for (const size_t stage : {0, 1}) {
    norms_left_[stage] = options_.replicates ? 0 : owner_count_;
    norms_of_[stage].assign(facts_.size(), false);
  }
  stage_.reset();
  if (waits()) {
    stage_ = needs_norm_ ? ReductionStage::kGradient : ReductionStage::kTrust;
  }
  squared_norm_ = -1;
  changed_ = false;
}

void StepReduction::OnFacts(uint32_t rank, const StepFacts& facts) {
  SYNCLINE_CHECK(!facts_[rank].has_value());
  facts_[rank] = facts;
  if (facts.abandoned) facts_[rank]->sample_count = 0;
  if (--facts_left_ == 0) OnAllFacts();
}

void StepReduction::OnAllFacts() {
  uint64_t left_out = 0;
  for (const auto& facts : facts_) {
    samples_ += facts->sample_count;
    if (facts->sample_count > 0) ++givers_;
    if (facts->abandoned) ++left_out;
  }
  skipped_ =
      left_out > 0 && options_.update.on_non_finite == OnNonFinite::kSkipStep;
  if (skipped_ || (samples_ == 0 && left_out > 0)) {
    ++skipped_clocks_;
    skipped_through_ = clock_ + 1;
  } else {
    left_out_ += left_out;
  }
  if (skipped_ || givers_ == 0) {
    stage_.reset();
    unapplied_ = 0;
    results_left_ = 0;
  }
  if (givers_ == 0) unreduced_ = 0;
  for (uint32_t b = 0; b < buckets_.size(); ++b) {
    if (Owns(b) && givers_ > 0 && delivered_count_[b] == givers_) {
      ready_.push_back(b);
    }
  }
}

void StepReduction::CountGradient(uint32_t bucket) {
  ++delivered_count_[bucket];
  if (has_all_facts() && delivered_count_[bucket] == givers_) {
    ready_.push_back(bucket);
  }
}

void StepReduction::OnOwnGradient(uint32_t bucket) {
  const uint32_t rank = options_.rank;
  SYNCLINE_CHECK(Owns(bucket) && has_gradient(rank));
  delivered_[bucket][rank] = true;
  for (const uint32_t id : buckets_[bucket].blocks) {
    const Block& block = map_.blocks()[id];
    updater_.BufferGradient(local_[id], rank, own_[block.tensor],
                            static_cast<size_t>(block.offset),
                            facts_[rank]->sample_count);
  }
  CountGradient(bucket);
}

void StepReduction::OnGradient(uint32_t rank, uint32_t bucket,
                               std::shared_ptr<const FloatSource> payload) {
  SYNCLINE_CHECK(Owns(bucket) && has_gradient(rank));
  delivered_[bucket][rank] = true;
  const Bucket& of = buckets_[bucket];
  for (size_t i = 0; i < of.blocks.size(); ++i) {
    updater_.BufferGradient(local_[of.blocks[i]], rank, payload, of.offsets[i],
                            facts_[rank]->sample_count);
  }
  CountGradient(bucket);
}

void StepReduction::OnNorms(uint32_t rank, ReductionStage stage,
                            absl::Span<const double> norms) {
  const absl::Span<const uint32_t> blocks = map_.shard_blocks(rank);
  SYNCLINE_CHECK(norms.size() == NormCount(rank, stage));
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (stage == ReductionStage::kGradient) {
      sums_[blocks[i]].squared_norm = norms[i];
    } else {
      trust_[size_t{2} * blocks[i]] = norms[2 * i];
      trust_[size_t{2} * blocks[i] + 1] = norms[2 * i + 1];
    }
  }
  norms_of_[IndexOf(stage)][rank] = true;
  --norms_left_[IndexOf(stage)];
}

absl::Status StepReduction::OnSum(uint32_t bucket,
                                  absl::Span<const BlockSum> blocks,
                                  std::shared_ptr<const FloatSource> payload) {
  const Bucket& of = buckets_[bucket];
  SYNCLINE_CHECK(!Owns(bucket) && blocks.size() == of.blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].sample_count > samples_) {
      return absl::InvalidArgumentError(absl::StrCat(
          options_.label, ": the sum of block ", of.blocks[i], " at clock ",
          clock_, " from ", options_.ranks[of.owner], " is over ",
          blocks[i].sample_count, " samples, all ranks have ", samples_));
    }
    sums_[of.blocks[i]] = blocks[i];
    if (blocks[i].sample_count == 0) continue;
    updater_.BufferGradient(local_[of.blocks[i]], /*rank=*/0, payload,
                            of.offsets[i], blocks[i].sample_count);
  }
  --results_left_;
  result_here_[bucket] = true;
  if (!waits()) appliable_.push_back(bucket);
  return absl::OkStatus();
}

void StepReduction::OnValues(uint32_t bucket) {
  SYNCLINE_CHECK(!Owns(bucket) && results_left_ > 0);
  --results_left_;
  result_here_[bucket] = true;
}

std::optional<ReductionStage> StepReduction::awaited_norms() const {
  return has_all_facts() && !options_.replicates ? stage_ : std::nullopt;
}

bool StepReduction::expects_results() const {
  if (!has_all_facts() || skipped_ || givers_ == 0) return false;
  if (options_.keeps_values) return false;
  // Others may still find that the step is to be skipped.
  return options_.replicates || !needs_norm_ ||
         stage_ != ReductionStage::kGradient;
}

std::optional<uint32_t> StepReduction::TakeFirst(
    std::vector<uint32_t>* buckets,
    const std::function<bool(uint32_t bucket)>& may_take) {
  auto first = buckets->end();
  for (auto at = buckets->begin(); at != buckets->end(); ++at) {
    if (may_take != nullptr && !may_take(*at)) continue;
    if (first == buckets->end() ||
        buckets_[*at].first_use < buckets_[*first].first_use) {
      first = at;
    }
  }
  if (first == buckets->end()) return std::nullopt;
  const uint32_t bucket = *first;
  buckets->erase(first);
  return bucket;
}

std::optional<StepReduction::Outgoing> StepReduction::Next() {
  while (status_.ok()) {
    if (!outgoing_.empty()) {
      const Outgoing next = outgoing_.front();
      outgoing_.erase(outgoing_.begin());
      return next;
    }
    if (const auto bucket = TakeFirst(&ready_); bucket.has_value()) {
      // A sum that fails the job is sent to nobody: here it is known whose
      // gradient is to blame.
      if (Reduce(*bucket) && status_.ok()) {
        return Outgoing{.kind = Kind::kSum, .bucket = *bucket};
      }
      continue;
    }
    if (ConcludeStage()) continue;
    if (HoldsUpdates()) break;
    if (const auto bucket = TakeFirst(&appliable_, may_change_);
        bucket.has_value()) {
      Apply(*bucket);
      if (device_ != nullptr && !status_.ok()) break;
      if (!options_.replicates && !options_.keeps_values) {
        return Outgoing{.kind = Kind::kValues, .bucket = *bucket};
      }
      continue;
    }
    break;
  }
  return std::nullopt;
}

bool StepReduction::Reduce(uint32_t bucket) {
  --unreduced_;
  if (skipped_) {
    for (const uint32_t id : buckets_[bucket].blocks) {
      updater_.DropGradients(local_[id]);
    }
    return false;
  }
  if (!options_.replicates && !waits()) {
    appliable_.push_back(bucket);
    return false;
  }
  for (const uint32_t id : buckets_[bucket].blocks) {
    if (needs_norm_) {
      sums_[id].squared_norm =
          updater_.ReduceGradients(local_[id], samples_, &scratch_);
    } else if (options_.replicates) {
      updater_.SumGradients(local_[id], samples_, &scratch_);
    } else {
      ComputeLamb(id);
      continue;
    }
    sums_[id].sample_count = updater_.reduced_samples(local_[id]);
    Note(id);
    if (replace_sum_ != nullptr && sums_[id].sample_count > 0) {
      replace_sum_(id, sums_[id].sample_count,
                   updater_.mutable_reduced(local_[id]));
    }
  }
  if (options_.replicates) {
    if (!waits()) appliable_.push_back(bucket);
    return true;
  }
  if (unreduced_ == 0) {
    outgoing_.push_back({.kind = Kind::kNorms, .stage = *stage_});
    --norms_left_[IndexOf(*stage_)];
    norms_of_[IndexOf(*stage_)][options_.rank] = true;
  }
  return false;
}

bool StepReduction::IsComplete(ReductionStage stage) const {
  return has_all_facts() && unreduced_ == 0 &&
         (options_.replicates ? results_left_ == 0
                              : norms_left_[IndexOf(stage)] == 0);
}

bool StepReduction::ConcludeStage() {
  if (!stage_.has_value() || !IsComplete(*stage_)) return false;
  if (*stage_ == ReductionStage::kTrust) {
    // Nothing has computed the updates where no norm came before them.
    if (options_.replicates && !needs_norm_) {
      ForUpdated([this](uint32_t id) { ComputeLamb(id); });
    }
    ConcludeTrust();
  } else {
    ConcludeGradient();
  }
  return true;
}

void StepReduction::ConcludeGradient() {
  std::vector<double> norms;
  for (const BlockSum& sum : sums_) norms.push_back(sum.squared_norm);
  squared_norm_ = SumNorms(ReductionStage::kGradient, tensor_of_, norms)[0];
  stage_.reset();
  if (options_.update.on_non_finite == OnNonFinite::kSkipStep &&
      !std::isfinite(squared_norm_)) {
    return Drop();
  }
  if (lamb_) {
    ForUpdated([this](uint32_t id) { ComputeLamb(id); });
    if (options_.replicates) return ConcludeTrust();
    stage_ = ReductionStage::kTrust;
    if (map_.shard_blocks(options_.rank).empty()) return;
    outgoing_.push_back({.kind = Kind::kNorms, .stage = *stage_});
    --norms_left_[IndexOf(*stage_)];
    norms_of_[IndexOf(*stage_)][options_.rank] = true;
    return;
  }
  for (uint32_t b = 0; b < buckets_.size(); ++b) {
    if (options_.replicates || Owns(b)) appliable_.push_back(b);
  }
}

void StepReduction::ConcludeTrust() {
  ratios_ =
      LambTrustRatios(SumNorms(ReductionStage::kTrust, tensor_of_, trust_));
  stage_.reset();
  for (uint32_t b = 0; b < buckets_.size(); ++b) {
    if (options_.replicates || Owns(b)) appliable_.push_back(b);
  }
}

uint64_t StepReduction::SamplesOf(uint32_t block) const {
  const bool is_own = map_.blocks()[block].shard == options_.rank;
  return is_own ? samples_ : sums_[block].sample_count;
}

void StepReduction::ComputeLamb(uint32_t block) {
  changed_ = true;
  WillChange(block);
  const LambNorms part = updater_.ComputeLambUpdate(
      local_[block], SamplesOf(block), squared_norm_, &scratch_);
  Note(block);
  trust_[size_t{2} * block] = part.value;
  trust_[size_t{2} * block + 1] = part.update;
}

void StepReduction::Apply(uint32_t bucket) {
  if (device_ != nullptr) {
    return options_.replicates ? Stage(bucket) : ApplyThere(bucket);
  }
  changed_ = true;
  for (const uint32_t id : buckets_[bucket].blocks) {
    const Block& block = map_.blocks()[id];
    WillChange(id);
    if (lamb_) {
      updater_.ApplyLambUpdate(local_[id], clock_, ratios_[block.tensor]);
    } else if (const uint64_t samples = SamplesOf(id); samples > 0) {
      updater_.Apply(local_[id], clock_, samples, squared_norm_, &scratch_);
      Note(id);
    }
    if (!options_.keeps_values) ShowBlock(id, step_shows_);
  }
  // A step writes all buckets, or none.
  shown_ = step_shows_;
  --unapplied_;
}

void StepReduction::Drop() {
  ForUpdated([this](uint32_t id) { updater_.DropGradients(local_[id]); });
  skipped_ = true;
  ++skipped_clocks_;
  skipped_through_ = clock_ + 1;
  unapplied_ = 0;
  results_left_ = 0;
}

void StepReduction::Note(uint32_t block) {
  for (const DenseUpdater::NonFinite& bad : scratch_.non_finite) {
    const Block& part = map_.blocks()[block];
    // Of another rank's block only the sum came, in the place of rank 0.
    const bool is_sum =
        bad.rank >= found_.size() || part.shard != options_.rank;
    ++found_total_;
    if (!is_sum) ++found_[bad.rank];
    last_found_ = absl::FailedPreconditionError(
        absl::StrCat(options_.label, ": the gradient of clock ", clock_,
                     " is not finite: element ",
                     part.offset + static_cast<int64_t>(bad.element), " of '",
                     tensors_.names.empty() ? absl::StrCat(part.tensor)
                                            : tensors_.names[part.tensor],
                     "'",
                     is_sum ? ", in the sum over all workers"
                            : absl::StrCat(", of ", options_.ranks[bad.rank])));
    if (options_.update.on_non_finite == OnNonFinite::kFailJob &&
        status_.ok()) {
      status_ = last_found_;
    }
  }
  scratch_.non_finite.clear();
}

bool StepReduction::done() const {
  // A rank that owns no block, and gets no values, has the norms to wait for:
  // they say whether the step is skipped.
  const bool knows = !options_.keeps_values || !stage_.has_value();
  return has_all_facts() && unreduced_ == 0 && unapplied_ == 0 &&
         results_left_ == 0 && outgoing_.empty() && knows;
}

std::optional<int64_t> StepReduction::state_clock() const {
  if (clock_ < 0) return std::nullopt;
  // Nothing of a step that is skipped is awaited.
  if ((done() && !has_staged_) || skipped_) return clock_ + 1;
  return changed_ ? std::nullopt : std::optional<int64_t>(clock_);
}

// --- What is sent ---

std::vector<double> StepReduction::OwnNorms(ReductionStage stage) const {
  std::vector<double> norms;
  for (const uint32_t id : map_.shard_blocks(options_.rank)) {
    if (stage == ReductionStage::kGradient) {
      norms.push_back(sums_[id].squared_norm);
    } else {
      norms.insert(norms.end(),
                   {trust_[size_t{2} * id], trust_[size_t{2} * id + 1]});
    }
  }
  return norms;
}

std::vector<StepReduction::BlockSum> StepReduction::SumsOf(
    uint32_t bucket) const {
  std::vector<BlockSum> sums;
  for (const uint32_t id : buckets_[bucket].blocks) sums.push_back(sums_[id]);
  return sums;
}

std::vector<absl::Span<const float>> StepReduction::PayloadOf(
    uint32_t bucket) const {
  std::vector<absl::Span<const float>> pieces;
  for (const uint32_t id : buckets_[bucket].blocks) {
    pieces.push_back(options_.replicates ? updater_.reduced(local_[id])
                                         : updater_.values(local_[id]));
  }
  return pieces;
}

std::vector<absl::Span<const float>> StepReduction::ValuesOf(
    uint32_t bucket) const {
  std::vector<absl::Span<const float>> pieces;
  for (const uint32_t id : buckets_[bucket].blocks) {
    pieces.push_back(updater_.values(local_[id]));
  }
  return pieces;
}

std::string StepReduction::MissingText() const {
  std::vector<std::string> names;
  const auto say = [&](absl::string_view what) {
    return absl::StrCat(what, " of ", absl::StrJoin(names, ", "));
  };
  for (uint32_t rank = 0; rank < facts_.size(); ++rank) {
    if (!facts_[rank].has_value()) names.push_back(options_.ranks[rank]);
  }
  if (!names.empty()) return say("the step");
  for (uint32_t rank = 0; rank < facts_.size(); ++rank) {
    for (uint32_t b = 0; has_gradient(rank) && b < buckets_.size(); ++b) {
      if (!Owns(b) || delivered_[b][rank]) continue;
      names.push_back(options_.ranks[rank]);
      break;
    }
  }
  if (!names.empty()) return say("the gradient");
  for (uint32_t rank = 0; rank < facts_.size(); ++rank) {
    if (!stage_.has_value() || options_.replicates) break;
    if (map_.shard_blocks(rank).empty()) continue;
    if (!norms_of_[IndexOf(*stage_)][rank]) {
      names.push_back(options_.ranks[rank]);
    }
  }
  if (!names.empty()) return say("the norms");
  if (options_.keeps_values) return "values of this rank that others read";
  for (uint32_t rank = 0; rank < facts_.size(); ++rank) {
    for (uint32_t b = 0; b < buckets_.size(); ++b) {
      if (buckets_[b].owner != rank || Owns(b) || result_here_[b]) continue;
      names.push_back(options_.ranks[rank]);
      break;
    }
  }
  return say("reduced blocks");
}

}  // namespace syncline::worker

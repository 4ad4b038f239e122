// Goal: ranks that reduce among themselves compute the bits of one owner that
// has all gradients, with every optimizer, norm and policy, in whatever order
// messages arrive; both strategies the same. With 16 bits on the wire the owner
// has all gradients rounded, and ranks train on its rounded values; compressed
// ones it has decoded. Method:
// random jobs over small tensors, ranks as threads over InProcessPeers, whose
// seed orders bytes; after each step each rank's values are compared with those
// of one DenseUpdater.

#include "worker/peers/peer_exchange.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/element_type.h"
#include "common/base/random.h"
#include "common/checkpoint/manifest.h"
#include "common/update/compressed_source.h"
#include "common/update/norm_blocks.h"
#include "common/update/norm_reducer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/optimizer/lamb.h"
#include "tests/testing/borrowed_peer.h"
#include "tests/testing/in_process_peers.h"
#include "tests/testing/seed_count.h"
#include "tests/testing/temp_dir.h"
#include "worker/exchange/gradient_norm.h"

namespace syncline::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Tensors = std::vector<std::vector<float>>;

constexpr float kMomentum = 0.75f;

// One rank's part in a step.
struct RankStep {
  uint64_t samples = 0;
  bool abandoned = false;
  bool bad = false;        // an element of its gradient is not finite
  bool reads_cut = false;  // behind the step, in place of the next values
};

struct Job {
  uint32_t ranks = 2;
  std::vector<int64_t> sizes;
  std::optional<size_t> mean;  // a tensor that is a running mean
  DenseUpdater::Options update;
  ElementType wire_type = ElementType::kFloat32;
  BucketSizes buckets;
  std::vector<std::vector<RankStep>> steps;  // by clock, by rank
  uint64_t seed = 0;
  bool frees_gradients = false;
  bool applies_together = false;
  GradientCompression compression = {};
  double clip_before = 0;  // it is compressed
  // Values are at their owners alone, and are gathered so in a step.
  std::vector<std::vector<int>> units = {};

  std::vector<TensorSize> tensors() const {
    std::vector<TensorSize> tensors;
    for (size_t t = 0; t < sizes.size(); ++t) {
      tensors.push_back({absl::StrCat("t", t), sizes[t]});
    }
    return tensors;
  }
};

std::vector<bool> RunningMeans(const Job& job) {
  std::vector<bool> means(job.sizes.size());
  if (job.mean.has_value()) means[*job.mean] = true;
  return means;
}

GradientCompressor::Options CompressorOptions(const Job& job, uint32_t rank) {
  return {.compression = job.compression,
          .seed = job.seed,
          .rank = rank,
          .momentum = 0.5f,
          .workers = static_cast<uint32_t>(job.steps[0].size()),
          .may_be_undone = job.update.on_non_finite == OnNonFinite::kSkipStep,
          .running_means = RunningMeans(job)};
}

Tensors RandomTensors(const Job& job, uint64_t seed) {
  Random random(seed);
  Tensors tensors;
  for (const int64_t size : job.sizes) {
    std::vector<float>& values = tensors.emplace_back(size);
    for (float& value : values) value = static_cast<float>(random.Normal());
  }
  return tensors;
}

Tensors GradientOf(const Job& job, uint32_t rank, int64_t clock) {
  Tensors gradient =
      RandomTensors(job, job.seed * 7919 + rank * 131 + clock * 17 + 1);
  if (job.steps[clock][rank].bad) {
    std::vector<float>& of = gradient[(job.seed + clock) % gradient.size()];
    // float16 ends at 65,504.
    const float infinite = job.wire_type == ElementType::kFloat16
                               ? 66000
                               : std::numeric_limits<float>::infinity();
    of[(job.seed * 31) % of.size()] =
        clock % 2 == 0 ? std::numeric_limits<float>::quiet_NaN() : infinite;
  }
  return gradient;
}

Job RandomJob(uint64_t seed) {
  Random random(seed + 1);
  Job job;
  job.seed = seed;
  job.ranks = 2 + static_cast<uint32_t>(random.Below(3));
  const size_t tensors = 1 + random.Below(4);
  for (size_t t = 0; t < tensors; ++t) {
    job.sizes.push_back(
        static_cast<int64_t>(1 + random.Below(t == 0 ? 3000 : 200)));
  }
  if (tensors > 1 && random.Below(2) == 0) job.mean = tensors - 1;
  constexpr OptimizerKind kKinds[] = {
      OptimizerKind::kSgd, OptimizerKind::kMomentum, OptimizerKind::kAdam,
      OptimizerKind::kLamb};
  job.update.optimizer.kind = kKinds[random.Below(4)];
  job.update.rule.learning_rate.base = 0.01f;
  if (random.Below(2) == 0) job.update.rule.clip_norm = 1;
  constexpr OnNonFinite kPolicies[] = {
      OnNonFinite::kFailJob, OnNonFinite::kSkipStep, OnNonFinite::kDropBlock};
  job.update.on_non_finite = kPolicies[random.Below(3)];
  job.buckets = {.worth = 1 + random.Below(1500),
                 .most = 1500 + random.Below(1500)};
  const bool can_be_bad = job.update.on_non_finite != OnNonFinite::kFailJob;
  const size_t clocks = 2 + random.Below(4);
  for (size_t clock = 0; clock < clocks; ++clock) {
    std::vector<RankStep>& step = job.steps.emplace_back(job.ranks);
    for (RankStep& rank : step) {
      rank.samples = random.Below(5) == 0 ? 0 : 1 + random.Below(9);
      if (!can_be_bad) continue;
      rank.abandoned = random.Below(8) == 0;
      rank.bad = random.Below(8) == 0;
    }
  }
  return job;
}

// As they are once they have travelled.
Tensors Sent(ElementType type, Tensors tensors) {
  for (std::vector<float>& of : tensors) {
    std::vector<char> sent(of.size() * ElementBytes(type));
    Narrow(type, of.data(), sent.data(), of.size());
    Widen(type, sent.data(), of.data(), of.size());
  }
  return tensors;
}

// With 16 bits on the wire; ranks read cuts: those of ALL_REDUCE all, of
// SHARDED the chief.
Job NarrowJob(uint64_t seed, bool replicates) {
  Job job = RandomJob(seed);
  Random random(seed + 2);
  job.wire_type =
      random.Below(2) == 0 ? ElementType::kBfloat16 : ElementType::kFloat16;
  for (std::vector<RankStep>& step : job.steps) {
    for (RankStep& rank : step) rank.reads_cut = random.Below(4) == 0;
    for (size_t rank = 1; rank < step.size() && !replicates; ++rank) {
      step[rank].reads_cut = false;
    }
  }
  job.frees_gradients = !replicates && random.Below(2) == 0;
  return job;
}

// Of SHARDED, stage 3: forward reads every tensor, backward some of them, in
// each part of a batch; the chief reads cuts.
Job GatherJob(uint64_t seed, bool narrows = false) {
  Job job = RandomJob(seed);
  if (narrows) {
    job.wire_type =
        seed % 2 == 0 ? ElementType::kBfloat16 : ElementType::kFloat16;
  }
  Random random(seed + 3);
  const auto count = static_cast<int>(job.sizes.size());
  const auto add = [&](int tensor) {
    if (job.units.empty() || random.Below(2) == 0) job.units.emplace_back();
    std::vector<int>& unit = job.units.back();
    if (std::find(unit.begin(), unit.end(), tensor) == unit.end()) {
      unit.push_back(tensor);
    }
  };
  for (int t = 0; t < count; ++t) add(t);
  for (int t = count; t-- > 0;) {
    if (random.Below(3) != 0) add(t);
  }
  const std::vector<std::vector<int>> of_part = job.units;
  for (uint64_t parts = 1 + random.Below(3); parts > 1; --parts) {
    job.units.insert(job.units.end(), of_part.begin(), of_part.end());
  }
  for (std::vector<RankStep>& step : job.steps) {
    step[0].reads_cut = random.Below(3) == 0;
  }
  return job;
}

// Compressed, by any strategy.
Job CompressedJob(uint64_t seed, bool replicates) {
  Random random(seed + 4);
  Job job = RandomJob(seed);
  if (random.Below(3) == 0) {
    job = NarrowJob(seed, replicates);
  } else if (!replicates && random.Below(2) == 0) {
    job = GatherJob(seed, /*narrows=*/random.Below(2) == 0);
  }
  // Several blocks.
  if (random.Below(32) == 0) job.sizes[0] = 200'000;
  using Kind = GradientCompression::Kind;
  constexpr Kind kKinds[] = {Kind::kInt8, Kind::kTopK, Kind::kDgc,
                             Kind::kTernGrad};
  job.compression = {.kind = kKinds[random.Below(4)],
                     .fraction = 0.05 + 0.1 * random.Below(5),
                     .block_elements = 32,
                     .warmup_clocks = random.Below(4),
                     .values = replicates && random.Below(2) == 0};
  job.update.rule.clip_norm = 0;
  if (!job.frees_gradients && job.units.empty()) {
    job.frees_gradients = !replicates && random.Below(2) == 0;
  }
  if (job.compression.kind == Kind::kDgc) {
    job.update.optimizer.kind = OptimizerKind::kSgd;
    if (!job.frees_gradients && job.units.empty()) {
      job.clip_before = 0.5 * random.Below(2);
    }
  }
  return job;
}

class Whole final : public FloatSource {
 public:
  explicit Whole(std::vector<float> values) : values_(std::move(values)) {}
  void CopyTo(size_t first, size_t count, float* out) const override {
    std::copy_n(values_.data() + first, count, out);
  }

 private:
  const std::vector<float> values_;
};

// The values behind each clock, and whether it was skipped.
struct Expected {
  std::vector<Tensors> values;  // by clock
  std::vector<bool> skipped;    // by clock
};

// A rank's gradients as their owner has them, step by step.
class SentGradients {
 public:
  SentGradients(const Job& job, const BlockMap& map, uint32_t rank)
      : job_(job), map_(map), rank_(rank) {
    if (!job.compression.any()) return;
    compressor_ =
        std::make_unique<GradientCompressor>(CompressorOptions(job, rank), map);
  }

  Tensors At(size_t clock) {
    Tensors gradient = GradientOf(job_, rank_, clock);
    if (compressor_ == nullptr) return Sent(job_.wire_type, gradient);
    const uint64_t samples = job_.steps[clock][rank_].samples;
    compressor_->BeginStep(clock, samples);
    if (job_.clip_before > 0) Clip(gradient, clock, samples);
    for (size_t t = 0; t < gradient.size(); ++t) {
      compressor_->Compress(t, gradient[t]);
    }
    for (const uint32_t id : map_.shard_blocks(0)) {
      const Block& block = map_.blocks()[id];
      CompressedSource source;
      EXPECT_TRUE(source.AddView(compressor_->block(id), block.count).ok());
      source.CopyTo(0, block.count, &gradient[block.tensor][block.offset]);
    }
    return gradient;
  }

  void OnSkipped(size_t clock) {
    if (compressor_ == nullptr) return;
    if (compressor_->clock() == static_cast<int64_t>(clock)) {
      compressor_->Undo();
    }
  }

 private:
  void Clip(const Tensors& gradient, size_t clock, uint64_t samples) {
    const std::vector<absl::Span<const float>> spans(gradient.begin(),
                                                     gradient.end());
    const double norm =
        std::sqrt(*SquaredNorm({.map = map_,
                                .gradients = spans,
                                .names = {},
                                .running_means = RunningMeans(job_),
                                .rows = {},
                                .wire_type = ElementType::kFloat32,
                                .clock = static_cast<int64_t>(clock)},
                               job_.update.on_non_finite)) /
        static_cast<double>(samples);
    compressor_->Clip(norm, job_.clip_before, /*averaged=*/true);
  }

  const Job& job_;
  const BlockMap& map_;
  const uint32_t rank_;
  std::unique_ptr<GradientCompressor> compressor_;
};

// Sums as their owner sends them back, step by step.
class SentSums {
 public:
  SentSums(const Job& job, const BlockMap& map) {
    if (!job.compression.values) return;
    GradientCompressor::Options options = CompressorOptions(job, 0);
    options.compression = {.kind = GradientCompression::Kind::kInt8};
    if (!job.compression.sparse()) {
      options.compression.block_elements = job.compression.block_elements;
    }
    options.running_means.clear();
    std::vector<Block> blocks;
    for (const Block& block : map.blocks()) {
      blocks.push_back({.tensor = static_cast<uint32_t>(blocks.size()),
                        .offset = 0,
                        .count = block.count,
                        .shard = 0});
      options.running_means.push_back(job.mean == block.tensor);
    }
    compressor_ = std::make_unique<GradientCompressor>(options, blocks);
  }

  // REQUIRES: the block's gradients are reduced.
  void Replace(uint32_t block, size_t clock, uint64_t samples,
               DenseUpdater* updater) {
    if (updater->reduced_samples(block) == 0) return;
    const absl::Span<float> sum = updater->mutable_reduced(block);
    compressor_->BeginStep(clock, samples);
    compressor_->Compress(block, sum, updater->reduced_samples(block));
    CompressedSource source;
    EXPECT_TRUE(source.AddView(compressor_->block(block), sum.size()).ok());
    source.CopyTo(0, sum.size(), sum.data());
  }
  bool any() const { return compressor_ != nullptr; }
  void OnSkipped(size_t clock) {
    if (any() && compressor_->clock() == static_cast<int64_t>(clock)) {
      compressor_->Undo();
    }
  }

 private:
  std::unique_ptr<GradientCompressor> compressor_;
};

// As server/consistency/sync_clock.h orders it, in a few lines.
Expected TrainWithOneOwner(const Job& job) {
  const BlockMap map = *BlockMap::Create(job.tensors(), 1);
  std::vector<size_t> counts;
  for (const Block& block : map.blocks()) counts.push_back(block.count);
  DenseUpdater updater(job.update, counts);
  DenseUpdater::Scratch scratch;
  Tensors values = RandomTensors(job, job.seed);
  const auto blocks = map.shard_blocks(0);
  for (const uint32_t id : blocks) {
    const Block& block = map.blocks()[id];
    if (job.mean == block.tensor) updater.MakeRunningMean(id, kMomentum);
    updater.Init(id, Whole(values[block.tensor]), block.offset);
  }
  const bool skips = job.update.on_non_finite == OnNonFinite::kSkipStep;
  const bool lamb = job.update.optimizer.kind == OptimizerKind::kLamb;
  std::vector<SentGradients> sent;
  for (uint32_t rank = 0; rank < job.ranks; ++rank) {
    sent.emplace_back(job, map, rank);
  }
  SentSums sums(job, map);
  Expected expected;
  for (size_t clock = 0; clock < job.steps.size(); ++clock) {
    uint64_t samples = 0;
    bool abandoned = false;
    for (uint32_t rank = 0; rank < job.ranks; ++rank) {
      const RankStep& step = job.steps[clock][rank];
      abandoned |= step.abandoned;
      if (step.abandoned || step.samples == 0) continue;
      samples += step.samples;
      Tensors gradient = sent[rank].At(clock);
      std::vector<std::shared_ptr<const FloatSource>> sources;
      for (auto& of : gradient) {
        sources.push_back(std::make_shared<Whole>(std::move(of)));
      }
      for (const uint32_t id : blocks) {
        const Block& block = map.blocks()[id];
        updater.BufferGradient(id, rank, sources[block.tensor], block.offset,
                               step.samples);
      }
    }
    bool skipped = skips && abandoned;
    double norm = -1;
    if (!skipped && samples > 0 && (job.update.rule.clip_norm > 0 || skips)) {
      norm = 0;
      for (const uint32_t id : blocks) {
        norm += updater.ReduceGradients(id, samples, &scratch);
      }
      skipped = skips && !std::isfinite(norm);
    }
    for (const uint32_t id : blocks) {
      if (!sums.any() || skipped || samples == 0) break;
      if (norm < 0) updater.SumGradients(id, samples, &scratch);
      sums.Replace(id, clock, samples, &updater);
    }
    if (skipped) {
      for (const uint32_t id : blocks) updater.DropGradients(id);
      for (SentGradients& of : sent) of.OnSkipped(clock);
      sums.OnSkipped(clock);
    } else if (samples > 0 && lamb) {
      std::vector<double> norms;
      for (const uint32_t id : blocks) {
        const LambNorms of =
            updater.ComputeLambUpdate(id, samples, norm, &scratch);
        norms.insert(norms.end(), {of.value, of.update});
      }
      const auto ratios = LambTrustRatios(
          SumNorms(ReductionStage::kTrust, TensorsOfBlocks(map), norms));
      for (const uint32_t id : blocks) {
        updater.ApplyLambUpdate(id, clock, ratios[map.blocks()[id].tensor]);
      }
    } else if (samples > 0) {
      for (const uint32_t id : blocks) {
        updater.Apply(id, clock, samples, norm, &scratch);
      }
    }
    for (const uint32_t id : blocks) {
      const Block& block = map.blocks()[id];
      const auto of = updater.values(id);
      std::copy(of.begin(), of.end(),
                values[block.tensor].begin() + block.offset);
    }
    expected.values.push_back(values);
    expected.skipped.push_back(skipped || (samples == 0 && abandoned));
  }
  return expected;
}

bool SameBits(const Tensors& a, const Tensors& b) {
  for (size_t t = 0; t < a.size(); ++t) {
    if (std::memcmp(a[t].data(), b[t].data(), a[t].size() * sizeof(float)) != 0)
      return false;
  }
  return true;
}

// One rank of a job.
class Rank {
 public:
  Rank(const Job& job, InProcessPeers* peers, uint32_t rank, bool replicates,
       absl::Duration step_timeout = absl::Seconds(60),
       std::optional<PeerCheckpoints::Options> checkpoints = {},
       ClientTelemetry telemetry = {})
      : job_(job), rank_(rank) {
    Random random(job.seed + rank + 1000);
    values_ = RandomTensors(job, rank == 0 ? job.seed : random.Next());
    gradients_ = values_;
    DenseTensors tensors;
    PeerExchange::Options options;
    for (size_t t = 0; t < values_.size(); ++t) {
      tensors.values.push_back(absl::MakeSpan(values_[t]));
      tensors.gradients.push_back(absl::MakeConstSpan(gradients_[t]));
      tensors.names.push_back(absl::StrCat("t", t));
      options.momenta.push_back(job.mean == t ? std::optional<float>(kMomentum)
                                              : std::nullopt);
    }
    tensors.running_means = RunningMeans(job);
    options.compression = {.compressor = CompressorOptions(job, rank),
                           .clip_norm = job.clip_before,
                           .on_non_finite = job.update.on_non_finite};
    options.replicates = replicates;
    options.applies_together = job.applies_together;
    options.frees_gradients = job.frees_gradients || !job.units.empty();
    if (options.frees_gradients) {
      tensors.gradients.clear();
      tensors.gradient_of = [this](uint32_t t) {
        return absl::MakeConstSpan(gradients_[t]);
      };
    }
    if (!job.units.empty()) {
      options.frees_values = true;
      tensors.gather_units = job.units;
      tensors.release_values = [this] { Poison(&values_); };
    }
    options.wire_type = job.wire_type;
    options.update = job.update;
    options.buckets = job.buckets;
    options.checkpoints = std::move(checkpoints);
    options.telemetry = telemetry;
    auto borrowed = std::make_unique<BorrowedPeer>(peers->at(rank));
    borrowed_ = borrowed.get();
    link_ = std::make_shared<PeerLink>(
        PeerLink::Options{
            .label = absl::StrCat("job j-test on ",
                                  peers->at(rank)->group().NameOf(rank)),
            .step_timeout = step_timeout},
        std::move(borrowed));
    auto exchange =
        PeerExchange::Create(options, *OwnedBlocks(job.tensors(), job.ranks),
                             std::move(tensors), link_);
    EXPECT_TRUE(exchange.ok()) << exchange.status();
    exchange_ = *std::move(exchange);
  }

  absl::Status Start() {
    if (rank_ == 0) {
      if (absl::Status init = exchange_->Init(job_.steps.size()); !init.ok()) {
        return init;
      }
    }
    return exchange_->Pull(0);
  }

  // `before`: what its units are to gather.
  absl::Status Step(int64_t clock, const Tensors* before = nullptr) {
    const RankStep& step = job_.steps[clock][rank_];
    const uint64_t cut = clock + 1;
    if (step.reads_cut) {
      const auto agreed = exchange_->BeginCut(
          {.id = cut, .clocks = std::vector<int64_t>(job_.ranks, clock + 1)});
      if (!agreed.ok()) return agreed.status();
    }
    exchange_->BeginStep(
        {.clock = clock,
         .sample_count = step.samples,
         .finished = clock + 1 == static_cast<int64_t>(job_.steps.size()),
         .pull = !step.reads_cut});
    if (step.samples > 0 && !job_.units.empty()) {
      const absl::Status gathered = Gather(before, step.abandoned);
      if (!gathered.ok()) return gathered;
    }
    if (step.abandoned) {
      exchange_->AbandonStep(/*own_values=*/true);
    } else if (step.samples > 0) {
      const Tensors gradient = GradientOf(job_, rank_, clock);
      for (size_t t = gradient.size(); t-- > 0;) {
        std::copy(gradient[t].begin(), gradient[t].end(),
                  gradients_[t].begin());
        exchange_->OnGradientReady(static_cast<uint32_t>(t));
      }
    }
    exchange_->EndBackward({});
    const absl::Status done = exchange_->Wait();
    if (!done.ok() || !step.reads_cut) return done;
    // To wait for a cut changes nothing of what is trained with.
    const absl::Status reached = exchange_->AwaitCut(cut, clock + 1);
    return reached.ok() ? exchange_->PullCut(cut, clock + 1) : reached;
  }

  // As a process that is killed in its step, behind the gradients of the last
  // `tensors` tensors.
  void StepPartly(int64_t clock, size_t tensors) {
    exchange_->BeginStep(
        {.clock = clock, .sample_count = job_.steps[clock][rank_].samples});
    const Tensors gradient = GradientOf(job_, rank_, clock);
    for (size_t t = gradient.size(); tensors > 0 && t-- > 0; --tensors) {
      std::copy(gradient[t].begin(), gradient[t].end(), gradients_[t].begin());
      exchange_->OnGradientReady(static_cast<uint32_t>(t));
    }
  }

  PeerExchange& exchange() { return *exchange_; }
  // Every unit, or half of them, where the one behind has begun.
  absl::Status Gather(const Tensors* before, bool half) {
    ParameterGatherer& gatherer = *exchange_->gatherer();
    const size_t count = job_.units.size();
    gathered_.assign(count, {});
    const auto begin = [&](size_t unit) {
      std::vector<float*> to;
      for (const int t : job_.units[unit]) {
        gathered_[unit].emplace_back(job_.sizes[t], kPoison);
      }
      for (std::vector<float>& values : gathered_[unit]) {
        to.push_back(values.data());
      }
      gatherer.Begin(static_cast<int>(unit), to);
    };
    begin(0);
    for (size_t unit = 0; unit < (half ? (count + 1) / 2 : count); ++unit) {
      absl::Status here = gatherer.Await(static_cast<int>(unit));
      if (!here.ok()) return here;
      if (unit + 1 < count) begin(unit + 1);
      for (size_t i = 0; before != nullptr && i < job_.units[unit].size();
           ++i) {
        const std::vector<float>& want = (*before)[job_.units[unit][i]];
        if (SameBits({gathered_[unit][i]}, {want})) continue;
        return absl::InternalError(absl::StrCat("other values in unit ", unit));
      }
      gatherer.Release(static_cast<int>(unit));
    }
    return absl::OkStatus();
  }
  int messages_under_way() const { return borrowed_->under_way(); }
  const Tensors& values() const { return values_; }
  void SetValues(const Tensors& values) {
    for (size_t t = 0; t < values.size(); ++t) {
      std::copy(values[t].begin(), values[t].end(), values_[t].begin());
    }
  }

 private:
  static constexpr float kPoison = 12345;
  static void Poison(Tensors* tensors) {
    for (std::vector<float>& of : *tensors) {
      std::fill(of.begin(), of.end(), kPoison);
    }
  }

  const Job& job_;
  const uint32_t rank_;
  std::vector<Tensors> gathered_;  // by unit
  Tensors values_;
  Tensors gradients_;
  BorrowedPeer* borrowed_ = nullptr;
  std::shared_ptr<PeerLink> link_;
  std::unique_ptr<PeerExchange> exchange_;
};

template <typename Function>
void OnThreads(uint32_t count, Function function) {
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < count; ++i) threads.emplace_back(function, i);
  for (std::thread& thread : threads) thread.join();
}

std::string TextOf(const Job& job) {
  return absl::StrCat("seed ", job.seed, ", ", job.ranks, " ranks, optimizer ",
                      static_cast<int>(job.update.optimizer.kind), ", clip ",
                      job.update.rule.clip_norm, ", policy ",
                      static_cast<int>(job.update.on_non_finite),
                      ", wire type ", static_cast<int>(job.wire_type),
                      ", compression ", static_cast<int>(job.compression.kind));
}

void ExpectTheBitsOfOneOwner(const Job& job, bool replicates) {
  SCOPED_TRACE(absl::StrCat(TextOf(job), replicates ? ", ALL_REDUCE" : ""));
  const Expected expected = TrainWithOneOwner(job);
  InProcessPeers peers({.ranks = job.ranks, .seed = job.seed + 5});
  std::vector<std::unique_ptr<Rank>> ranks;
  for (uint32_t rank = 0; rank < job.ranks; ++rank) {
    ranks.push_back(std::make_unique<Rank>(job, &peers, rank, replicates));
  }
  std::vector<std::string> wrong(job.ranks);
  std::vector<std::optional<ParameterExchange::LeftOut>> left_out(job.ranks);
  OnThreads(job.ranks, [&](uint32_t rank) {
    Rank& of = *ranks[rank];
    if (const absl::Status start = of.Start(); !start.ok()) {
      wrong[rank] = start.ToString();
      return;
    }
    // By SHARDED they are rounded as the first step begins.
    const Tensors first =
        Sent(replicates ? job.wire_type : ElementType::kFloat32,
             RandomTensors(job, job.seed));
    const bool gathers = !job.units.empty();
    if ((!gathers || rank == 0) && !SameBits(of.values(), first)) {
      wrong[rank] = "other initial values";
      of.exchange().Cancel(absl::CancelledError("other bits"));
      return;
    }
    for (size_t clock = 0; clock < job.steps.size(); ++clock) {
      // As its units are to come, if it gathers.
      const Tensors& state = clock == 0 ? first : expected.values[clock - 1];
      const bool reads_whole =
          clock > 0 && job.steps[clock - 1][rank].reads_cut;
      const Tensors before = reads_whole ? state : Sent(job.wire_type, state);
      const absl::Status stepped = of.Step(clock, &before);
      if (!stepped.ok()) {
        wrong[rank] = stepped.ToString();
        return;
      }
      const Tensors& whole = expected.values[clock];
      const bool is_last = clock + 1 == job.steps.size();
      const bool is_whole = job.steps[clock][rank].reads_cut ||
                            (!replicates && rank == 0 && is_last);
      const bool has_values = !gathers || (rank == 0 && (is_whole || is_last));
      if (has_values &&
          !SameBits(of.values(),
                    is_whole ? whole : Sent(job.wire_type, whole))) {
        wrong[rank] = absl::StrCat("other bits after clock ", clock);
        of.exchange().Cancel(absl::CancelledError("other bits"));
        return;
      }
      if (of.exchange().was_skipped(clock) != expected.skipped[clock]) {
        wrong[rank] = absl::StrCat("skipped or not at clock ", clock);
        of.exchange().Cancel(absl::CancelledError("skipped"));
        return;
      }
    }
    left_out[rank] = of.exchange().left_out();
    // Reports of activity that this rank would take are left. The callback that
    // has woken this thread counts its message off a moment later.
    const auto has_ended = [&] {
      return of.messages_under_way() == static_cast<int>(job.ranks) - 1;
    };
    peers.at(rank)->Await(has_ended, MonotonicNow() + absl::Seconds(20));
    if (!has_ended()) {
      wrong[rank] = absl::StrCat(of.messages_under_way(),
                                 " messages are under way at the end");
    }
  });
  for (uint32_t rank = 0; rank < job.ranks; ++rank) {
    EXPECT_EQ(wrong[rank], "") << "rank " << rank;
    EXPECT_EQ(left_out[rank], left_out[0]) << "rank " << rank;
  }
}

TEST(PeerExchangeTest, ComputesTheBitsOfOneOwnerInAnyOrderOfDelivery) {
  for (int seed = 0; seed < SeedCount(1200); ++seed) {
    const Job job = RandomJob(seed);
    ExpectTheBitsOfOneOwner(job, /*replicates=*/seed % 2 == 0);
    if (HasFailure()) return;
  }
}

TEST(PeerExchangeTest, ComputesTheBitsOfOneOwnerWith16BitsOnTheWire) {
  for (int seed = 0; seed < SeedCount(600); ++seed) {
    const bool replicates = seed % 2 == 0;
    ExpectTheBitsOfOneOwner(NarrowJob(seed, replicates), replicates);
    if (HasFailure()) return;
  }
}

TEST(PeerExchangeTest, ComputesTheBitsOfOneOwnerWithCompressedGradients) {
  for (int seed = 0; seed < SeedCount(600); ++seed) {
    const bool replicates = seed % 2 == 0;
    ExpectTheBitsOfOneOwner(CompressedJob(seed, replicates), replicates);
    if (HasFailure()) return;
  }
}

// Values are at their owners alone. Whatever was given back is overwritten.
TEST(PeerExchangeTest, ComputesTheBitsOfOneOwnerWithGatheredValues) {
  for (int seed = 0; seed < SeedCount(600); ++seed) {
    ExpectTheBitsOfOneOwner(GatherJob(seed), /*replicates=*/false);
    if (HasFailure()) return;
  }
}

TEST(PeerExchangeTest, ComputesTheBitsOfOneOwnerWithGatheredValuesOf16Bits) {
  for (int seed = 0; seed < SeedCount(600); ++seed) {
    ExpectTheBitsOfOneOwner(GatherJob(seed, /*narrows=*/true),
                            /*replicates=*/false);
    if (HasFailure()) return;
  }
}

Job SmallJob(uint32_t ranks, size_t clocks) {
  Job job;
  job.ranks = ranks;
  job.sizes = {3000, 10};
  job.update.optimizer.kind = OptimizerKind::kSgd;
  job.update.rule.learning_rate.base = 0.01f;
  job.steps.assign(clocks,
                   std::vector<RankStep>(ranks, RankStep{.samples = 4}));
  return job;
}

TEST(PeerExchangeTest, FailsTheJobAtAGradientThatIsNotFinite) {
  for (const bool replicates : {false, true}) {
    Job job = SmallJob(3, 3);
    job.steps[1][2].bad = true;
    InProcessPeers peers({.ranks = 3});
    std::vector<std::unique_ptr<Rank>> ranks;
    for (uint32_t rank = 0; rank < 3; ++rank) {
      ranks.push_back(std::make_unique<Rank>(job, &peers, rank, replicates));
    }
    std::vector<absl::Status> ends(3);
    OnThreads(3, [&](uint32_t rank) {
      ends[rank] = ranks[rank]->Start();
      for (int64_t clock = 0; clock < 3 && ends[rank].ok(); ++clock) {
        ends[rank] = ranks[rank]->Step(clock);
      }
      // As its process does when its run has failed.
      if (!ends[rank].ok()) peers.Kill(rank);
    });
    int named = 0;
    for (const absl::Status& end : ends) {
      EXPECT_FALSE(end.ok());
      if (!absl::IsFailedPrecondition(end)) continue;
      ++named;
      EXPECT_THAT(std::string(end.message()),
                  AllOf(HasSubstr("clock 1 is not finite: element"),
                        HasSubstr("of rank 2 (worker:2 at host-2:1)"),
                        HasSubstr("job j-test")));
    }
    EXPECT_GE(named, 1);
  }
}

// Blocks of two ranks with replicated state, and the values of one of them.
struct Reduced {
  explicit Reduced(uint32_t rank,
                   ElementType wire_type = ElementType::kFloat32) {
    const Job job = SmallJob(2, 1);
    values = RandomTensors(job, 1);
    for (size_t t = 0; t < values.size(); ++t) {
      tensors.values.push_back(absl::MakeSpan(values[t]));
      tensors.gradients.push_back(absl::MakeConstSpan(values[t]));
      tensors.names.push_back(absl::StrCat("t", t));
    }
    StepReduction::Options options;
    options.label = "job j-test";
    options.ranks = {"rank 0", "rank 1"};
    options.rank = rank;
    options.replicates = true;
    options.wire_type = wire_type;
    options.update = job.update;
    options.momenta.resize(2);
    BlockMap map = *OwnedBlocks(job.tensors(), 2);
    std::vector<Bucket> buckets = MakeBuckets(map, {}, job.buckets);
    reduction.emplace(options, std::move(map), std::move(buckets), &tensors);
    reduction->Init(1);
    reduction->Begin(0);
    reduction->OnFacts(0, {.sample_count = 4});
    reduction->OnFacts(1, {.sample_count = 4});
  }
  // The first bucket that `rank` owns.
  uint32_t BucketOf(uint32_t rank) const {
    uint32_t b = 0;
    while (reduction->buckets()[b].owner != rank) ++b;
    return b;
  }
  std::shared_ptr<const FloatSource> NotFinite(uint32_t bucket) const {
    return std::make_shared<Whole>(
        std::vector<float>(reduction->buckets()[bucket].elements,
                           std::numeric_limits<float>::quiet_NaN()));
  }

  Tensors values;
  DenseTensors tensors;
  std::optional<StepReduction> reduction;
};

// Others could not say whose gradient spoilt it.
TEST(StepReductionTest, ASumThatFailsTheJobIsSentToNobody) {
  Reduced owner(/*rank=*/0);
  StepReduction& reduction = *owner.reduction;
  const uint32_t bucket = owner.BucketOf(0);
  reduction.OnOwnGradient(bucket);
  reduction.OnGradient(1, bucket, owner.NotFinite(bucket));
  EXPECT_FALSE(reduction.Next().has_value());
  EXPECT_THAT(
      std::string(reduction.status().message()),
      AllOf(HasSubstr("clock 0 is not finite"), HasSubstr(", of rank 1")));
}

// Its own gradient is finite until it is rounded, as the others' are.
TEST(StepReductionTest, AnOwnersGradientThatOverflowsTheWireIsItsOwn) {
  for (const auto type : {ElementType::kFloat32, ElementType::kFloat16}) {
    Reduced owner(/*rank=*/0, type);
    StepReduction& reduction = *owner.reduction;
    const uint32_t bucket = owner.BucketOf(0);
    const Block& block =
        reduction.map().blocks()[reduction.buckets()[bucket].blocks[0]];
    owner.values[block.tensor][block.offset + 3] = 66000;
    reduction.OnOwnGradient(bucket);
    reduction.OnGradient(1, bucket,
                         std::make_shared<Whole>(std::vector<float>(
                             reduction.buckets()[bucket].elements, 1)));
    const bool goes_on = reduction.Next().has_value();
    EXPECT_EQ(goes_on, type == ElementType::kFloat32);
    EXPECT_EQ(reduction.found_of(0), goes_on ? 0u : 1u);
    if (goes_on) continue;
    EXPECT_THAT(std::string(reduction.status().message()),
                AllOf(HasSubstr(absl::StrCat("clock 0 is not finite: element ",
                                             block.offset + 3, " of")),
                      HasSubstr(", of rank 0")));
  }
}

TEST(StepReductionTest, ASumOfAnotherRankThatIsNotFiniteBlamesNobody) {
  Reduced other(/*rank=*/1);
  StepReduction& reduction = *other.reduction;
  const uint32_t bucket = other.BucketOf(0);
  const std::vector<StepReduction::BlockSum> sums(
      reduction.buckets()[bucket].blocks.size(), {.sample_count = 8});
  ASSERT_EQ(reduction.OnSum(bucket, sums, other.NotFinite(bucket)),
            absl::OkStatus());
  EXPECT_FALSE(reduction.Next().has_value());
  EXPECT_THAT(std::string(reduction.status().message()),
              AllOf(HasSubstr("clock 0 is not finite"),
                    HasSubstr(", in the sum over all workers")));
  EXPECT_EQ(reduction.found_of(0), 0u);
}

// A rank that fails by itself closes its link: whoever waits for it says that
// it is lost, so that the reason can still come from the one that has it.
TEST(PeerExchangeTest, ARankThatClosesIsLostToTheOthers) {
  const Job job = SmallJob(2, 2);
  InProcessPeers peers({.ranks = 2});
  Rank waits(job, &peers, 0, /*replicates=*/false);
  std::optional<Rank> fails(std::in_place, job, &peers, 1u, false);
  std::vector<absl::Status> ends(2);
  OnThreads(2, [&](uint32_t rank) {
    Rank& of = rank == 0 ? waits : *fails;
    ends[rank] = of.Start();
    if (rank == 1) {
      fails.reset();
    } else if (ends[rank].ok()) {
      ends[rank] = of.Step(0);
    }
  });
  EXPECT_TRUE(absl::IsUnavailable(ends[0])) << ends[0];
  EXPECT_THAT(std::string(ends[0].message()),
              HasSubstr("rank 1 (worker:1 at host-1:1) has left"));
}

// True if all state here is that behind `clock`, for all ranks.
bool HasState(const Job& job, const Expected& expected, int64_t clock,
              const StepReduction& reduction) {
  const Tensors values =
      clock == 0 ? RandomTensors(job, job.seed) : expected.values[clock - 1];
  const BlockMap& map = reduction.map();
  for (uint32_t id = 0; id < map.blocks().size(); ++id) {
    const Block& block = map.blocks()[id];
    const auto own = reduction.updater().values(reduction.local(id));
    if (std::memcmp(own.data(), values[block.tensor].data() + block.offset,
                    own.size() * sizeof(float)) != 0) {
      return false;
    }
  }
  return true;
}

// A rank that loses another knows which clock its state is behind, and saves
// it. Unless values change together, the state may be behind none.
TEST(PeerExchangeTest, WhoIsLeftHasTheStateBehindAClockAndSavesIt) {
  int whole = 0;
  for (int seed = 0; seed < SeedCount(400); ++seed) {
    Job job = RandomJob(seed);
    job.applies_together = seed % 2 == 0;
    if (job.update.on_non_finite == OnNonFinite::kDropBlock) {
      job.update.on_non_finite = OnNonFinite::kSkipStep;
    }
    Random random(seed + 77);
    const auto lost = static_cast<uint32_t>(1 + random.Below(job.ranks - 1));
    const auto last = static_cast<int64_t>(random.Below(job.steps.size()));
    const size_t tensors = random.Below(job.sizes.size() + 1);
    job.steps[last][lost] = {.samples = 5};
    SCOPED_TRACE(absl::StrCat(TextOf(job), ", rank ", lost, " dies at clock ",
                              last, " behind ", tensors, " tensors"));
    const Expected expected = TrainWithOneOwner(job);
    const TempDir dir;
    PeerCheckpoints::Options checkpoints;
    checkpoints.job_id = "j-test";
    checkpoints.folder = dir.path();
    InProcessPeers peers({.ranks = job.ranks, .seed = job.seed + 5});
    std::vector<std::unique_ptr<Rank>> ranks;
    for (uint32_t rank = 0; rank < job.ranks; ++rank) {
      ranks.push_back(std::make_unique<Rank>(job, &peers, rank,
                                             /*replicates=*/true,
                                             absl::Seconds(60), checkpoints));
    }
    std::vector<absl::Status> ends(job.ranks);
    std::vector<char> began(job.ranks);
    OnThreads(job.ranks, [&](uint32_t rank) {
      Rank& of = *ranks[rank];
      ends[rank] = of.Start();
      began[rank] = ends[rank].ok();
      for (int64_t clock = 0; clock <= last && ends[rank].ok(); ++clock) {
        if (rank == lost && clock == last) break;
        ends[rank] = of.Step(clock);
      }
      if (rank != lost) return;
      if (ends[rank].ok()) of.StepPartly(last, tensors);
      peers.Kill(rank);
    });
    for (uint32_t rank = 0; rank < job.ranks; ++rank) {
      if (rank == lost) continue;
      // A rank may have all that it needs of the step before the other dies.
      EXPECT_TRUE(ends[rank].ok() || absl::IsUnavailable(ends[rank]))
          << ends[rank];
      PeerExchange& exchange = ranks[rank]->exchange();
      const std::optional<int64_t> clock = exchange.OwnClock();
      if (!began[rank]) {
        EXPECT_FALSE(clock.has_value()) << "it has no state yet";
        continue;
      }
      whole += clock.has_value() ? 1 : 0;
      if (!clock.has_value()) {
        EXPECT_FALSE(job.applies_together) << "rank " << rank;
        continue;
      }
      // Messages of the clock before, from the dead rank, may not have come.
      EXPECT_GE(*clock, last - 1);
      EXPECT_LE(*clock, last + 1);
      EXPECT_TRUE(HasState(job, expected, *clock, exchange.reduction()))
          << "rank " << rank << " at clock " << *clock;
      const auto writing = exchange.SaveAlone(/*cut_id=*/rank + 1);
      const auto parts = writing->AwaitParts();
      ASSERT_TRUE(parts.ok()) << parts.status();
      ASSERT_EQ(parts->size(), 1u);
      const std::string file = dir.File(absl::StrCat(
          CheckpointName{.clock = *clock, .cut_id = rank + 1}.ToString(), "/",
          (*parts)[0].file));
      EXPECT_EQ(std::filesystem::file_size(file), (*parts)[0].bytes);
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(whole, 0);
}

// Whoever hears nothing for the step timeout says of whom, where, and when.
TEST(PeerExchangeTest, EndsWhenARankIsSilentAndNamesIt) {
  for (const bool replicates : {false, true}) {
    const Job job = SmallJob(3, 3);
    InProcessPeers peers({.ranks = 3});
    std::vector<std::unique_ptr<Rank>> ranks;
    for (uint32_t rank = 0; rank < 3; ++rank) {
      ranks.push_back(std::make_unique<Rank>(job, &peers, rank, replicates,
                                             absl::Milliseconds(300)));
    }
    std::vector<absl::Status> ends(3);
    OnThreads(3, [&](uint32_t rank) {
      ends[rank] = ranks[rank]->Start();
      // Rank 1 stops after its first step.
      const int64_t clocks = rank == 1 ? 1 : 3;
      for (int64_t clock = 0; clock < clocks && ends[rank].ok(); ++clock) {
        ends[rank] = ranks[rank]->Step(clock);
      }
    });
    EXPECT_EQ(ends[1], absl::OkStatus());
    for (const uint32_t rank : {0, 2}) {
      EXPECT_TRUE(absl::IsDeadlineExceeded(ends[rank])) << ends[rank];
      EXPECT_THAT(std::string(ends[rank].message()),
                  AllOf(HasSubstr("job j-test on rank"), HasSubstr("clock 1"),
                        HasSubstr("of rank 1 (worker:1 at host-1:1)")));
    }
  }
}

TEST(PeerExchangeTest, EndsWhenValuesDoNotComeAndNamesTheUnit) {
  Job job = SmallJob(3, 3);
  job.units = {{0}, {1, 0}};
  InProcessPeers peers({.ranks = 3});
  std::vector<std::unique_ptr<Rank>> ranks;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    ranks.push_back(std::make_unique<Rank>(job, &peers, rank,
                                           /*replicates=*/false,
                                           absl::Milliseconds(300)));
  }
  std::vector<absl::Status> ends(3);
  OnThreads(3, [&](uint32_t rank) {
    ends[rank] = ranks[rank]->Start();
    // Rank 1 stops after its first step.
    const int64_t clocks = rank == 1 ? 1 : 3;
    for (int64_t clock = 0; clock < clocks && ends[rank].ok(); ++clock) {
      ends[rank] = ranks[rank]->Step(clock);
    }
  });
  EXPECT_EQ(ends[1], absl::OkStatus());
  for (const uint32_t rank : {0, 2}) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(ends[rank])) << ends[rank];
    EXPECT_THAT(std::string(ends[rank].message()),
                AllOf(HasSubstr("job j-test on rank"), HasSubstr("clock 1"),
                      HasSubstr("the values of unit 0 ('t0'), of rank 1 "
                                "(worker:1 at host-1:1)")));
  }
}

TEST(PeerExchangeTest, RefusesARankWithOtherUnits) {
  Job job = SmallJob(2, 1);
  job.units = {{0}, {1}};
  Job other = job;
  other.units = {{0, 1}};
  InProcessPeers peers({.ranks = 2});
  Rank first(job, &peers, 0, /*replicates=*/false);
  Rank second(other, &peers, 1, /*replicates=*/false);
  std::vector<absl::Status> ends(2);
  OnThreads(2, [&](uint32_t rank) {
    ends[rank] = (rank == 0 ? first : second).Start();
  });
  EXPECT_TRUE(absl::IsInvalidArgument(ends[1])) << ends[1];
  EXPECT_THAT(std::string(ends[1].message()),
              HasSubstr("rank 0 (worker:0 at host-0:1) has other blocks"));
}

TEST(PeerExchangeTest, WaitsForARankThatReportsItsActivity) {
  const Job job = SmallJob(2, 2);
  InProcessPeers peers({.ranks = 2});
  std::vector<std::unique_ptr<Rank>> ranks;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ranks.push_back(std::make_unique<Rank>(job, &peers, rank, false,
                                           absl::Milliseconds(400)));
  }
  std::vector<absl::Status> ends(2);
  OnThreads(2, [&](uint32_t rank) {
    ends[rank] = ranks[rank]->Start();
    if (ends[rank].ok()) ends[rank] = ranks[rank]->Step(0);
    // Three times as long as the others would wait.
    for (uint64_t i = 1; rank == 0 && ends[rank].ok() && i <= 12; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      ends[rank] =
          ranks[rank]->exchange().ReportActivity(1, "evaluating", i, 12);
    }
    if (ends[rank].ok()) ends[rank] = ranks[rank]->Step(1);
  });
  for (const absl::Status& end : ends) EXPECT_EQ(end, absl::OkStatus());
}

// The file of rank 1 is a pipe that nobody reads: its writer stands still, as
// one whose disk does. Both ranks have made their last step.
TEST(PeerExchangeTest, ADiskThatStandsStillAtTheEndFailsTheCheckpointAlone) {
  constexpr uint64_t kCut = 7;
  const TempDir dir;
  PeerCheckpoints::Options checkpoints;
  checkpoints.job_id = "j-test";
  checkpoints.folder = dir.path();
  checkpoints.last_part_wait_max = absl::Seconds(1);
  const CheckpointName name = {.clock = 2, .cut_id = kCut};
  std::filesystem::create_directory(dir.File(name.ToString()));
  const std::string pipe =
      dir.File(absl::StrCat(name.ToString(), "/", ShardFileName(1, 2)));
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const Job job = SmallJob(2, 2);
  InProcessPeers peers({.ranks = 2});
  std::vector<std::unique_ptr<Rank>> ranks;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ranks.push_back(std::make_unique<Rank>(
        job, &peers, rank, false, absl::Milliseconds(400), checkpoints));
  }
  std::vector<absl::Status> ends(2);
  OnThreads(2, [&](uint32_t rank) {
    ends[rank] = ranks[rank]->Start();
    if (ends[rank].ok()) ends[rank] = ranks[rank]->Step(0);
    if (rank == 0 && ends[rank].ok()) {
      ends[rank] =
          ranks[rank]
              ->exchange()
              .BeginCut(
                  {.id = kCut, .use = CutUse::kCheckpoint, .clocks = {2, 2}})
              .status();
    }
    if (ends[rank].ok()) ends[rank] = ranks[rank]->Step(1);
  });
  // The writer can go on; what becomes of its part is not sent once more.
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  EXPECT_GE(reader, 0);
  for (const absl::Status& end : ends) EXPECT_EQ(end, absl::OkStatus());
  const auto writing = ranks[0]->exchange().OpenCheckpoint(kCut);
  if (writing != nullptr) {
    const absl::Status parts = writing->AwaitParts().status();
    EXPECT_TRUE(absl::IsDeadlineExceeded(parts)) << parts;
    EXPECT_THAT(std::string(parts.message()),
                HasSubstr("rank 1 (worker:1 at host-1:1): its part is not "
                          "written"));
  } else {
    ADD_FAILURE() << "no checkpoint has begun";
  }
  ranks.clear();
  close(reader);
}

TEST(PeerExchangeTest, RefusesARankWithAnotherStrategy) {
  const Job job = SmallJob(2, 1);
  InProcessPeers peers({.ranks = 2});
  std::vector<std::unique_ptr<Rank>> ranks;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ranks.push_back(
        std::make_unique<Rank>(job, &peers, rank, /*replicates=*/rank == 1));
  }
  std::vector<absl::Status> ends(2);
  OnThreads(2, [&](uint32_t rank) { ends[rank] = ranks[rank]->Start(); });
  EXPECT_TRUE(absl::IsInvalidArgument(ends[1])) << ends[1];
  EXPECT_THAT(std::string(ends[1].message()),
              HasSubstr("rank 0 (worker:0 at host-0:1) has other blocks"));
}

TEST(PeerExchangeTest, RefusesARankWithAnotherWireType) {
  const ElementType kTypes[] = {ElementType::kFloat32, ElementType::kBfloat16,
                                ElementType::kFloat16};
  for (const ElementType chiefs : kTypes) {
    for (const ElementType others : kTypes) {
      if (chiefs == others) continue;
      Job job = SmallJob(2, 1);
      job.wire_type = chiefs;
      Job other = job;
      other.wire_type = others;
      InProcessPeers peers({.ranks = 2});
      Rank chief(job, &peers, 0, /*replicates=*/true);
      Rank second(other, &peers, 1, /*replicates=*/true);
      std::vector<absl::Status> ends(2);
      OnThreads(2, [&](uint32_t rank) {
        ends[rank] = (rank == 0 ? chief : second).Start();
      });
      EXPECT_TRUE(absl::IsInvalidArgument(ends[1])) << ends[1];
      EXPECT_THAT(std::string(ends[1].message()),
                  AllOf(HasSubstr("rank 0 (worker:0 at host-0:1) has other"),
                        HasSubstr("another wire type")));
    }
  }
}

// The state that ps have: whole values, and so on for each array.
std::vector<Tensors> StateOf(const Job& job, uint32_t arrays) {
  std::vector<Tensors> state;
  for (uint32_t array = 0; array < arrays; ++array) {
    state.push_back(RandomTensors(job, 77 + array));
  }
  return state;
}

// Each rank is given what it owns, by arrays that the tensors do not have.
// Until ShowValues the tensors stay as they are: a change may come to nothing.
TEST(PeerExchangeTest, RanksHandTheStateOfPsToEachOther) {
  for (const auto type : {ElementType::kFloat32, ElementType::kFloat16}) {
    for (const auto kind : {OptimizerKind::kSgd, OptimizerKind::kAdam}) {
      for (const bool replicates : {true, false}) {
        if (!replicates && type != ElementType::kFloat32) continue;
        SCOPED_TRACE(absl::StrCat(ElementBytes(type), " ", replicates));
        Job job = SmallJob(3, 2);
        job.wire_type = type;
        job.update.optimizer.kind = kind;
        const auto arrays =
            static_cast<uint32_t>(1 + OptimizerSlots(job.update.optimizer));
        const std::vector<Tensors> state = StateOf(job, arrays);
        InProcessPeers peers({.ranks = 3});
        std::vector<std::unique_ptr<Rank>> ranks;
        for (uint32_t rank = 0; rank < 3; ++rank) {
          ranks.push_back(
              std::make_unique<Rank>(job, &peers, rank, replicates));
          ranks[rank]->SetValues(Sent(type, state[0]));
        }
        const auto elements = [&](const Block& block, uint32_t array) {
          return absl::MakeConstSpan(state[array][block.tensor])
              .subspan(static_cast<size_t>(block.offset),
                       static_cast<size_t>(block.count));
        };
        OnThreads(3, [&](uint32_t rank) {
          PeerExchange& exchange = ranks[rank]->exchange();
          const BlockMap& map = exchange.reduction().map();
          for (const uint32_t id : map.shard_blocks(rank)) {
            for (uint32_t array = exchange.first_array_of_ps(); array < arrays;
                 ++array) {
              const auto floats = elements(map.blocks()[id], array);
              exchange.RestorePiece(
                  id, array,
                  {reinterpret_cast<const char*>(floats.data()),
                   floats.size() * sizeof(float)},
                  /*updates=*/3 + id);
            }
          }
          EXPECT_EQ(exchange.RestoreRest(/*clock=*/1), absl::OkStatus());
          EXPECT_TRUE(SameBits(ranks[rank]->values(), Sent(type, state[0])));
          exchange.BeginWith(ShardStateHeader(), /*clock=*/1);
          exchange.ShowValues(type);
          EXPECT_TRUE(SameBits(ranks[rank]->values(), Sent(type, state[0])));
        });
        for (uint32_t rank = 0; rank < 3; ++rank) {
          PeerExchange& exchange = ranks[rank]->exchange();
          const StepReduction& reduction = exchange.reduction();
          const BlockMap& map = reduction.map();
          for (uint32_t id = 0; id < map.blocks().size(); ++id) {
            if (!replicates && map.blocks()[id].shard != rank) continue;
            const uint32_t local = reduction.local(id);
            EXPECT_EQ(reduction.updater().updates(local), 3 + id);
            for (uint32_t array = 0; array < arrays; ++array) {
              EXPECT_EQ(
                  reduction.updater().array(local, static_cast<int>(array)),
                  elements(map.blocks()[id], array))
                  << "array " << array << " of block " << id;
            }
          }
          ASSERT_TRUE(exchange.BeginCut({.id = 7, .clocks = {1, 1, 1}}).ok());
          ASSERT_EQ(exchange.PullCut(7, 1), absl::OkStatus());
          EXPECT_TRUE(SameBits(ranks[rank]->values(), state[0]));
        }
      }
    }
  }
}

class ByteCount final : public Counter {
 public:
  void Add(double amount) override { bytes_ += static_cast<uint64_t>(amount); }
  uint64_t bytes() const { return bytes_.load(); }

 private:
  std::atomic<uint64_t> bytes_{0};
};

// Of a step, without its messages that are no values: gradients take half, and
// values; sums as much as before.
void ExpectFewerBytes(bool replicates, bool gathers = false) {
  constexpr size_t kElements = 3010;  // half of them, or so, at each rank
  uint64_t pulled[2] = {0, 0};
  uint64_t pushed[2] = {0, 0};
  for (const bool narrow : {false, true}) {
    Job job = SmallJob(2, 3);
    if (narrow) job.wire_type = ElementType::kBfloat16;
    if (gathers) job.units = {{0}, {1}};
    InProcessPeers peers({.ranks = 2});
    ByteCount pushed_bytes;
    ByteCount pulled_bytes;
    ClientTelemetry telemetry;
    telemetry.pushed_bytes = &pushed_bytes;
    telemetry.pulled_bytes = &pulled_bytes;
    std::vector<std::unique_ptr<Rank>> ranks;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      ranks.push_back(std::make_unique<Rank>(job, &peers, rank, replicates,
                                             absl::Seconds(60), std::nullopt,
                                             telemetry));
    }
    std::vector<absl::Status> ends(2);
    OnThreads(2, [&](uint32_t rank) {
      ends[rank] = ranks[rank]->Start();
      // In the first step of stage 3 the chief has whole values.
      if (ends[rank].ok()) ends[rank] = ranks[rank]->Step(0);
    });
    const uint64_t start_pushed = pushed_bytes.bytes();
    const uint64_t start_pulled = pulled_bytes.bytes();
    OnThreads(2, [&](uint32_t rank) {
      if (ends[rank].ok()) ends[rank] = ranks[rank]->Step(1);
    });
    for (const absl::Status& end : ends) EXPECT_EQ(end, absl::OkStatus());
    pushed[narrow] = pushed_bytes.bytes() - start_pushed;
    pulled[narrow] = pulled_bytes.bytes() - start_pulled;
  }
  EXPECT_EQ(pulled[0], kElements * (sizeof(float) + sizeof(float)));
  const size_t result = replicates ? sizeof(float) : sizeof(uint16_t);
  EXPECT_EQ(pulled[1], kElements * (sizeof(uint16_t) + result));
  EXPECT_EQ(pushed[0] - pushed[1],
            kElements * (sizeof(uint16_t) + sizeof(float) - result));
}

TEST(PeerExchangeTest, SixteenBitsHalveTheBytesOfGradientsAndValues) {
  ExpectFewerBytes(/*replicates=*/true);
  ExpectFewerBytes(/*replicates=*/false);
  ExpectFewerBytes(/*replicates=*/false, /*gathers=*/true);
}

// As much as float32 counts for one rank's copies.
TEST(PeerExchangeTest, SixteenBitsTakeTheMemoryOfFloat32) {
  const Job job = SmallJob(2, 1);
  const BlockMap map = *OwnedBlocks({{"t", 1 << 20}}, 2);
  const auto of = [&](ElementType type) {
    PeerExchange::Options options;
    options.replicates = true;
    options.wire_type = type;
    options.update = job.update;
    return PeerExchange::MemoryOf(options, map, 0).bytes();
  };
  EXPECT_EQ(of(ElementType::kBfloat16), of(ElementType::kFloat32));
}

TEST(PeerExchangeTest, EndsAllWaitsWhenItIsCancelled) {
  const Job job = SmallJob(2, 1);
  InProcessPeers peers({.ranks = 2});
  Rank rank(job, &peers, 1, false);
  std::thread cancel([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    rank.exchange().Cancel(absl::CancelledError("stopped by the test"));
  });
  EXPECT_EQ(rank.Start(), absl::CancelledError("stopped by the test"));
  cancel.join();
  EXPECT_EQ(rank.exchange().Pull(0),
            absl::CancelledError("stopped by the test"));
}

TEST(PeerExchangeTest, CutsWhereItIs) {
  const Job job = SmallJob(2, 2);
  InProcessPeers peers({.ranks = 2});
  Rank rank(job, &peers, 0, false);
  ParameterExchange& exchange = rank.exchange();
  EXPECT_EQ(*exchange.BeginCut({.id = 7, .clocks = {2, 2}}),
            (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(*exchange.BeginCut({.id = 8, .clocks = {0, 0}}),
            (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(exchange.PullCut(8, 0), absl::OkStatus());
  EXPECT_FALSE(exchange.PullCut(7, 2).ok()) << "its steps are not made yet";
  EXPECT_TRUE(absl::IsUnimplemented(
      exchange.BeginCut({.id = 9, .use = CutUse::kRouting, .clocks = {0, 0}})
          .status()));
}

}  // namespace
}  // namespace syncline::worker

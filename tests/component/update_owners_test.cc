// Goal: workers that own a third of the blocks each, and reduce and update them
// among themselves, compute the bits of a ps: for optimizers with and without
// state, a clipped norm, LAMB's norms, running means, and gradients that are
// not finite under every policy. Method: the same steps twice. Once a ps in
// this process with three workers over real gRPC; once a job without ps, whose
// three ranks hand their gradients to each other here, with the norms reduced
// at the first of them.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/regime/job_regimes.h"
#include "common/update/dense_updater.h"
#include "common/update/norm_blocks.h"
#include "common/update/pending_norms.h"
#include "common/update/reduction_root.h"
#include "common/update/update_spec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fakes/floats.h"
#include "tests/testing/ps_fixture.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint32_t kRanks = 3;
constexpr int64_t kClocks = 6;
constexpr int64_t kBadClock = 2;
constexpr uint32_t kBadRank = 1;
// In the second block of the first tensor.
constexpr size_t kBadElement = 1700;

// Tensors of more than one block, one of few elements, and a running mean.
const std::vector<int64_t>& Sizes() {
  static const auto& sizes = *new std::vector<int64_t>{5000, 7, 3000, 900};
  return sizes;
}
constexpr float kMomentum = 0.75f;
constexpr uint32_t kMeanTensor = 3;

// One rank's gradients of all tensors, one after the other.
Flat GradientOf(uint32_t rank, int64_t clock, bool bad) {
  Random random(1000 * (rank + 1) + clock);
  Flat values(std::accumulate(Sizes().begin(), Sizes().end(), int64_t{0}));
  for (float& value : values) value = static_cast<float>(random.Normal());
  if (bad && clock == kBadClock && rank == kBadRank) {
    values[kBadElement] = std::numeric_limits<float>::quiet_NaN();
  }
  return values;
}

uint64_t SamplesOf(uint32_t rank) { return 8 + rank; }

// The last rank runs out of data.
bool HasData(uint32_t rank, int64_t clock) {
  return rank + 1 < kRanks || clock < 4;
}

// A rank's part of the work: the blocks that the map gives it.
class Owner {
 public:
  Owner(const DenseUpdater::Options& options, const BlockMap& map,
        uint32_t rank)
      : map_(map), ids_(map.shard_blocks(rank)) {
    std::vector<size_t> counts;
    for (const uint32_t id : ids_) counts.push_back(map.blocks()[id].count);
    updater_ = std::make_unique<DenseUpdater>(options, counts);
    for (uint32_t i = 0; i < ids_.size(); ++i) {
      if (Tensor(i) == kMeanTensor) updater_->MakeRunningMean(i, kMomentum);
    }
  }

  void Init(const FloatSource& values) {
    ForEachBlock([&](uint32_t i) { updater_->Init(i, values, First(i)); });
  }
  void Buffer(uint32_t rank, const std::shared_ptr<const FloatSource>& flat) {
    ForEachBlock([&](uint32_t i) {
      updater_->BufferGradient(i, rank, flat, First(i), SamplesOf(rank));
    });
  }
  std::vector<double> Reduce(uint64_t samples) {
    std::vector<double> norms;
    ForEachBlock([&](uint32_t i) {
      norms.push_back(updater_->ReduceGradients(i, samples, &scratch_));
    });
    return norms;
  }
  std::vector<double> ComputeLamb(uint64_t samples, double norm) {
    std::vector<double> norms;
    ForEachBlock([&](uint32_t i) {
      const LambNorms of_block =
          updater_->ComputeLambUpdate(i, samples, norm, &scratch_);
      norms.insert(norms.end(), {of_block.value, of_block.update});
    });
    return norms;
  }
  void ApplyLamb(int64_t clock, absl::Span<const double> ratios) {
    ForEachBlock([&](uint32_t i) {
      updater_->ApplyLambUpdate(i, clock, ratios[Tensor(i)]);
    });
  }
  void Apply(int64_t clock, uint64_t samples, double norm) {
    ForEachBlock([&](uint32_t i) {
      updater_->Apply(i, clock, samples, norm, &scratch_);
    });
  }
  void Drop() {
    ForEachBlock([&](uint32_t i) { updater_->DropGradients(i); });
  }
  void CopyValues(Flat* flat) const {
    for (uint32_t i = 0; i < ids_.size(); ++i) {
      const absl::Span<const float> values = updater_->values(i);
      std::copy(values.begin(), values.end(), flat->begin() + First(i));
    }
  }
  // "element 5 of 't0', of worker 1", of all steps.
  const std::vector<std::string>& found() const { return found_; }

 private:
  uint32_t Tensor(uint32_t i) const { return map_.blocks()[ids_[i]].tensor; }
  size_t First(uint32_t i) const {
    const Block& block = map_.blocks()[ids_[i]];
    return std::accumulate(Sizes().begin(), Sizes().begin() + block.tensor,
                           block.offset);
  }
  void ForEachBlock(const std::function<void(uint32_t)>& visit) {
    for (uint32_t i = 0; i < ids_.size(); ++i) {
      scratch_.non_finite.clear();
      visit(i);
      for (const DenseUpdater::NonFinite& bad : scratch_.non_finite) {
        found_.push_back(absl::StrCat(
            "element ", map_.blocks()[ids_[i]].offset + bad.element, " of 't",
            Tensor(i), "', of worker:", bad.rank));
      }
    }
  }

  const BlockMap& map_;
  const absl::Span<const uint32_t> ids_;
  std::unique_ptr<DenseUpdater> updater_;
  DenseUpdater::Scratch scratch_;
  std::vector<std::string> found_;
};

// NaN equals itself, too.
bool HaveSameBits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

// All ranks of a job that has no ps.
class OwningWorkers {
 public:
  explicit OwningWorkers(const JobAssignment& job) {
    EXPECT_EQ(job.ps_size(), 0);
    const auto regimes = ReadRegimes(job);
    EXPECT_OK(regimes.status());
    auto options = ReadUpdate(job.spec(), *regimes);
    EXPECT_OK(options.status());
    options_ = *options;
    options_.rule.learning_rate =
        LearningRateOf(job.spec().learning_rate(), kClocks);
    const ReductionRoot root = ReductionRootOf(job);
    EXPECT_TRUE(root.Is(ReductionRoot::Role::kWorker, 0));
    std::vector<NormReducer::Owner> owners;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      owners_.emplace_back(options_, map_, rank);
      owners.push_back({job.workers(rank).member().incarnation(),
                        absl::StrCat("worker:", rank),
                        NormBlocksOf(map_, {}, rank)});
    }
    norms_ = std::make_unique<PendingNorms>(
        NormReducer(RoleName(root.role), owners, TensorsOfBlocks(map_), "job"));
  }

  void Init(const Flat& values) {
    for (Owner& owner : owners_) owner.Init(VectorFloats(values));
  }
  // The ranks that have data, each with its gradient.
  void Step(int64_t clock, const std::vector<Flat>& gradients) {
    uint64_t samples = 0;
    for (uint32_t from = kRanks; from-- > 0;) {  // not the order of the sum
      if (gradients[from].empty()) continue;
      samples += SamplesOf(from);
      const auto flat = std::make_shared<VectorFloats>(gradients[from]);
      for (Owner& owner : owners_) owner.Buffer(from, flat);
    }
    const bool skips = options_.on_non_finite == OnNonFinite::kSkipStep;
    double norm = -1;
    if (options_.rule.clip_norm > 0 || skips) {
      norm = AllReduce({clock, ReductionStage::kGradient},
                       [&](Owner& owner) { return owner.Reduce(samples); })[0];
    }
    if (skips && !std::isfinite(norm)) {
      for (Owner& owner : owners_) owner.Drop();
    } else if (options_.optimizer.kind == OptimizerKind::kLamb) {
      const std::vector<double> ratios = LambTrustRatios(AllReduce(
          {clock, ReductionStage::kTrust},
          [&](Owner& owner) { return owner.ComputeLamb(samples, norm); }));
      for (Owner& owner : owners_) owner.ApplyLamb(clock, ratios);
    } else {
      for (Owner& owner : owners_) owner.Apply(clock, samples, norm);
    }
  }
  Flat Values() const {
    Flat flat(map_.element_count());
    for (const Owner& owner : owners_) owner.CopyValues(&flat);
    return flat;
  }
  std::vector<std::string> Found() const {
    std::vector<std::string> all;
    for (const Owner& owner : owners_) {
      all.insert(all.end(), owner.found().begin(), owner.found().end());
    }
    return all;
  }

 private:
  static BlockMap MakeMap() {
    std::vector<TensorSize> tensors;
    for (const int64_t size : Sizes()) {
      tensors.push_back({absl::StrCat("t", tensors.size()), size});
    }
    return *BlockMap::Create(tensors, kRanks);
  }
  // The sums that the root answers to all, who ask it in any order.
  std::vector<double> AllReduce(
      const ReductionRound& round,
      const std::function<std::vector<double>(Owner&)>& norms_of) {
    std::vector<double> answers[kRanks];
    for (uint32_t asked = 0; asked < kRanks; ++asked) {
      const uint32_t rank = (asked + 1) % kRanks;
      norms_->Reduce(rank, 100 + rank, round, NormBlocksOf(map_, {}, rank),
                     norms_of(owners_[rank]), absl::InfiniteFuture(),
                     [&answers, rank](PendingNorms::Sums sums) {
                       ASSERT_OK(sums.status());
                       answers[rank] = *std::move(sums);
                     });
    }
    EXPECT_FALSE(answers[0].empty());
    EXPECT_TRUE(HaveSameBits(answers[0], answers[1]));
    EXPECT_TRUE(HaveSameBits(answers[0], answers[2]));
    return answers[0];
  }

  const BlockMap map_ = MakeMap();
  DenseUpdater::Options options_;
  std::vector<Owner> owners_;
  std::unique_ptr<PendingNorms> norms_;
};

// The same job on a ps, and without any.
struct Outcome {
  absl::Status ps_status;
  Flat of_ps;
  Flat of_workers;
  std::vector<std::string> found;
};

Flat InitialValues() { return GradientOf(kRanks, 0, false); }

void TrainOnPs(PsFixture* fixture, bool bad, Outcome* outcome) {
  EXPECT_OK(PlainWorker(fixture, 0).Init(InitialValues(), kClocks));
  absl::Status statuses[kRanks];
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      PlainWorker worker(fixture, rank);
      for (int64_t clock = 0; clock < kClocks; ++clock) {
        const absl::StatusOr<Flat> values =
            HasData(rank, clock)
                ? worker.PushPull(clock, GradientOf(rank, clock, bad),
                                  SamplesOf(rank))
                : worker.PushPullNothing(clock);
        statuses[rank] = values.status();
        if (!values.ok()) return;
        if (rank == 0) outcome->of_ps = *values;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  outcome->ps_status = statuses[0];
}

Outcome TrainBoth(const std::function<void(JobSpec*)>& spec, bool bad) {
  Outcome outcome;
  PsFixture fixture({.workers = kRanks,
                     .tensor_sizes = Sizes(),
                     .momenta = {{}, {}, {}, kMomentum},
                     .spec = spec});
  TrainOnPs(&fixture, bad, &outcome);
  JobAssignment without_ps = fixture.assignment();
  without_ps.clear_ps();
  OwningWorkers workers(without_ps);
  workers.Init(InitialValues());
  for (int64_t clock = 0; clock < kClocks; ++clock) {
    std::vector<Flat> gradients(kRanks);
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      if (HasData(rank, clock)) gradients[rank] = GradientOf(rank, clock, bad);
    }
    workers.Step(clock, gradients);
  }
  outcome.of_workers = workers.Values();
  outcome.found = workers.Found();
  return outcome;
}

struct Case {
  OptimizerSpec::Kind kind;
  float clip_norm;
};
constexpr Case kCases[] = {{OptimizerSpec::SGD, 0},
                           {OptimizerSpec::SGD, 0.5f},
                           {OptimizerSpec::ADAM, 0.5f},
                           {OptimizerSpec::LAMB, 0},
                           {OptimizerSpec::LAMB, 0.5f}};

std::function<void(JobSpec*)> SpecOf(const Case& one, NonFinitePolicy policy) {
  return [=](JobSpec* spec) {
    spec->mutable_optimizer()->set_kind(one.kind);
    spec->mutable_optimizer()->set_clip_norm(one.clip_norm);
    spec->mutable_optimizer()->set_weight_decay(0.01f);
    spec->mutable_learning_rate()->set_base(0.1f);
    spec->mutable_learning_rate()->set_schedule(LearningRateSpec::COSINE);
    spec->set_non_finite(policy);
  };
}

std::string NameOf(const Case& one) {
  return absl::StrCat(OptimizerSpec::Kind_Name(one.kind), ", clip_norm ",
                      one.clip_norm);
}

TEST(UpdateOwnersTest, WorkersThatOwnBlocksHaveTheBitsOfAPs) {
  for (const Case& one : kCases) {
    SCOPED_TRACE(NameOf(one));
    const Outcome outcome = TrainBoth(SpecOf(one, FAIL_JOB), /*bad=*/false);
    ASSERT_OK(outcome.ps_status);
    EXPECT_EQ(outcome.of_workers, outcome.of_ps);
    EXPECT_NE(outcome.of_workers, InitialValues());
    EXPECT_TRUE(outcome.found.empty());
  }
}

TEST(UpdateOwnersTest, WhatIsNotFiniteIsSkippedOrDroppedAsOnAPs) {
  for (const Case& one : kCases) {
    const Flat clean = TrainBoth(SpecOf(one, FAIL_JOB), false).of_workers;
    for (const NonFinitePolicy policy : {SKIP_STEP, DROP_BLOCK}) {
      SCOPED_TRACE(
          absl::StrCat(NameOf(one), ", ", NonFinitePolicy_Name(policy)));
      const Outcome outcome = TrainBoth(SpecOf(one, policy), /*bad=*/true);
      ASSERT_OK(outcome.ps_status);
      EXPECT_EQ(outcome.of_workers, outcome.of_ps);
      EXPECT_NE(outcome.of_workers, clean) << "a gradient was left out";
      EXPECT_TRUE(std::all_of(outcome.of_workers.begin(),
                              outcome.of_workers.end(),
                              [](float v) { return std::isfinite(v); }));
      EXPECT_EQ(outcome.found.size(), 1u);
    }
  }
}

TEST(UpdateOwnersTest, WhatFailsAJobIsNamedAsByAPs) {
  for (const Case& one : kCases) {
    SCOPED_TRACE(NameOf(one));
    const Outcome outcome = TrainBoth(SpecOf(one, FAIL_JOB), /*bad=*/true);
    ASSERT_FALSE(outcome.found.empty());
    EXPECT_EQ(outcome.found[0], "element 1700 of 't0', of worker:1");
    EXPECT_THAT(std::string(outcome.ps_status.message()),
                AllOf(HasSubstr("the gradient of clock 2 is not finite"),
                      HasSubstr(outcome.found[0])));
  }
}

}  // namespace
}  // namespace syncline

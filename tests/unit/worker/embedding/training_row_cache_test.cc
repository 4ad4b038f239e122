// Goal: a row that is trained on without a pull is never older than the bound
// and cache_clocks allow, and always has all of the rank's own pushes in it.
// Method: random steps of one worker beside others that come and go, against
// servers that are a map here. Values are integers that say what is in them:
// the rank's own pushes, one each, and in thousands the clocks of the others.

#include "worker/embedding/training_row_cache.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

constexpr int64_t kBatch = 12;
constexpr int64_t kKeys = 30;
constexpr float kOthers = 1000;

std::unique_ptr<RowBatch> MakeRows() {
  RowBatch::Options options;
  options.name = "t";
  options.dim = 1;
  options.samples_max = kBatch;
  options.lookups = {{.feed = 0, .ids_per_sample = 1}};
  options.with_gradients = true;
  return std::make_unique<RowBatch>(options, *TableMap::Create(256, 1));
}

Batch RandomBatch(Random* random) {
  Batch batch;
  batch.size = static_cast<int64_t>(random->Below(kBatch + 1));
  batch.int_feeds.resize(1);
  for (int64_t i = 0; i < batch.size; ++i) {
    const uint64_t a = random->Below(kKeys);
    batch.int_feeds[0].push_back(
        static_cast<int64_t>(std::min(a, random->Below(kKeys))));
  }
  return batch;
}

// One worker's steps, with servers to pull from.
class Simulation {
 public:
  Simulation(uint64_t seed, const TrainingRowCache::Options& options)
      : random_(seed),
        options_(options),
        cache_(options),
        current_(MakeRows()),
        next_(MakeRows()) {}

  void Run(int64_t clocks) {
    for (int64_t clock = 0; clock < clocks; ++clock) Step(clock);
  }
  int hits() const { return hits_; }
  int rows() const { return rows_; }

 private:
  // Others are at most `bound` clocks behind who pulls for `clock`.
  void MoveOthers(int64_t clock) {
    const auto bound = options_.rule.regimes.At(clock).bound();
    const int64_t least = bound ? clock - *bound : 0;
    others_ = std::max(others_, least);
    if (random_.Below(2) == 0) ++others_;
  }
  void Pull(int64_t clock, size_t begin, size_t end, RowBatch* rows) {
    MoveOthers(clock);
    for (size_t i = begin; i < end; ++i) {
      const uint32_t at = rows->wanted()[i];
      const int64_t key = rows->keys()[at];
      rows->value(at)[0] =
          kOthers * static_cast<float>(others_) - static_cast<float>(own_[key]);
      rows->SetAsOf(at, others_);
      pulled_for_[key] = clock;
    }
  }
  void Check(int64_t clock, RowBatch* rows) {
    for (size_t i = 0; i < rows->keys().size(); ++i) {
      const int64_t key = rows->keys()[i];
      const float value = rows->value(i)[0];
      const float others = std::ceil(value / kOthers);
      ASSERT_EQ(kOthers * others - value, own_[key]) << "own writes of " << key;
      ASSERT_LE(others, static_cast<float>(others_));
      if (const auto bound = options_.rule.regimes.At(clock).bound()) {
        ASSERT_GE(others, static_cast<float>(clock - *bound))
            << "age of " << key;
      }
      ASSERT_LE(clock - pulled_for_[key], options_.clocks) << key;
    }
    rows_ += static_cast<int>(rows->keys().size());
    hits_ += static_cast<int>(rows->keys().size() - rows->wanted().size());
  }
  void Step(int64_t clock) {
    std::swap(current_, next_);
    if (!next_is_known_) {
      current_->Collect(RandomBatch(&random_));
      cache_.Select(clock, nullptr, /*early=*/false, current_.get());
      Pull(clock, 0, current_->wanted().size(), current_.get());
      cache_.Keep(clock, current_.get());
    }
    Check(clock, current_.get());
    if (::testing::Test::HasFatalFailure()) return;
    next_is_known_ = random_.Below(5) != 0;
    const bool early = random_.Below(2) == 0;
    if (next_is_known_) {
      next_->Collect(RandomBatch(&random_));
      cache_.Select(clock + 1, current_.get(), early, next_.get());
      Pull(clock + 1, 0, next_->early_count(), next_.get());
    }
    // With the mean over two samples every row moves by -1.
    for (size_t i = 0; i < current_->keys().size(); ++i) {
      current_->row_gradients()[1 + i] = 2;
      ++own_[current_->keys()[i]];
    }
    cache_.Update(clock, 2, *current_, next_is_known_ ? next_.get() : nullptr);
    if (!next_is_known_) return;
    Pull(clock + 1, next_->early_count(), next_->wanted().size(), next_.get());
    cache_.Keep(clock + 1, next_.get());
  }

  Random random_;
  const TrainingRowCache::Options options_;
  TrainingRowCache cache_;
  std::unique_ptr<RowBatch> current_;
  std::unique_ptr<RowBatch> next_;
  bool next_is_known_ = false;
  int64_t others_ = 0;  // clocks of the others that the servers have
  std::map<int64_t, int64_t> own_;
  std::map<int64_t, int64_t> pulled_for_;
  int hits_ = 0;
  int rows_ = 0;
};

TrainingRowCache::Options MakeOptions() {
  TrainingRowCache::Options options;
  options.dim = 1;
  options.rule.learning_rate.base = 1;
  return options;
}

// Any bound that the cache may be used with, or none.
TrainingRegime RandomRegime(int64_t first_clock,
                            const TrainingRowCache::Options& options,
                            Random* random) {
  if (random->Below(3) == 0) {
    return {.first_clock = first_clock, .mode = ConsistencyMode::kAsync};
  }
  return {.first_clock = first_clock,
          .mode = ConsistencyMode::kBoundedStaleness,
          .staleness_bound =
              options.clocks + static_cast<int64_t>(random->Below(3))};
}

TEST(TrainingRowCacheTest, NoRowIsTooOldAndOwnPushesAreInIt) {
  int hits = 0;
  int rows = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed=", seed));
    Random random(seed);
    TrainingRowCache::Options options = MakeOptions();
    options.rows_max = 1 + random.Below(40);
    options.clocks = static_cast<int64_t>(1 + random.Below(4));
    options.rule.regimes =
        RegimeSchedule(RandomRegime(/*first_clock=*/0, options, &random));
    for (int64_t clock = 20; seed % 2 == 0 && clock < 200; clock += 20) {
      ASSERT_TRUE(
          options.rule.regimes.Add(RandomRegime(clock, options, &random), 0)
              .ok());
    }
    Simulation simulation(seed, options);
    simulation.Run(200);
    if (HasFatalFailure()) return;
    hits += simulation.hits();
    rows += simulation.rows();
  }
  EXPECT_GT(hits, rows / 10);
}

TEST(TrainingRowCacheTest, AGradientThatIsNotFiniteIsNotApplied) {
  TrainingRowCache::Options options = MakeOptions();
  options.rows_max = 4;
  options.clocks = 9;
  options.rule.regimes = RegimeSchedule(TrainingRegime{
      .mode = ConsistencyMode::kAsync, .wire_type = ElementType::kFloat16});
  TrainingRowCache cache(options);
  const auto current = MakeRows();
  const auto next = MakeRows();
  Batch batch;
  batch.size = 1;
  batch.int_feeds = {{7}};
  current->Collect(batch);
  current->value(0)[0] = 5;
  cache.Keep(0, current.get());
  next->Collect(batch);
  cache.Select(1, current.get(), /*early=*/true, next.get());
  ASSERT_TRUE(next->wanted().empty());
  current->row_gradients()[1] = std::numeric_limits<float>::quiet_NaN();
  cache.Update(0, 1, *current, next.get());
  EXPECT_EQ(next->value(0)[0], 5);
  // Nor is one that the servers see as infinity.
  current->row_gradients()[1] = 70000;
  cache.Update(0, 1, *current, nullptr);
  cache.Select(1, nullptr, /*early=*/false, next.get());
  EXPECT_EQ(next->value(0)[0], 5);
  // Nor one whose step was given up.
  current->row_gradients()[1] = 3;
  cache.Update(0, 0, *current, nullptr);
  cache.Select(1, nullptr, /*early=*/false, next.get());
  EXPECT_EQ(next->value(0)[0], 5);
}

JobSpec CachedSpec() {
  JobSpec spec;
  TableSpec* table = spec.add_tables();
  table->set_cache_rows(10);
  table->set_cache_clocks(2);
  table->mutable_optimizer()->set_kind(OptimizerSpec::SGD);
  table->mutable_optimizer()->set_weight_decay(0.5f);
  spec.mutable_optimizer()->set_clip_value(3);
  spec.mutable_learning_rate()->set_base(0.25);
  spec.mutable_learning_rate()->set_schedule(LearningRateSpec::COSINE);
  return spec;
}

// As the ps does: the rate of the step is that of its clock's regime.
TEST(TrainingRowCacheTest, OwnPushesMoveRowsAtTheRateOfTheirClock) {
  TrainingRowCache::Options options = MakeOptions();
  options.rows_max = 4;
  options.clocks = 9;
  options.rule.regimes =
      RegimeSchedule(TrainingRegime{.mode = ConsistencyMode::kAsync});
  ASSERT_TRUE(options.rule.regimes
                  .Add({.first_clock = 1,
                        .mode = ConsistencyMode::kAsync,
                        .learning_rate_factor = 0.25},
                       0)
                  .ok());
  TrainingRowCache cache(options);
  const auto rows = MakeRows();
  Batch batch;
  batch.size = 1;
  batch.int_feeds = {{7}};
  rows->Collect(batch);
  rows->value(0)[0] = 5;
  cache.Keep(0, rows.get());
  rows->row_gradients()[1] = 1;
  const auto after = [&](int64_t clock) {
    cache.Update(clock, 1, *rows, nullptr);
    const auto next = MakeRows();
    next->Collect(batch);
    cache.Select(clock + 1, nullptr, /*early=*/false, next.get());
    EXPECT_TRUE(next->wanted().empty());
    return next->value(0)[0];
  };
  EXPECT_EQ(after(0), 4);
  EXPECT_EQ(after(1), 3.75f);
}

TEST(TrainingRowCacheTest, OptionsAreTheJobs) {
  JobSpec spec = CachedSpec();
  RegimeSchedule regimes(TrainingRegime{
      .mode = ConsistencyMode::kBoundedStaleness, .staleness_bound = 4});
  ASSERT_TRUE(regimes
                  .Add({.first_clock = 7,
                        .mode = ConsistencyMode::kAsync,
                        .wire_type = ElementType::kFloat16},
                       0)
                  .ok());
  const auto options = TrainingRowCache::OptionsOf(spec, regimes, 0, 16, 100);
  ASSERT_TRUE(options.has_value());
  EXPECT_EQ(options->rows_max, 10u);
  EXPECT_EQ(options->dim, 16u);
  EXPECT_EQ(options->clocks, 2);
  EXPECT_EQ(options->optimizer.weight_decay, 0.5f);
  EXPECT_EQ(options->optimizer.clip_value, 3);
  EXPECT_EQ(options->rule.learning_rate.schedule,
            LearningRate::Schedule::kCosine);
  EXPECT_EQ(options->rule.learning_rate.total_clocks, 100);
  EXPECT_EQ(options->rule.regimes.regimes(), regimes.regimes());
  spec.mutable_tables(0)->set_cache_clocks(0);
  EXPECT_FALSE(
      TrainingRowCache::OptionsOf(spec, regimes, 0, 16, 100).has_value());
}

}  // namespace
}  // namespace syncline::worker

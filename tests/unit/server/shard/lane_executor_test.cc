// Goal: lanes carry out the steps of a job in their order, say what was not
// finite, and find the norms of blocks and of slots.
// Method: steps by hand for one dense block and one table; expected values from
// the arithmetic of SGD with rate 1.

#include "server/shard/lane_executor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fakes/payloads.h"
#include "tests/testing/status_matchers.h"

namespace syncline::ps {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = ShardAction::Kind;

std::shared_ptr<const FloatSource> Source(std::vector<float> values) {
  return std::make_shared<VectorFloats>(std::move(values));
}

class LaneExecutorTest : public ::testing::Test {
 protected:
  void Open(OnNonFinite policy, bool folds) {
    config_.label = "job j on ps:0";
    config_.map = *BlockMap::Create(std::vector<TensorSize>{{"w", 2}}, 1);
    config_.tensor_names = {"w"};
    config_.momenta = {std::nullopt};
    config_.update.optimizer.kind = OptimizerKind::kSgd;
    config_.update.rule.learning_rate.base = 1;
    config_.update.on_non_finite = policy;
    config_.controller.clip_norm = folds;
    config_.controller.workers = {{100, "worker:0"}, {101, "worker:1"}};
    JobConfig::Table table{{"emb", 1, *TableMap::Create(256, 1)}, {}, 0};
    table.options.name = "emb";
    table.options.dim = 1;
    table.options.initializer = {RowInitializer::Scheme::kZeros, 0, 0, "emb"};
    table.options.optimizer.kind = OptimizerKind::kSgd;
    table.options.memory_bytes = 1 << 20;
    config_.tables = {table};
    layout_.reset(new ShardLayout(LayoutOf(config_)));  // it cannot be moved
    auto tables =
        EmbeddingTables::Create(config_, 1, EmbeddingTables::ColdStores(1), {});
    ASSERT_OK(tables.status());
    executor_ = std::make_unique<LaneExecutor>(&config_, layout_.get(),
                                               *std::move(tables));
    Run({.kind = Kind::kInit, .source = Source({10, 20})});
  }

  void Run(LaneStep step) {
    std::vector<LaneStep> steps;
    steps.push_back(std::move(step));
    executor_->Run(0, steps, &scratch_);
  }
  void Deliver(uint32_t rank, std::vector<float> gradient) {
    Run({.kind = Kind::kBufferGradient,
         .rank = rank,
         .sample_count = 1,
         .source = Source(std::move(gradient))});
  }
  void RunRows(Kind kind, const std::vector<CallRowSpan>& ranks,
               double squared_norm = -1) {
    LaneStep step;
    step.rows = std::make_unique<RowsStep>();
    step.rows->kind = kind;
    step.rows->block = Slot(ranks[0].keys()[0]);
    step.rows->ranks = ranks;
    step.rows->sample_count = 2;
    step.rows->squared_norm = squared_norm;
    Run(std::move(step));
  }

  // One worker's gradient of one key.
  static CallRowSpan RowOf(uint32_t rank, int64_t key, float gradient) {
    auto call = std::make_shared<CallRows>();
    call->lists.emplace_back().keys = {key};
    call->values = Source({gradient});
    const RowList* const list = call->lists.data();
    return {rank, std::move(call), list, 0, 1};
  }
  BlockIndex Slot(int64_t key) const {
    return layout_->SlotBlock(0, layout_->tables()[0].map.SlotOf(key));
  }

  // The block's values, or the row of `key`.
  absl::StatusOr<std::vector<float>> Read(const int64_t* key = nullptr) {
    PullValues values;
    values.buffer = buffers_->Get(64);
    absl::StatusOr<std::vector<float>> read =
        absl::InternalError("not answered");
    const auto reading = std::make_shared<PullReading>(
        [&](absl::Status status, PullValues answer) {
          if (status.ok()) {
            read = std::vector<float>(answer.floats(),
                                      answer.floats() + (key ? 1 : 2));
          } else {
            read = status;
          }
        },
        std::move(values), 1);
    LaneStep step{.kind = Kind::kRead, .reading = reading};
    if (key != nullptr) {
      step.rows = std::make_unique<RowsStep>();
      step.rows->kind = Kind::kRead;
      step.rows->ranks = {RowOf(0, *key, 0)};
      step.rows->reading = reading;
    }
    Run(std::move(step));
    return read;
  }

  JobConfig config_;
  const std::shared_ptr<BufferPool> buffers_ =
      std::make_shared<BufferPool>(1 << 10);
  std::unique_ptr<ShardLayout> layout_;
  std::unique_ptr<LaneExecutor> executor_;
  DenseUpdater::Scratch scratch_;
};

TEST_F(LaneExecutorTest, StepsTakeEffectInTheirOrder) {
  Open(OnNonFinite::kFailJob, false);
  Deliver(1, {2, 4});
  Deliver(0, {2, 0});
  auto countdown = std::make_shared<Countdown>();
  countdown->left = 2;
  bool reached = false;
  countdown->then = [&] { reached = true; };
  Run({.countdown = countdown});
  EXPECT_FALSE(reached) << "another lane has not come to it";
  Run({.kind = Kind::kApply, .sample_count = 2});
  Run({.countdown = countdown});
  EXPECT_TRUE(reached);
  ASSERT_OK_AND_ASSIGN(const auto values, Read());
  EXPECT_THAT(values, ElementsAre(8, 18));
  Deliver(0, {5, 5});
  Run({.kind = Kind::kDropGradients});
  Run({.kind = Kind::kApply, .sample_count = 1});
  ASSERT_OK_AND_ASSIGN(const auto same, Read());
  EXPECT_EQ(same, values);
}

TEST_F(LaneExecutorTest, NormsAreOfBlocksAndSlotsAndChangeNothing) {
  Open(OnNonFinite::kFailJob, true);
  Deliver(0, {6, 8});
  Run({.kind = Kind::kReduceGradients, .sample_count = 2});
  const std::vector<CallRowSpan> ranks = {RowOf(0, 7, 4), RowOf(1, 7, 2)};
  RunRows(Kind::kReduceGradients, ranks);
  std::vector<double> norms = executor_->Norms(ReductionStage::kGradient);
  ASSERT_EQ(norms.size(), 1u + 256);
  EXPECT_EQ(norms[0], 25);
  EXPECT_EQ(norms[Slot(7)], 9);
  norms[0] = norms[Slot(7)] = 0;
  EXPECT_THAT(norms, Each(0.0));
  const int64_t key = 7;
  ASSERT_OK_AND_ASSIGN(const auto before, Read(&key));
  EXPECT_THAT(before, ElementsAre(0)) << "a norm changes nothing";
  RunRows(Kind::kApply, ranks);
  ASSERT_OK_AND_ASSIGN(const auto after, Read(&key));
  EXPECT_THAT(after, ElementsAre(-3));
  executor_->ClearNorms(ReductionStage::kGradient);
  EXPECT_THAT(executor_->Norms(ReductionStage::kGradient), Each(0.0));
  EXPECT_EQ(executor_->Norms(ReductionStage::kTrust).size(), 2u)
      << "two a block";
}

TEST_F(LaneExecutorTest, ARowThatIsNotFiniteIsNamedOnceAndSkipsAClock) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const auto policy : {OnNonFinite::kSkipStep, OnNonFinite::kDropBlock}) {
    Open(policy, true);
    const std::vector<CallRowSpan> ranks = {RowOf(0, 7, 4),
                                            RowOf(1, 7, infinity)};
    RunRows(Kind::kReduceGradients, ranks);
    const double norm = executor_->Norms(ReductionStage::kGradient)[Slot(7)];
    if (policy == OnNonFinite::kSkipStep) {
      EXPECT_TRUE(std::isnan(norm));
    } else {
      EXPECT_EQ(norm, 0);
      RunRows(Kind::kApply, ranks);
    }
    EXPECT_EQ(executor_->non_finite().CountOf(0), 0u);
    EXPECT_EQ(executor_->non_finite().CountOf(1), 1u);
    const int64_t key = 7;
    ASSERT_OK_AND_ASSIGN(const auto row, Read(&key));
    EXPECT_THAT(row, ElementsAre(0));
  }
}

// Only SYNC has reductions, which would have named them.
TEST_F(LaneExecutorTest, ARowThatIsNotFiniteIsNamedWithoutAReduction) {
  TrainingRegime async;
  async.mode = ConsistencyMode::kAsync;
  config_.update.rule.regimes = RegimeSchedule(async);
  config_.regimes = RegimeSchedule(async);
  Open(OnNonFinite::kDropBlock, /*folds=*/true);
  RunRows(Kind::kApply, {RowOf(1, 7, std::nanf(""))});
  EXPECT_EQ(executor_->non_finite().CountOf(1), 1u);
  const int64_t key = 7;
  ASSERT_OK_AND_ASSIGN(const auto row, Read(&key));
  EXPECT_THAT(row, ElementsAre(0));
}

TEST_F(LaneExecutorTest, NothingIsReadOnceTheJobHasFailed) {
  Open(OnNonFinite::kFailJob, false);
  Deliver(1, {0, std::nanf("")});
  Run({.kind = Kind::kApply, .clock = 3, .sample_count = 1});
  const int64_t key = 7;
  for (const absl::Status& status : {Read().status(), Read(&key).status()}) {
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("clock 3 is not finite: element 1 of 'w', of "
                          "worker:1"));
  }
}

}  // namespace
}  // namespace syncline::ps

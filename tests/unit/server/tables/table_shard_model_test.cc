// Goal: a table is a map from key to row whatever its memory: pushes, pulls,
// expiry, spilling and scans, in any order, on any number of lanes.
// Method: seeded runs against std::unordered_map with the same arithmetic, bit
// for bit, with memory for all rows and for few.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gtest/gtest.h"
#include "server/tables/table_shard.h"
#include "tests/testing/fakes/memory_cold_store.h"
#include "tests/testing/seed_count.h"
#include "tests/unit/server/tables/table_shard_fixture.h"

namespace syncline::ps {
namespace {

// Keys as they come: few often, many seldom, some at the ends of their type.
int64_t RandomKey(Random* random) {
  const int64_t bound = int64_t{1} << random->Below(14);
  const int64_t key = static_cast<int64_t>(random->Below(bound)) - bound / 3;
  return random->Below(50) == 0 ? key * (int64_t{1} << 50) : key;
}

std::vector<Gradients> RandomPush(Random* random) {
  std::vector<Gradients> workers(1 + random->Below(3));
  for (Gradients& gradients : workers) {
    const int rows = static_cast<int>(random->Below(400));
    for (int i = 0; i < rows; ++i) {
      gradients[RandomKey(random)] = RandomRow(random);
    }
  }
  return workers;
}

struct Run {
  int seed = 0;
  int lanes = 1;
  OptimizerKind kind = OptimizerKind::kRowWiseAdagrad;
  uint64_t memory_bytes = 4 << 20;
  int64_t unseen_clocks = 0;
};

void ExpectLikeTheModel(const Run& run) {
  SCOPED_TRACE(absl::StrCat("seed=", run.seed, " lanes=", run.lanes,
                            " kind=", static_cast<int>(run.kind), " memory=",
                            run.memory_bytes, " unseen=", run.unseen_clocks));
  TableOptions options = TestTableOptions(run.kind);
  options.memory_bytes = run.memory_bytes;
  options.expiry.unseen_clocks = run.unseen_clocks;
  MemoryColdStore cold(TableShard::SpilledRowBytes(options));
  TestTable table(options, run.lanes, &cold);
  TableModel model(options);
  Random random(run.seed);
  int64_t clock = 0;
  for (int i = 0; i < 60; ++i) {
    const std::vector<Gradients> push = RandomPush(&random);
    const RowStep step = {
        .clock = clock, .learning_rate = 0.1f, .gradient_scale = 0.25f};
    ASSERT_TRUE(table.Push(push, step).ok());
    model.Push(push, step);
    ASSERT_LE(table.Stats().memory_bytes, options.memory_bytes);

    std::vector<int64_t> keys;
    for (int k = 0; k < 200; ++k) keys.push_back(RandomKey(&random));
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    Gradients rows;
    ASSERT_TRUE(table.Read(keys, clock, &rows).ok());
    for (const int64_t key : keys) {
      ASSERT_EQ(rows[key], model.Row(key, clock)) << "key " << key;
    }
    if (random.Below(3) == 0) ++clock;
    if (random.Below(5) == 0) {
      ASSERT_TRUE(table.Maintain(clock).ok());
    }
  }
  const auto rereads = [&] {  // moves rows between memory and disk
    Gradients rows;
    ASSERT_TRUE(table.Read({RandomKey(&random)}, clock, &rows).ok());
  };
  ASSERT_EQ(table.Scan(clock, 37, rereads), model.All(clock));
  ASSERT_EQ(table.Scan(clock, 100000, rereads), model.All(clock));
}

TEST(TableShardTest, IsAMap) {
  for (int seed = 1; seed <= SeedCount(10); ++seed) {
    ExpectLikeTheModel({.seed = seed, .lanes = seed % 4 + 1});
  }
}

TEST(TableShardTest, IsAMapWhateverTheOptimizer) {
  for (const OptimizerKind kind :
       {OptimizerKind::kSgd, OptimizerKind::kAdagrad, OptimizerKind::kAdam,
        OptimizerKind::kFtrl}) {
    ExpectLikeTheModel({.seed = 7, .kind = kind});
    ExpectLikeTheModel({.seed = 8, .kind = kind, .memory_bytes = kFewRows});
  }
}

TEST(TableShardTest, IsAMapWithMemoryForFewRows) {
  for (int seed = 1; seed <= SeedCount(12); ++seed) {
    ExpectLikeTheModel(
        {.seed = seed, .lanes = seed % 4 + 1, .memory_bytes = kFewRows});
  }
}

TEST(TableShardTest, IsAMapWithMemoryForHardlyAnyRow) {
  for (int seed = 1; seed <= SeedCount(5); ++seed) {
    ExpectLikeTheModel({.seed = seed, .memory_bytes = 1500});
  }
}

TEST(TableShardTest, IsAMapWhoseRowsExpire) {
  for (int seed = 1; seed <= SeedCount(12); ++seed) {
    ExpectLikeTheModel({.seed = seed,
                        .memory_bytes = seed % 2 == 0 ? kFewRows : 4 << 20,
                        .unseen_clocks = 1 + seed % 5});
  }
}

// The same pushes in other orders, on other lanes, with other memory.
TEST(TableShardTest, NeitherOrderNorLanesNorMemoryMatter) {
  Random random(5);
  std::vector<Gradients> pushes(12);
  for (Gradients& push : pushes) {
    for (int i = 0; i < 300; ++i) {
      // Powers of two: sums are exact, so their order cannot show.
      push[RandomKey(&random)] = std::vector<float>(
          kDim, std::exp2(static_cast<float>(random.Below(4))));
    }
  }
  Gradients expected;
  for (int variant = 0; variant < 8; ++variant) {
    SCOPED_TRACE(absl::StrCat("variant=", variant));
    TableOptions options = TestTableOptions(OptimizerKind::kSgd);
    options.initializer = {RowInitializer::Scheme::kConstant, 1, 0, ""};
    options.memory_bytes = variant % 2 == 0 ? 4 << 20 : kFewRows;
    MemoryColdStore cold(TableShard::SpilledRowBytes(options));
    TestTable table(options, 1 << (variant / 2), &cold);
    for (const Gradients& push : pushes) {
      ASSERT_TRUE(table.Push({push}, {.learning_rate = 1}).ok());
    }
    const Gradients all = table.Scan(0, 100, [] {});
    if (variant == 0) expected = all;
    ASSERT_EQ(all, expected);
    std::rotate(pushes.begin(), pushes.begin() + 5, pushes.end());
  }
}

}  // namespace
}  // namespace syncline::ps

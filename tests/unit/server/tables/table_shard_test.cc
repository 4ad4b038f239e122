// Goal: a table is a map from key to row whatever its memory: pushes, pulls,
// expiry, spilling and scans, in any order, on any number of lanes.
// Method: seeded runs against std::unordered_map with the same arithmetic, bit
// for bit, with memory for all rows and for few; drawn cases for what a model
// does not show.

#include "server/tables/table_shard.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/system/thread_pool.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/optimizer/row_optimizer.h"
#include "tests/testing/memory_cold_store.h"
#include "tests/testing/seed_count.h"

namespace syncline::ps {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kDim = 5;

TableOptions Options(OptimizerKind kind = OptimizerKind::kRowWiseAdagrad) {
  TableOptions options;
  options.name = "users";
  options.dim = kDim;
  options.seed = 17;
  options.initializer = {RowInitializer::Scheme::kUniform, 0.5f, 17, "users"};
  options.optimizer.kind = kind;
  options.optimizer.epsilon = 1e-8f;
  options.memory_bytes = 4 << 20;
  return options;
}

TableMap Map() { return *TableMap::Create(256, 1); }

class Floats : public FloatSource {
 public:
  explicit Floats(std::vector<float> values) : values_(std::move(values)) {}
  void CopyTo(size_t first, size_t count, float* out) const override {
    ASSERT_LE(first + count, values_.size());
    std::copy_n(values_.begin() + first, count, out);
  }

 private:
  std::vector<float> values_;
};

using Gradients = std::map<int64_t, std::vector<float>>;

// A shard with the lanes that a message would be cut for.
class Table {
 public:
  Table(const TableOptions& options, int lanes, MemoryColdStore* cold = nullptr)
      : options_(options),
        shard_(options, map_, 0, lanes,
               cold == nullptr ? nullptr : std::make_unique<Forward>(cold)) {}

  // One gradient per worker, in rank order.
  absl::Status Push(const std::vector<Gradients>& workers,
                    const RowStep& step) {
    std::vector<std::vector<int64_t>> keys;
    std::vector<std::unique_ptr<Floats>> values;
    for (const Gradients& gradients : workers) {
      keys.push_back(SortedKeys(gradients));
      std::vector<float> floats(3);  // not at the beginning of the message
      for (const int64_t key : keys.back()) {
        const std::vector<float>& row = gradients.at(key);
        floats.insert(floats.end(), row.begin(), row.end());
      }
      values.push_back(std::make_unique<Floats>(std::move(floats)));
    }
    absl::Status status;
    for (int lane = 0; lane < shard_.lanes(); ++lane) {
      std::vector<GradientRows> ranks;
      for (size_t i = 0; i < workers.size(); ++i) {
        const auto [begin, end] = LaneRange(keys[i], lane);
        ranks.push_back(
            {.keys = absl::MakeSpan(keys[i]).subspan(begin, end - begin),
             .values = values[i].get(),
             .first = 3 + begin * options_.dim});
      }
      status.Update(shard_.Push(lane, ranks, step));
    }
    return status;
  }

  absl::Status Read(std::vector<int64_t> keys, int64_t clock, Gradients* rows) {
    std::sort(keys.begin(), keys.end(),
              [&](int64_t a, int64_t b) { return map_.Before(a, b); });
    std::vector<float> out(keys.size() * options_.dim);
    absl::Status status;
    for (int lane = 0; lane < shard_.lanes(); ++lane) {
      const auto [begin, end] = LaneRange(keys, lane);
      status.Update(
          shard_.Read(lane, absl::MakeSpan(keys).subspan(begin, end - begin),
                      clock, out.data() + begin * options_.dim));
    }
    for (size_t i = 0; i < keys.size(); ++i) {
      (*rows)[keys[i]].assign(out.begin() + i * options_.dim,
                              out.begin() + (i + 1) * options_.dim);
    }
    return status;
  }

  std::vector<float> Row(int64_t key, int64_t clock = 0) {
    Gradients rows;
    EXPECT_TRUE(Read({key}, clock, &rows).ok());
    return rows[key];
  }

  absl::Status Maintain(int64_t clock, absl::Time now = absl::UnixEpoch()) {
    absl::Status status;
    for (int lane = 0; lane < shard_.lanes(); ++lane) {
      status.Update(shard_.Maintain(lane, clock, now));
    }
    return status;
  }

  TableStats Stats() const {
    TableStats stats = shard_.Stats(0);
    for (int lane = 1; lane < shard_.lanes(); ++lane) {
      stats.Add(shard_.Stats(lane));
    }
    return stats;
  }

  // All rows, by a scan in steps of `limit`; `between` runs before each.
  template <typename Between>
  Gradients Scan(int64_t clock, size_t limit, Between between) {
    Gradients all;
    ScanCursor cursor;
    while (!shard_.ScanDone(cursor)) {
      between();
      std::vector<int64_t> keys;
      std::vector<float> values;
      cursor = *ScanCursor::Decode(cursor.Encode());
      EXPECT_TRUE(shard_.Scan(clock, limit, &cursor, &keys, &values).ok());
      EXPECT_LE(keys.size(), limit);
      EXPECT_EQ(values.size(), keys.size() * options_.dim);
      for (size_t i = 0; i < keys.size(); ++i) {
        const auto row = values.begin() + i * options_.dim;
        EXPECT_TRUE(
            all.emplace(keys[i], std::vector<float>(row, row + options_.dim))
                .second)
            << "key " << keys[i] << " came twice";
      }
    }
    return all;
  }

  TableShard& shard() { return shard_; }
  const TableMap& map() const { return map_; }

 private:
  // The test keeps the store; the shard owns this.
  class Forward : public ColdStore {
   public:
    explicit Forward(ColdStore* to) : to_(to) {}
    absl::Status Put(absl::Span<const ColdKey> keys,
                     const char* rows) override {
      return to_->Put(keys, rows);
    }
    absl::Status Get(absl::Span<const ColdKey> keys, char* rows,
                     ColdFound* found) override {
      return to_->Get(keys, rows, found);
    }
    absl::Status Delete(absl::Span<const ColdKey> keys, size_t* gone) override {
      return to_->Delete(keys, gone);
    }
    absl::Status Scan(uint32_t partition, uint64_t from, size_t limit,
                      Damaged damaged, std::vector<int64_t>* keys,
                      std::vector<char>* rows) override {
      return to_->Scan(partition, from, limit, damaged, keys, rows);
    }
    absl::Status CheckRoom() override { return to_->CheckRoom(); }
    uint64_t disk_bytes() const override { return to_->disk_bytes(); }
    uint64_t disk_limit_bytes() const override {
      return to_->disk_limit_bytes();
    }

   private:
    ColdStore* const to_;
  };

  std::vector<int64_t> SortedKeys(const Gradients& gradients) const {
    std::vector<int64_t> keys;
    for (const auto& [key, row] : gradients) keys.push_back(key);
    std::sort(keys.begin(), keys.end(),
              [&](int64_t a, int64_t b) { return map_.Before(a, b); });
    return keys;
  }

  std::pair<size_t, size_t> LaneRange(const std::vector<int64_t>& keys,
                                      int lane) const {
    const auto of = [&](int64_t key) {
      return shard_.LaneOf(map_.SlotOf(key));
    };
    const auto begin = std::partition_point(
        keys.begin(), keys.end(), [&](int64_t key) { return of(key) < lane; });
    const auto end = std::partition_point(
        begin, keys.end(), [&](int64_t key) { return of(key) == lane; });
    return {begin - keys.begin(), end - keys.begin()};
  }

  const TableOptions options_;
  const TableMap map_ = Map();
  TableShard shard_;
};

// The same table as an unordered_map, with memory for everything.
class Model {
 public:
  explicit Model(const TableOptions& options)
      : options_(options), optimizer_(options.optimizer, options.dim) {}

  void Push(const std::vector<Gradients>& workers, const RowStep& step) {
    Gradients sums;
    for (const Gradients& gradients : workers) {
      for (const auto& [key, row] : gradients) {
        auto [sum, fresh] = sums.emplace(key, row);
        if (!fresh) AddTo(row.data(), sum->second.data(), options_.dim);
      }
    }
    for (const auto& [key, sum] : sums) {
      if (Expired(key, step.clock)) rows_.erase(key);
      auto [row, fresh] = rows_.try_emplace(key);
      if (fresh) {
        row->second.floats = Initial(key);
        row->second.floats.resize(options_.dim + optimizer_.state_floats());
        optimizer_.InitState(row->second.floats.data() + options_.dim);
      }
      row->second.clock = std::max(row->second.clock, step.clock);
      const float* const gradients[] = {sum.data()};
      float* const rows[] = {row->second.floats.data()};
      optimizer_.Apply({.learning_rate = step.learning_rate,
                        .gradient_scale = step.gradient_scale},
                       1, gradients, rows);
    }
  }

  std::vector<float> Row(int64_t key, int64_t clock) const {
    const auto row = rows_.find(key);
    if (row == rows_.end() || Expired(key, clock)) return Initial(key);
    return row->second.Values(options_.dim);
  }

  Gradients All(int64_t clock) const {
    Gradients all;
    for (const auto& [key, row] : rows_) {
      if (!Expired(key, clock)) all[key] = row.Values(options_.dim);
    }
    return all;
  }

 private:
  struct Kept {
    std::vector<float> Values(size_t dim) const {
      return {floats.begin(), floats.begin() + dim};
    }
    std::vector<float> floats;  // values, then state
    int64_t clock = 0;
  };

  bool Expired(int64_t key, int64_t clock) const {
    const auto row = rows_.find(key);
    return row != rows_.end() && options_.expiry.unseen_clocks > 0 &&
           clock - row->second.clock > options_.expiry.unseen_clocks;
  }
  std::vector<float> Initial(int64_t key) const {
    std::vector<float> row(options_.dim);
    options_.initializer.Fill(key, row.data(), options_.dim);
    return row;
  }

  const TableOptions options_;
  const RowOptimizer optimizer_;
  std::unordered_map<int64_t, Kept> rows_;
};

std::vector<float> RandomRow(Random* random) {
  std::vector<float> row(kDim);
  for (float& v : row) v = static_cast<float>(random->Normal());
  return row;
}

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

TEST(TableShardTest, RowsThatAreNotFiniteStayAsTheyAre) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  TableOptions options = Options(OptimizerKind::kSgd);
  Table table(options, 2);
  Table untouched(options, 2);
  Random random(5);
  Gradients finite;
  for (int64_t key = 0; key < 200; ++key) finite[key] = RandomRow(&random);
  Gradients second = finite;
  second[17].back() = kInfinity;
  second[150].front() = std::numeric_limits<float>::quiet_NaN();
  second[9999] = std::vector<float>(options.dim, -kInfinity);
  std::vector<int64_t> bad;
  const RowStep step = {.learning_rate = 0.1f, .non_finite = &bad};
  ASSERT_TRUE(table.Push({finite, second}, step).ok());
  EXPECT_THAT(bad, testing::UnorderedElementsAre(17, 150, 9999));
  bad.clear();
  ASSERT_TRUE(untouched.Push({finite, finite}, step).ok());
  EXPECT_THAT(bad, testing::IsEmpty());
  EXPECT_EQ(table.Stats().rows_in_memory, 198u);

  Gradients rows;
  Gradients expected;
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < 200; ++key) keys.push_back(key);
  ASSERT_TRUE(table.Read(keys, 1, &rows).ok());
  ASSERT_TRUE(untouched.Read(keys, 1, &expected).ok());
  Gradients initial;
  Table empty(options, 2);
  ASSERT_TRUE(empty.Read({17, 150}, 1, &initial).ok());
  expected[17] = initial[17];
  expected[150] = initial[150];
  EXPECT_EQ(rows, expected);
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
  TableOptions options = Options(run.kind);
  options.memory_bytes = run.memory_bytes;
  options.expiry.unseen_clocks = run.unseen_clocks;
  MemoryColdStore cold(TableShard::SpilledRowBytes(options));
  Table table(options, run.lanes, &cold);
  Model model(options);
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

constexpr uint64_t kFewRows = 48 << 10;  // some 600 rows of row-wise Adagrad

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
    TableOptions options = Options(OptimizerKind::kSgd);
    options.initializer = {RowInitializer::Scheme::kConstant, 1, 0, ""};
    options.memory_bytes = variant % 2 == 0 ? 4 << 20 : kFewRows;
    MemoryColdStore cold(TableShard::SpilledRowBytes(options));
    Table table(options, 1 << (variant / 2), &cold);
    for (const Gradients& push : pushes) {
      ASSERT_TRUE(table.Push({push}, {.learning_rate = 1}).ok());
    }
    const Gradients all = table.Scan(0, 100, [] {});
    if (variant == 0) expected = all;
    ASSERT_EQ(all, expected);
    std::rotate(pushes.begin(), pushes.begin() + 5, pushes.end());
  }
}

Gradients OnePush(int64_t first, int64_t count) {
  Gradients push;
  for (int64_t key = first; key < first + count; ++key) {
    push[key] = std::vector<float>(kDim, 1.0f);
  }
  return push;
}

// Under the thread sanitizer: what lanes share is made for it.
TEST(TableShardTest, LanesWorkAtTheSameTime) {
  constexpr int kLanes = 4;
  TableOptions options = Options(OptimizerKind::kSgd);
  options.memory_bytes = kFewRows;
  MemoryColdStore cold(TableShard::SpilledRowBytes(options));
  Table table(options, kLanes, &cold);
  Model model(options);
  const Gradients push = OnePush(0, 3000);
  std::vector<int64_t> keys;
  for (const auto& [key, row] : push) keys.push_back(key);
  std::sort(keys.begin(), keys.end(),
            [&](int64_t a, int64_t b) { return table.map().Before(a, b); });
  const Floats ones(std::vector<float>(keys.size() * kDim, 1.0f));
  {
    ThreadPool threads("lane", kLanes);
    for (int lane = 0; lane < kLanes; ++lane) {
      ASSERT_TRUE(threads.TrySubmit([&, lane] {
        std::vector<int64_t> mine;
        for (const int64_t key : keys) {
          if (table.shard().LaneOf(table.map().SlotOf(key)) == lane) {
            mine.push_back(key);
          }
        }
        std::vector<float> out(mine.size() * kDim);
        const GradientRows rows = {.keys = mine, .values = &ones};
        for (int64_t clock = 0; clock < 5; ++clock) {
          const RowStep step = {.clock = clock, .learning_rate = 1};
          EXPECT_TRUE(table.shard().Push(lane, {rows}, step).ok());
          EXPECT_TRUE(table.shard().Read(lane, mine, clock, out.data()).ok());
          EXPECT_TRUE(table.shard().AcceptsPushes().ok());
          EXPECT_TRUE(
              table.shard().Maintain(lane, clock, absl::UnixEpoch()).ok());
        }
      }));
    }
  }
  for (int i = 0; i < 5; ++i) model.Push({push}, {.learning_rate = 1});
  EXPECT_EQ(table.Scan(5, 100, [] {}), model.All(5));
}

TEST(TableShardTest, SumsWorkersInRankOrder) {
  Table table(Options(OptimizerKind::kSgd), 2);
  const float large = 1 << 25;
  const auto row = [](float v) { return std::vector<float>(kDim, v); };
  // (2^25 + 1) - 2^25 is 0 in float32, and (2^25 - 2^25) + 1 is 1.
  ASSERT_TRUE(table
                  .Push({{{1, row(large)}},
                         {{1, row(1)}, {2, row(3)}},
                         {{1, row(-large)}}},
                        {.learning_rate = 1})
                  .ok());
  EXPECT_EQ(table.Row(1), Model(Options()).Row(1, 0));
  EXPECT_NE(table.Row(2), Model(Options()).Row(2, 0));
  EXPECT_EQ(table.Stats().pushed_rows, 2u);
}

TEST(TableShardTest, ReadingNeverCreates) {
  const TableOptions options = Options();
  Table table(options, 1);
  EXPECT_EQ(table.Row(9), Model(options).Row(9, 0));
  EXPECT_EQ(table.Stats().rows_in_memory, 0u);
  EXPECT_EQ(table.Stats().read_absent, 1u);
  EXPECT_TRUE(table.Scan(0, 10, [] {}).empty());
}

TEST(TableShardTest, NormsAreOfWhatAPushWouldApplyBySlot) {
  Table table(Options(), 1);
  const uint32_t slots = table.map().slots();
  // Several keys a slot; the last one of the first worker is not finite.
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < 4 * slots; ++key) keys.push_back(key);
  std::sort(keys.begin(), keys.end(),
            [&](int64_t a, int64_t b) { return table.map().Before(a, b); });
  std::vector<float> first(keys.size() * kDim, 3.0f);
  first.back() = std::numeric_limits<float>::infinity();
  const Floats bad(first);
  const Floats good(std::vector<float>(keys.size() * kDim, 1.0f));
  std::vector<double> expected(slots, 7);  // those of other slots stay
  for (const int64_t key : keys) expected[table.map().SlotOf(key)] = 0;
  for (const int64_t key : keys) {
    if (key == keys.back()) continue;
    expected[table.map().SlotOf(key)] += kDim * 4.0;
  }
  std::vector<int64_t> named;
  std::vector<double> norms(slots, 7);
  table.shard().SquaredNorms(
      0, {{.keys = keys, .values = &bad}, {.keys = keys, .values = &good}},
      {.gradient_scale = 0.5f, .non_finite = &named}, absl::MakeSpan(norms));
  EXPECT_EQ(norms, expected);
  EXPECT_THAT(named, testing::ElementsAre(keys.back()));
  EXPECT_EQ(table.Stats().rows_in_memory, 0u);
}

// --- Admission ---

TEST(TableShardTest, AKeyIsAdmittedOnceItWasSeenOften) {
  TableOptions options = Options();
  options.admission = {.min_sightings = 3, .filter_bytes = 1 << 20};
  Table table(options, 2);
  const Model model(options);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(table.Push({OnePush(0, 100)}, {.learning_rate = 1}).ok());
    EXPECT_EQ(table.Row(5), model.Row(5, 0));
  }
  EXPECT_EQ(table.Stats().rows_in_memory, 0u);
  EXPECT_EQ(table.Stats().refused_by_sightings, 200u);
  ASSERT_TRUE(table.Push({OnePush(0, 100)}, {.learning_rate = 1}).ok());
  EXPECT_EQ(table.Stats().rows_in_memory, 100u);
  EXPECT_NE(table.Row(5), model.Row(5, 0));
}

TEST(TableShardTest, AKeyIsAdmittedByChanceWhereverItLives) {
  TableOptions options = Options();
  options.admission.probability = 0.25;
  Table one(options, 1), four(options, 4);
  for (Table* table : {&one, &four}) {
    ASSERT_TRUE(table->Push({OnePush(0, 2000)}, {.clock = 3}).ok());
    EXPECT_NEAR(static_cast<double>(table->Stats().rows_in_memory), 500, 80);
    EXPECT_EQ(
        table->Stats().rows_in_memory + table->Stats().refused_by_probability,
        2000u);
  }
  EXPECT_EQ(one.Scan(3, 100, [] {}), four.Scan(3, 100, [] {}));
  // Another clock, another draw.
  ASSERT_TRUE(one.Push({OnePush(0, 2000)}, {.clock = 4}).ok());
  EXPECT_NEAR(static_cast<double>(one.Stats().rows_in_memory), 875, 100);
}

TEST(TableShardTest, AdmissionIsStricterWhenMemoryRunsOut) {
  TableOptions options = Options();
  options.admission.probability = 0.5;
  options.memory_bytes = kFewRows;
  MemoryColdStore cold(TableShard::SpilledRowBytes(options));
  Table table(options, 1, &cold);
  for (int64_t i = 0; i < 10; ++i) {
    ASSERT_TRUE(table.Push({OnePush(i * 1000, 1000)}, {.clock = i}).ok());
  }
  const TableStats stats = table.Stats();
  EXPECT_GT(stats.refused_by_budget,
            1500u);  // half of the 5,000 but for the first
  EXPECT_GT(stats.spilled_rows, 0u);
}

// --- Expiry ---

TEST(TableShardTest, ExpiryByAgeByTimeAndByScoreAreCounted) {
  TableOptions options = Options();
  options.expiry.unseen_time = absl::Hours(1);
  options.expiry.unseen_clocks = 100;
  Table table(options, 2);
  ASSERT_TRUE(table.Push({OnePush(0, 50)}, {.clock = 0}).ok());
  ASSERT_TRUE(table.Push({OnePush(50, 50)}, {.clock = 10}).ok());
  const absl::Time start = absl::FromUnixSeconds(1000);
  ASSERT_TRUE(table.Maintain(10, start).ok());
  EXPECT_EQ(table.Stats().rows_in_memory, 100u);
  ASSERT_TRUE(table.Maintain(20, start + absl::Minutes(61)).ok());
  EXPECT_EQ(table.Stats().rows_in_memory, 50u);  // pushed before clock 10
  EXPECT_EQ(table.Stats().expired_by_age, 50u);
  ASSERT_TRUE(table.Maintain(111, start + absl::Minutes(62)).ok());
  EXPECT_EQ(table.Stats().expired_by_age, 100u);

  options = Options();
  options.expiry = {.min_score = 0.5f, .decay = 0.5f, .decay_clocks = 10};
  Table scored(options, 2);
  ASSERT_TRUE(scored.Push({OnePush(0, 100)}, {.clock = 5}).ok());
  ASSERT_TRUE(scored.Push({OnePush(0, 10)}, {.clock = 6}).ok());
  ASSERT_TRUE(scored.Maintain(19).ok());  // scores 1/2 and 1
  EXPECT_EQ(scored.Stats().rows_in_memory, 100u);
  ASSERT_TRUE(scored.Maintain(20).ok());  // 1/4 and 1/2
  EXPECT_EQ(scored.Stats().rows_in_memory, 10u);
  EXPECT_EQ(scored.Stats().expired_by_score, 90u);
}

TEST(TableShardTest, RowsExpireOnDiskToo) {
  TableOptions options = Options();
  options.memory_bytes = kFewRows;
  options.expiry.unseen_clocks = 5;
  MemoryColdStore cold(TableShard::SpilledRowBytes(options));
  Table table(options, 1, &cold);
  ASSERT_TRUE(table.Push({OnePush(0, 5000)}, {.clock = 0}).ok());
  ASSERT_GT(table.Stats().rows_on_disk, 3000u);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(table.Maintain(6).ok());
  const TableStats stats = table.Stats();
  EXPECT_EQ(stats.rows_in_memory, 0u);
  EXPECT_EQ(stats.rows_on_disk, 0u);
  EXPECT_EQ(stats.expired_by_age, 5000u);
  EXPECT_EQ(cold.disk_bytes(), 0u);
}

TEST(TableShardTest, AnUpkeepReadsABoundedPartOfTheDisk) {
  TableOptions options = Options();
  options.memory_bytes = kFewRows;
  options.expiry.unseen_clocks = 5;
  const size_t row_bytes = TableShard::SpilledRowBytes(options);
  MemoryColdStore cold(row_bytes);
  Table table(options, 1, &cold);
  constexpr int64_t kRows = 150'000;
  for (int64_t key = 0; key < kRows; key += 10'000) {
    ASSERT_TRUE(table.Push({OnePush(key, 10'000)}, {.clock = 0}).ok());
  }
  const uint64_t all = cold.disk_bytes();
  ASSERT_GT(all, 4u << 20);
  int upkeeps = 0;
  uint64_t most = 0;
  for (; table.Stats().rows_on_disk > 0; ++upkeeps) {
    ASSERT_LT(upkeeps, 100);
    const uint64_t before = cold.scanned_bytes;
    ASSERT_TRUE(table.Maintain(6).ok());
    most = std::max(most, cold.scanned_bytes - before);
  }
  EXPECT_LE(most, (4u << 20) + row_bytes);
  EXPECT_GE(upkeeps, 2);
  EXPECT_EQ(table.Stats().expired_by_age, uint64_t{kRows});
}

TEST(TableShardTest, RowsOnDiskAreCountedThroughAHalfFailedDelete) {
  TableOptions options = Options();
  options.memory_bytes = kFewRows;
  options.expiry.unseen_clocks = 5;
  const size_t row_bytes = TableShard::SpilledRowBytes(options);
  MemoryColdStore cold(row_bytes);
  Table table(options, 1, &cold);
  ASSERT_TRUE(table.Push({OnePush(0, 5000)}, {.clock = 0}).ok());
  cold.put_error = absl::UnavailableError("no disk");
  cold.deletes_most = 10;
  const uint64_t before = cold.disk_bytes();
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(table.Maintain(6).ok());
  EXPECT_LT(cold.disk_bytes(), before);
  EXPECT_EQ(table.Stats().rows_on_disk, cold.disk_bytes() / row_bytes);
  cold.put_error = absl::OkStatus();
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(table.Maintain(6).ok());
  EXPECT_EQ(table.Stats().rows_on_disk, 0u);
  EXPECT_EQ(cold.disk_bytes(), 0u);
}

TEST(TableShardTest, ExpiredRowsGoBeforeColdOnesAreWritten) {
  TableOptions options = Options();
  options.memory_bytes = kFewRows;
  options.expiry.unseen_clocks = 1;
  MemoryColdStore cold(TableShard::SpilledRowBytes(options));
  Table table(options, 1, &cold);
  for (int64_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(table.Push({OnePush(i * 200, 200)}, {.clock = i}).ok());
  }
  EXPECT_EQ(table.Stats().spilled_rows, 0u);
  EXPECT_GT(table.Stats().expired_by_age, 3000u);
}

// --- Memory and disk ---

TEST(TableShardTest, WithoutDiskAFullTableRefusesNewRowsOnly) {
  TableOptions options = Options(OptimizerKind::kSgd);
  options.memory_bytes = kFewRows;
  Table table(options, 2);
  EXPECT_TRUE(table.shard().AcceptsPushes().ok());
  const absl::Status status =
      table.Push({OnePush(0, 5000)}, {.learning_rate = 1});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("table users is full"));
  EXPECT_EQ(table.shard().AcceptsPushes(), status);
  const TableStats stats = table.Stats();
  EXPECT_EQ(stats.refused_by_budget + stats.rows_in_memory, 5000u);
  EXPECT_LE(stats.memory_bytes, options.memory_bytes);
  EXPECT_GT(stats.memory_bytes, options.memory_bytes * 7 / 10);

  // Existing rows can be pushed to and read.
  const Gradients before = table.Scan(0, 1000, [] {});
  EXPECT_EQ(before.size(), stats.rows_in_memory);
  Gradients again;
  for (const auto& [key, row] : before) {
    again[key] = std::vector<float>(kDim, 1.0f);
  }
  EXPECT_TRUE(table.Push({again}, {.learning_rate = 1}).ok());
  for (const auto& [key, row] : before) {
    EXPECT_EQ(table.Row(key)[0], row[0] - 1);
  }
}

// A partition without room holds up all pushes, so no clock passes until it has
// some: it must not wait for its turn in a sweep of many rows.
TEST(TableShardTest, OneUpkeepMakesRoomWhereverThereWasNone) {
  TableOptions options = Options(OptimizerKind::kSgd);
  options.memory_bytes = 20 << 20;
  options.expiry.unseen_clocks = 5;
  Table table(options, 1);
  absl::Status pushed;
  for (int64_t key = 0; key < 800'000; key += 50'000) {
    pushed = table.Push({OnePush(key, 50'000)}, {.learning_rate = 1});
  }
  ASSERT_TRUE(absl::IsResourceExhausted(pushed));
  ASSERT_FALSE(table.shard().AcceptsPushes().ok());
  ASSERT_GT(table.Stats().rows_in_memory, 300'000u) << "more than one sweep";
  ASSERT_TRUE(table.Maintain(100).ok());
  EXPECT_TRUE(table.shard().AcceptsPushes().ok());
}

TEST(TableShardTest, AFullDiskRefusesAndLosesNothing) {
  TableOptions options = Options(OptimizerKind::kSgd);
  options.memory_bytes = kFewRows;
  const size_t row_bytes = TableShard::SpilledRowBytes(options);
  MemoryColdStore cold(row_bytes, 1000 * row_bytes);
  Table table(options, 1, &cold);
  Model model(options);
  int64_t accepted = 0;
  while (table.shard().AcceptsPushes().ok()) {
    ASSERT_LT(accepted, 5000);
    const std::vector<Gradients> push = {OnePush(accepted, 20)};
    ASSERT_TRUE(table.Push(push, {.learning_rate = 1}).ok());
    model.Push(push, {.learning_rate = 1});
    accepted += 20;
  }
  EXPECT_THAT(std::string(table.shard().AcceptsPushes().message()),
              HasSubstr("bytes on disk"));
  // The reserve takes what was on its way, and then there is none.
  absl::Status status;
  for (int64_t key = 10000; status.ok() && key < 20000; key += 20) {
    status = table.Push({OnePush(key, 20)}, {.learning_rate = 1});
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_GT(table.Stats().refused_by_budget, 0u);
  for (int64_t key = 0; key < accepted; ++key) {
    ASSERT_EQ(table.Row(key), model.Row(key, 0)) << "key " << key;
  }
}

TEST(TableShardTest, AFailingDiskIsTriedAgain) {
  TableOptions options = Options(OptimizerKind::kSgd);
  options.memory_bytes = kFewRows;
  MemoryColdStore cold(TableShard::SpilledRowBytes(options));
  Table table(options, 1, &cold);
  cold.put_error = absl::UnavailableError("the disk is on fire");
  const absl::Status status =
      table.Push({OnePush(0, 5000)}, {.learning_rate = 1});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("on fire"));
  EXPECT_FALSE(table.shard().AcceptsPushes().ok());
  ASSERT_TRUE(table.Maintain(0).ok());
  EXPECT_FALSE(table.shard().AcceptsPushes().ok());
  cold.put_error = absl::OkStatus();
  ASSERT_TRUE(table.Maintain(0).ok());
  EXPECT_TRUE(table.shard().AcceptsPushes().ok());
  EXPECT_TRUE(table.Push({OnePush(0, 5000)}, {.learning_rate = 1}).ok());
}

TEST(TableShardTest, ADiskThatCannotBeReadHurtsOnlyItsRows) {
  TableOptions options = Options(OptimizerKind::kSgd);
  options.memory_bytes = kFewRows;
  options.initializer = {RowInitializer::Scheme::kZeros, 0, 0, ""};
  MemoryColdStore cold(TableShard::SpilledRowBytes(options));
  Table table(options, 1, &cold);
  ASSERT_TRUE(table.Push({OnePush(0, 3000)}, {.learning_rate = 1}).ok());
  const Gradients before = table.Scan(0, 1000, [] {});
  ASSERT_GT(table.Stats().rows_on_disk, 2000u);
  cold.get_error = absl::DataLossError("block checksum mismatch");
  const absl::Status pushed =
      table.Push({OnePush(0, 3000)}, {.learning_rate = 1});
  EXPECT_EQ(pushed.code(), absl::StatusCode::kDataLoss);
  Gradients rows;
  std::vector<int64_t> keys;
  for (const auto& [key, row] : before) keys.push_back(key);
  EXPECT_EQ(table.Read(keys, 0, &rows).code(), absl::StatusCode::kDataLoss);
  // Rows in memory moved, rows on disk did not, and none was made twice.
  cold.get_error = absl::OkStatus();
  int moved = 0;
  for (const auto& [key, row] : before) {
    const float step = row[0] - table.Row(key)[0];
    EXPECT_TRUE(step == 0 || step == 1) << step;
    moved += step == 1;
  }
  EXPECT_GT(moved, 100);
  EXPECT_LT(moved, 1000);
  EXPECT_EQ(table.Scan(0, 1000, [] {}).size(), 3000u);
}

TEST(TableShardTest, ADamagedRowCostsNoOther) {
  TableOptions options = Options(OptimizerKind::kSgd);
  options.memory_bytes = kFewRows;
  options.initializer = {RowInitializer::Scheme::kZeros, 0, 0, ""};
  MemoryColdStore cold(TableShard::SpilledRowBytes(options));
  Table table(options, 1, &cold);
  ASSERT_TRUE(table.Push({OnePush(0, 3000)}, {.learning_rate = 1}).ok());
  cold.unreadable_keys = {7};
  // Until it is not in memory.
  ASSERT_TRUE(table.Push({OnePush(3000, 3000)}, {.learning_rate = 1}).ok());
  const Gradients before = table.Scan(0, 1000, [] {});
  const absl::Status pushed =
      table.Push({OnePush(0, 20)}, {.learning_rate = 1});
  EXPECT_EQ(pushed.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(table.Stats().unreadable_rows, 1u);
  for (int64_t key = 0; key < 20; ++key) {
    if (key == 7) continue;
    EXPECT_EQ(table.Row(key)[0], before.at(key)[0] - 1) << key;
  }
  Gradients rows;
  EXPECT_EQ(table.Read({6, 7, 8}, 0, &rows).code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(rows[6], table.Row(6));
  EXPECT_EQ(rows[8], table.Row(8));
  EXPECT_EQ(table.Stats().unreadable_rows, 2u);
  cold.unreadable_keys.clear();
  EXPECT_EQ(table.Row(7)[0], before.at(7)[0]) << "it was made twice";
}

TEST(TableShardTest, UnchangedRowsAreNotWrittenAgain) {
  TableOptions options = Options();
  options.memory_bytes = kFewRows;
  MemoryColdStore cold(TableShard::SpilledRowBytes(options));
  Table table(options, 1, &cold);
  ASSERT_TRUE(table.Push({OnePush(0, 4000)}, {.learning_rate = 1}).ok());
  Gradients rows;
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < 4000; ++key) keys.push_back(key);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(table.Read(keys, 0, &rows).ok());
  const uint64_t written = table.Stats().spilled_rows;
  EXPECT_LE(written, 4000u);
  ASSERT_TRUE(table.Read(keys, 0, &rows).ok());
  EXPECT_EQ(table.Stats().spilled_rows, written);
  EXPECT_GT(table.Stats().loaded_rows, 3000u);
}

TEST(TableShardTest, WarmRowsStayInMemory) {
  TableOptions options = Options();
  options.memory_bytes = kFewRows;
  MemoryColdStore cold(TableShard::SpilledRowBytes(options));
  Table table(options, 1, &cold);
  for (int64_t i = 0; i < 50; ++i) {
    Gradients push = OnePush(0, 100);
    push.merge(OnePush(1000 + 100 * i, 100));
    ASSERT_TRUE(table.Push({push}, {.clock = i}).ok());
  }
  // The hundred that every push has were hardly ever away.
  EXPECT_LT(table.Stats().loaded_rows, 50u);
}

TEST(TableShardTest, NamesItsHottestKeys) {
  Table table(Options(), 3);
  for (int64_t i = 0; i < 40; ++i) {
    Gradients push = OnePush(1000 * i, 100);
    for (int64_t key = 0; key <= i / 4; ++key) {
      push[-1 - key] = std::vector<float>(kDim, 1.0f);
    }
    ASSERT_TRUE(table.Push({push}, {.clock = i}).ok());
  }
  const std::vector<HotKey> hot = table.Stats().hot_keys;
  ASSERT_GE(hot.size(), 3u);
  EXPECT_EQ(hot[0].key, -1);
  EXPECT_EQ(hot[0].pushes, 40u);
  EXPECT_EQ(hot[1].key, -2);
  EXPECT_EQ(hot[2].pushes, 32u);
}

TEST(TableShardTest, KeysThatWereOnDiskAreAmongTheHottest) {
  TableOptions options = Options();
  options.memory_bytes = kFewRows;
  MemoryColdStore cold(TableShard::SpilledRowBytes(options));
  Table table(options, 2, &cold);
  for (int64_t i = 0; i < 40; ++i) {
    // Between two pushes of -1 everything in memory makes room.
    Gradients push = OnePush(2000 * i, 2000);
    if (i % 4 == 0) push[-1] = std::vector<float>(kDim, 1.0f);
    ASSERT_TRUE(table.Push({push}, {.clock = i}).ok());
  }
  EXPECT_GT(table.Stats().loaded_rows, 0u);
  const std::vector<HotKey> hot = table.Stats().hot_keys;
  ASSERT_FALSE(hot.empty());
  EXPECT_EQ(hot[0].key, -1);
  EXPECT_EQ(hot[0].pushes, 10u);
  EXPECT_EQ(hot[0].refused, 0u);
}

TEST(TableShardTest, RefusedKeysAreAmongTheHottest) {
  TableOptions options = Options();
  options.admission.min_sightings = 255;
  options.admission.filter_bytes = 64 << 10;
  Table table(options, 2);
  for (int64_t i = 0; i < 40; ++i) {
    Gradients push = OnePush(1000 * i, 100);
    push[-1] = std::vector<float>(kDim, 1.0f);
    ASSERT_TRUE(table.Push({push}, {.clock = i}).ok());
  }
  const std::vector<HotKey> hot = table.Stats().hot_keys;
  ASSERT_FALSE(hot.empty());
  EXPECT_EQ(hot[0].key, -1);
  EXPECT_EQ(hot[0].pushes, 40u);
  EXPECT_EQ(hot[0].refused, 40u);
  EXPECT_EQ(hot[0].refused_error, 0u);
}

// --- Options ---

TEST(TableShardTest, DimsFromOneToTheLargest) {
  for (const uint32_t dim : {1u, 3u, 16u, 1000u, 65536u}) {
    for (const OptimizerKind kind :
         {OptimizerKind::kRowWiseAdagrad, OptimizerKind::kAdam}) {
      SCOPED_TRACE(absl::StrCat("dim=", dim));
      TableOptions options = Options(kind);
      options.dim = dim;
      options.memory_bytes = 1 << 20;
      ASSERT_TRUE(TableShard::CheckOptions(options).ok());
      MemoryColdStore cold(TableShard::SpilledRowBytes(options));
      Table table(options, 2, &cold);
      Model model(options);
      std::vector<Gradients> push(2);
      for (int64_t key = 0; key < 12; ++key) {
        push[0][key] = std::vector<float>(dim, 0.5f);
        push[1][key / 2] = std::vector<float>(dim, 1.5f);
      }
      for (int i = 0; i < 2; ++i) {
        ASSERT_TRUE(table.Push(push, {.learning_rate = 0.1f}).ok());
        model.Push(push, {.learning_rate = 0.1f});
      }
      EXPECT_LE(table.Stats().memory_bytes, options.memory_bytes);
      for (int64_t key = 0; key < 13; ++key) {
        ASSERT_EQ(table.Row(key), model.Row(key, 0)) << key;
      }
      EXPECT_EQ(table.Scan(0, 5, [] {}), model.All(0));
    }
  }
}

TEST(TableShardTest, RefusesWhatCannotWork) {
  const auto problem = [](auto change) {
    TableOptions options = Options();
    change(&options);
    const absl::Status status = TableShard::CheckOptions(options);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_TRUE(TableShard::CheckOptions(Options()).ok());
  EXPECT_THAT(problem([](TableOptions* o) { o->dim = 0; }), HasSubstr("dim"));
  EXPECT_THAT(problem([](TableOptions* o) { o->dim = 100000; }),
              HasSubstr("table users: dim is 100000, expected 1..65536"));
  EXPECT_THAT(problem([](TableOptions* o) {
                o->optimizer.kind = OptimizerKind::kMomentum;
              }),
              HasSubstr("optimizer"));
  EXPECT_THAT(problem([](TableOptions* o) {
                o->dim = 65536;
                o->memory_bytes = 200 << 10;
              }),
              HasSubstr("204800 bytes of memory do not hold"));
  EXPECT_THAT(problem([](TableOptions* o) {
                o->admission = {.min_sightings = 2, .filter_bytes = 8 << 20};
              }),
              HasSubstr("filter"));
  EXPECT_THAT(problem([](TableOptions* o) { o->admission.min_sightings = 2; }),
              HasSubstr("expected at least 64"));
  EXPECT_THAT(
      problem([](TableOptions* o) { o->admission.min_sightings = 300; }),
      HasSubstr("min_sightings is 300"));
  EXPECT_THAT(problem([](TableOptions* o) { o->admission.probability = 0; }),
              HasSubstr("probability"));
  EXPECT_THAT(problem([](TableOptions* o) {
                o->admission = {.min_sightings = 2, .probability = 0.5};
              }),
              HasSubstr("one of them"));
  EXPECT_THAT(problem([](TableOptions* o) { o->expiry.unseen_clocks = -1; }),
              HasSubstr("expiry"));
  EXPECT_THAT(problem([](TableOptions* o) {
                o->expiry = {.min_score = 1, .decay = 1.5f};
              }),
              HasSubstr("decay"));
}

TEST(TableShardTest, CursorsAreCheckedWhenTheyComeBack) {
  ScanCursor cursor;
  cursor.partition = 7;
  cursor.position = 5;
  const auto decoded = ScanCursor::Decode(cursor.Encode());
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->partition, 7u);
  EXPECT_EQ(decoded->position, 5u);
  EXPECT_FALSE(ScanCursor::Decode("").ok());
  EXPECT_FALSE(ScanCursor::Decode("thirteen bytes").ok());
}

}  // namespace
}  // namespace syncline::ps

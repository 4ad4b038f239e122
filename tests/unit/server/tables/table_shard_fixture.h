#ifndef SYNCLINE_TESTS_UNIT_SERVER_TABLES_TABLE_SHARD_FIXTURE_H_
#define SYNCLINE_TESTS_UNIT_SERVER_TABLES_TABLE_SHARD_FIXTURE_H_

// The parts of table_shard_test share a table with the lanes that a message
// would be cut for, the same table as an unordered_map, and pushes.

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "gtest/gtest.h"
#include "kernels/optimizer/row_optimizer.h"
#include "server/tables/table_shard.h"
#include "tests/testing/fakes/memory_cold_store.h"
#include "tests/testing/fakes/payloads.h"

namespace syncline::ps {

inline constexpr uint32_t kDim = 5;

inline TableOptions TestTableOptions(
    OptimizerKind kind = OptimizerKind::kRowWiseAdagrad) {
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

inline TableMap Map() { return *TableMap::Create(256, 1); }

using Gradients = std::map<int64_t, std::vector<float>>;

inline constexpr uint64_t kFewRows =
    48 << 10;  // some 600 rows of row-wise Adagrad

// A shard with the lanes that a message would be cut for.
class TestTable {
 public:
  TestTable(const TableOptions& options, int lanes,
            MemoryColdStore* cold = nullptr)
      : options_(options),
        shard_(options, map_, 0, lanes,
               cold == nullptr ? nullptr : std::make_unique<Forward>(cold)) {}

  // One gradient per worker, in rank order.
  absl::Status Push(const std::vector<Gradients>& workers,
                    const RowStep& step) {
    std::vector<std::vector<int64_t>> keys;
    std::vector<std::unique_ptr<VectorFloats>> values;
    for (const Gradients& gradients : workers) {
      keys.push_back(SortedKeys(gradients));
      std::vector<float> floats(3);  // not at the beginning of the message
      for (const int64_t key : keys.back()) {
        const std::vector<float>& row = gradients.at(key);
        floats.insert(floats.end(), row.begin(), row.end());
      }
      values.push_back(std::make_unique<VectorFloats>(std::move(floats)));
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
class TableModel {
 public:
  explicit TableModel(const TableOptions& options)
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

inline std::vector<float> RandomRow(Random* random) {
  std::vector<float> row(kDim);
  for (float& v : row) v = static_cast<float>(random->Normal());
  return row;
}

inline Gradients OnePush(int64_t first, int64_t count) {
  Gradients push;
  for (int64_t key = first; key < first + count; ++key) {
    push[key] = std::vector<float>(kDim, 1.0f);
  }
  return push;
}

}  // namespace syncline::ps

#endif  // SYNCLINE_TESTS_UNIT_SERVER_TABLES_TABLE_SHARD_FIXTURE_H_

// Goal: a failure of the disk is reported to the callers whose rows it lost,
// and only to them; memory is given back when it is free. Method: one table
// with room for few rows, and a cold store that fails when told to.

#include "server/shard/embedding_tables.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/shard/non_finite_log.h"
#include "tests/testing/fakes/memory_cold_store.h"
#include "tests/testing/fakes/payloads.h"
#include "tests/testing/status_matchers.h"

namespace syncline::ps {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kDim = 5;
constexpr uint64_t kFewRows = 60 << 10;
constexpr int64_t kManyRows = 3000;

// A thousand rows of ones; those of `rows` are NaN.
std::shared_ptr<const VectorFloats> OnesBut(const std::set<size_t>& rows) {
  std::vector<float> values(1000 * kDim, 1.0f);
  for (const size_t row : rows) {
    std::fill_n(values.begin() + row * kDim, kDim,
                std::numeric_limits<float>::quiet_NaN());
  }
  return std::make_shared<VectorFloats>(std::move(values));
}

class EmbeddingTablesTest : public ::testing::Test {
 protected:
  void Open(uint64_t memory_bytes, int64_t unseen_clocks = 0) {
    config_.label = "job j on ps:0";
    JobConfig::Table& table = config_.tables.emplace_back(
        JobConfig::Table{{"emb", kDim, *TableMap::Create(256, 1)}, {}, 0});
    table.options.name = "emb";
    table.options.dim = kDim;
    table.options.initializer = {RowInitializer::Scheme::kZeros, 0, 0, "emb"};
    table.options.optimizer.kind = OptimizerKind::kSgd;
    table.options.memory_bytes = memory_bytes;
    table.options.expiry.unseen_clocks = unseen_clocks;
    auto cold = std::make_unique<MemoryColdStore>(
        TableShard::SpilledRowBytes(table.options));
    cold_ = cold.get();
    EmbeddingTables::ColdStores stores;
    stores.push_back(std::move(cold));
    auto tables = EmbeddingTables::Create(config_, 1, std::move(stores), {});
    ASSERT_OK(tables.status());
    tables_ = *std::move(tables);
  }

  // Keys from `first` on.
  CallRowSpan Rows(uint32_t rank, int64_t first, int64_t count,
                   std::shared_ptr<const FloatSource> values) const {
    auto call = std::make_shared<CallRows>();
    std::vector<int64_t>& keys = call->lists.emplace_back().keys;
    for (int64_t key = first; key < first + count; ++key) keys.push_back(key);
    const TableMap& map = config_.tables[0].layout.map;
    std::sort(keys.begin(), keys.end(),
              [&](int64_t a, int64_t b) { return map.Before(a, b); });
    call->values = std::move(values);
    CallRowSpan range;
    range.rank = rank;
    range.call = call;
    range.list = call->lists.data();
    range.count = static_cast<uint32_t>(count);
    return range;
  }
  void Push(int64_t first, int64_t count, int64_t clock) {
    tables_->Push(0, {Rows(0, first, count, std::make_shared<OnesFloats>())},
                  {.clock = clock, .learning_rate = 1}, &non_finite_);
  }
  absl::Status AcceptsPushes() const {
    return tables_->AcceptsPushes(std::vector<RowList>(1));
  }
  absl::StatusOr<size_t> ScannedRows(int64_t clock) {
    size_t rows = 0;
    std::string cursor;
    do {
      const auto scanned = tables_->Scan(0, cursor, clock);
      if (!scanned.ok()) return scanned.status();
      rows += scanned->keys.size();
      cursor = scanned->next_cursor;
    } while (!cursor.empty());
    return rows;
  }

  JobConfig config_;
  NonFiniteLog non_finite_{
      OnNonFinite::kFailJob, {"worker:0", "worker:1"}, "a test"};
  MemoryColdStore* cold_ = nullptr;  // the table's
  std::unique_ptr<EmbeddingTables> tables_;
};

// Otherwise no call would report a loss in the last clock.
TEST_F(EmbeddingTablesTest, RowsThatWereLostFailPushesAndScans) {
  Open(kFewRows);
  Push(0, kManyRows, 0);
  EXPECT_OK(AcceptsPushes());
  ASSERT_OK_AND_ASSIGN(const size_t rows, ScannedRows(0));
  EXPECT_EQ(rows, size_t{kManyRows});
  cold_->get_error = absl::DataLossError("block checksum mismatch");
  Push(0, kManyRows, 1);
  cold_->get_error = absl::OkStatus();
  for (const absl::Status& status :
       {AcceptsPushes(), ScannedRows(1).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("job j on ps:0: table 'emb': block checksum"));
  }
}

TEST_F(EmbeddingTablesTest, RowsThatAreNotFiniteAreCountedForWhoSentThem) {
  Open(1 << 20);
  NonFiniteLog log(OnNonFinite::kDropBlock, {"worker:0", "worker:1"}, "a test");
  const CallRowSpan first = Rows(0, 0, 1000, OnesBut({0, 17, 999}));
  const CallRowSpan second = Rows(1, 500, 1000, OnesBut({3, 4}));
  tables_->Push(0, {first, second}, {.clock = 0, .learning_rate = 1}, &log);
  EXPECT_EQ(log.CountOf(0), 3u);
  EXPECT_EQ(log.CountOf(1), 2u);
  tables_->Push(0, {first, second}, {.clock = 1, .learning_rate = 1},
                &non_finite_);
  const int64_t key =
      std::min(first.keys()[0], second.keys()[3], [&](int64_t a, int64_t b) {
        return config_.tables[0].layout.map.Before(a, b);
      });
  EXPECT_THAT(std::string(non_finite_.failure().message()),
              HasSubstr(absl::StrCat("clock 1 is not finite: key ", key,
                                     " of table 'emb'")));
}

TEST_F(EmbeddingTablesTest, AnUpkeepThatFailsLosesNothing) {
  Open(kFewRows, /*unseen_clocks=*/5);
  Push(0, kManyRows, 0);
  const auto maintain = [&] {
    for (int i = 0; i < 200; ++i) {
      tables_->Maintain(0, 100, absl::UnixEpoch() + absl::Seconds(i));
    }
  };
  cold_->get_error = cold_->put_error = absl::UnavailableError("no disk");
  maintain();
  EXPECT_OK(AcceptsPushes());
  cold_->get_error = cold_->put_error = absl::OkStatus();
  EXPECT_OK(ScannedRows(100).status());
  maintain();
  EXPECT_EQ(tables_->Status()[0].rows_in_memory(), 0u);
  EXPECT_EQ(tables_->Status()[0].rows_on_disk(), 0u);
  EXPECT_EQ(tables_->Status()[0].expired_by_age(), uint64_t{kManyRows});
}

// Asks for all of the budget when it ends.
class AskingColdStore : public MemoryColdStore {
 public:
  AskingColdStore(TableBudget* budget, absl::Status* answer)
      : MemoryColdStore(1), budget_(budget), answer_(answer) {}
  ~AskingColdStore() override {
    *answer_ = budget_->Reserve({{0, 0}}).status();
  }

 private:
  TableBudget* const budget_;
  absl::Status* const answer_;
};

TEST_F(EmbeddingTablesTest, BytesAreGivenBackWhenTheTablesAreGone) {
  Open(kFewRows);
  const auto budget = std::make_shared<TableBudget>(4 << 20, 0);
  auto reserved = budget->Reserve({{0, 0}});
  ASSERT_OK(reserved.status());
  absl::Status while_there;
  EmbeddingTables::ColdStores stores;
  stores.push_back(
      std::make_unique<AskingColdStore>(budget.get(), &while_there));
  auto tables = EmbeddingTables::Create(config_, 1, std::move(stores),
                                        *std::move(reserved));
  ASSERT_OK(tables.status());
  tables->reset();
  EXPECT_EQ(while_there.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_OK(budget->Reserve({{4 << 20, 0}}).status());
}

}  // namespace
}  // namespace syncline::ps

// Goal: a table of eight times its memory stays within it: the process's
// resident memory is at most the budget and a tenth, on top of what a ps takes
// without rows; and no row is lost or wrong.
// Method: the real syncline-ps, a raw client, keys with Zipf's frequencies,
// resident memory sampled throughout, rows compared with the same updates done
// here.

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/row_initializer.h"
#include "kernels/row_optimizer.h"
#include "scheduler/ctl/criteo_generator.h"
#include "tests/testing/eventually.h"
#include "tests/testing/ps_processes.h"
#include "tests/testing/row_client.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

constexpr uint32_t kDim = 16;
constexpr uint64_t kBudget = 16 << 20;
// Key, values and the optimizer's sum: eight times the budget.
constexpr uint64_t kRows = 8 * kBudget / (8 + 4 * kDim + 4);
constexpr size_t kBatchRows = 8192;
constexpr int kInFlight = 4;
// Code, gRPC's buffers, messages on their way, RocksDB beside its caches: what
// a ps takes that holds no row. Measured: 40 to 60 MiB.
constexpr uint64_t kBase = 80 << 20;

int64_t KeyOf(uint64_t index) { return static_cast<int64_t>(Mix64(index)); }

PsProcesses::Options OnePs(const TempDir& spill) {
  JobSpec spec;
  spec.mutable_optimizer()->set_kind(OptimizerSpec::SGD);
  spec.mutable_learning_rate()->set_base(0.5);
  spec.mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
  TableSpec* table = spec.add_tables();
  table->set_name("emb");
  table->mutable_optimizer()->set_kind(OptimizerSpec::ROW_WISE_ADAGRAD);
  PsProcesses::Options options;
  options.assignment = TableJob(spec, {kDim}, 1, 1);
  options.flags = {absl::StrCat("--table-memory=", kBudget),
                   "--table-disk=4GiB",
                   absl::StrCat("--spill-dir=", spill.path())};
  return options;
}

// The largest resident memory of a process while this lives.
class MemoryWatch {
 public:
  explicit MemoryWatch(const PsProcesses& ps)
      : thread_([this, &ps] {
          while (!stop_) {
            const uint64_t now = ps.MemoryBytes(0, "VmRSS");
            if (now > most_) most_ = now;
            absl::SleepFor(absl::Milliseconds(20));
          }
        }) {}
  ~MemoryWatch() {
    stop_ = true;
    thread_.join();
  }
  uint64_t most() const { return most_; }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> most_{0};
  std::thread thread_;
};

// Pushes gradients of one to batches of keys and counts them.
class Trainer {
 public:
  explicit Trainer(const PsProcesses& ps)
      : client_(ps.address(0), 0,
                *TableMap::Create(TableMap::DefaultSlots(1), 1), 0, kDim),
        gradients_(kBatchRows * kDim, 1.0f),
        pushes_(kRows, 0) {}

  absl::Status Init() { return client_.Init(); }

  absl::Status PushAll() {
    for (uint64_t first = 0; first < kRows; first += kBatchRows) {
      std::vector<int64_t> keys;
      for (uint64_t i = first; i < std::min(kRows, first + kBatchRows); ++i) {
        keys.push_back(KeyOf(i));
        ++pushes_[i];
      }
      const RowBatch batch = client_.MakeBatch(keys);
      const RowBatch* const one = &batch;
      const absl::Status pushed =
          client_.Push({&one, 1}, gradients_, kInFlight);
      if (!pushed.ok()) return pushed;
    }
    return absl::OkStatus();
  }

  absl::Status PushAndPullZipf(int batches) {
    const ZipfDistribution zipf(kRows, 1.05);
    Random random(5);
    std::vector<bool> seen(kRows);
    for (int b = 0; b < batches; ++b) {
      std::vector<uint64_t> drawn;
      for (size_t i = 0; i < kBatchRows; ++i) {
        const uint64_t index = zipf.Draw(&random) % kRows;
        if (!seen[index]) drawn.push_back(index);
        seen[index] = true;
      }
      std::vector<int64_t> keys;
      for (const uint64_t index : drawn) {
        keys.push_back(KeyOf(index));
        ++pushes_[index];
        seen[index] = false;
      }
      const RowBatch batch = client_.MakeBatch(keys);
      const RowBatch* const one = &batch;
      absl::Status done = client_.Push({&one, 1}, gradients_, kInFlight);
      if (done.ok()) done = client_.Pull({&one, 1}, kInFlight, nullptr);
      if (!done.ok()) return done;
    }
    return absl::OkStatus();
  }

  // Every `step`-th row is what its pushes make of it.
  void Verify(uint64_t step) {
    const RowOptimizer optimizer(
        {.kind = OptimizerKind::kRowWiseAdagrad, .epsilon = 1e-10f}, kDim);
    const RowInitializer initial(RowInitializer::Scheme::kUniform, 0.05f, 0,
                                 "emb");
    for (uint64_t index = 0; index < kRows; index += step) {
      std::vector<float> row(kDim + optimizer.state_floats());
      initial.Fill(KeyOf(index), row.data(), kDim);
      optimizer.InitState(row.data() + kDim);
      for (uint32_t i = 0; i < pushes_[index]; ++i) {
        const float* const gradient = gradients_.data();
        float* const values = row.data();
        optimizer.Apply({.learning_rate = 0.5f}, 1, &gradient, &values);
      }
      const int64_t key = KeyOf(index);
      const RowBatch batch = client_.MakeBatch({&key, 1});
      const RowBatch* const one = &batch;
      ASSERT_OK(client_.Pull(
          {&one, 1}, 1,
          [&](absl::Span<const int64_t>, const PayloadView& values) {
            float got[kDim];
            values.CopyTo(0, sizeof(got), got);
            EXPECT_EQ(std::memcmp(got, row.data(), sizeof(got)), 0)
                << "row " << index << " after " << pushes_[index] << " pushes";
          }));
    }
  }

  RowClient& client() { return client_; }

 private:
  RowClient client_;
  const std::vector<float> gradients_;
  std::vector<uint32_t> pushes_;  // by row
};

TEST(TableBudgetTest, ATableOfEightTimesItsMemoryStaysWithinIt) {
  const TempDir spill;
  ASSERT_OK_AND_ASSIGN(const auto ps, PsProcesses::Start(OnePs(spill)));
  const uint64_t before = ps->MemoryBytes(0, "VmRSS");
  Trainer trainer(*ps);
  ASSERT_OK(trainer.Init());
  uint64_t most = 0;
  {
    MemoryWatch watch(*ps);
    ASSERT_OK(trainer.PushAll());
    ASSERT_OK(trainer.PushAndPullZipf(100));
    trainer.Verify(kRows / 500);
    most = watch.most();
  }
  EXPECT_LE(most, kBudget + kBudget / 10 + kBase);

  ShardStatus::Table table;
  EXPECT_TRUE(Eventually(absl::Seconds(30), [&] {
    const auto status = trainer.client().Status();
    if (!status.ok()) return false;
    table = status->jobs(0).tables(0);
    return table.rows_in_memory() + table.rows_on_disk() == kRows;
  })) << table.ShortDebugString();
  EXPECT_LE(table.memory_bytes(), table.memory_limit_bytes());
  EXPECT_GT(table.rows_on_disk(), kRows / 2);
  EXPECT_EQ(table.refused_by_budget(), 0u);
  std::printf(
      "budget %d MiB, base allowed %d MiB; resident: %d MiB at first, %d MiB "
      "at "
      "most; rows: %d in memory, %d on disk; pulled: %d from memory, %d from "
      "disk; refusals: %d\n",
      static_cast<int>(kBudget >> 20), static_cast<int>(kBase >> 20),
      static_cast<int>(before >> 20), static_cast<int>(most >> 20),
      static_cast<int>(table.rows_in_memory()),
      static_cast<int>(table.rows_on_disk()),
      static_cast<int>(table.pulled_from_memory()),
      static_cast<int>(table.pulled_from_disk()),
      static_cast<int>(trainer.client().refusals()));
}

}  // namespace
}  // namespace syncline

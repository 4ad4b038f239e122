// Goal: the rows of tables that a worker pushes with a late gradient are those
// of the late step, changed as the job says by the rows as they are at the open
// clock; then the steps behind it read and push their own. Method: as
// trainer_late_test, with two tables, ids that repeat within a batch, and rows
// that have other values at each clock.

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/assigned_job.h"
#include "tests/testing/fakes/idle_exchange.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "worker/training/trainer.h"

namespace syncline::worker {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int kTables = 2;
constexpr int64_t kBatch = 8;

constexpr char kLateRowsModel[] = R"(
< ir_version: 8, opset_import: ["" : 13] >
late (
  int64[N, 3] bag, int64[N] user, float[ROWS, 2] emb, float[ROWS, 3] who,
  float[2, 1] w, float[3, 1] v
) => (float[N, 1] y)
<int64[1] one = {1}>
{
  items = Gather (emb, bag)
  sum = ReduceSum <keepdims = 0> (items, one)
  a = MatMul (sum, w)
  u = Gather (who, user)
  b = MatMul (u, v)
  y = Add (a, b)
})";

// Without dense parameters.
constexpr char kLateRowsAlone[] = R"(
< ir_version: 8, opset_import: ["" : 13] >
late (
  int64[N, 3] bag, int64[N] user, float[ROWS, 2] emb, float[ROWS, 3] who
) => (float[N, 1] y)
<int64[1] one = {1}>
{
  items = Gather (emb, bag)
  sum = ReduceSum <keepdims = 0> (items, one)
  a = ReduceSum <keepdims = 1> (sum, one)
  u = Gather (who, user)
  b = ReduceSum <keepdims = 1> (u, one)
  y = Add (a, b)
})";

using RowsByKey = std::map<int64_t, std::vector<float>>;

// The value of a row at a clock.
std::vector<float> RowAt(const RowBatch& table, int64_t key, int64_t clock) {
  std::vector<float> row;
  for (int64_t i = 0; i < table.dim(); ++i) {
    row.push_back(0.01f * static_cast<float>(key % 7) +
                  0.05f * static_cast<float>(clock * (i + 1)));
  }
  return row;
}

// The gradients of a step's rows as the trainer handed them over.
struct HandedRows {
  int64_t clock = 0;
  uint64_t samples = 0;
  RowsByKey gradients[kTables];
};

struct RowRead {
  int64_t clock = 0;
  std::vector<int64_t> keys[kTables];
};

// The others have made the clocks below `open` while this rank made clock 0.
class RowsBehindExchange final : public IdleExchange {
 public:
  RowsBehindExchange(const PreparedJob* job, std::vector<HandedRows>* handed,
                     std::vector<RowRead>* reads, int64_t open)
      : job_(*job), handed_(*handed), reads_(*reads), open_(open) {}

  absl::Status Pull(int64_t) override {
    for (size_t i = 0; i < job_.training.parameters.size(); ++i) {
      const auto values = job_.executor->parameter(static_cast<int>(i));
      std::fill(values.begin(), values.end(), 0.5f);
    }
    return absl::OkStatus();
  }
  absl::Status PullRows(int64_t clock, uint64_t,
                        absl::Span<RowBatch* const> rows) override {
    reads_.push_back({.clock = clock});
    for (size_t t = 0; t < rows.size(); ++t) {
      const auto keys = rows[t]->wanted_keys();
      reads_.back().keys[t].assign(keys.begin(), keys.end());
    }
    Fill(clock, rows);
    return absl::OkStatus();
  }
  void BeginStep(const Step& step) override {
    handed_.push_back({.clock = step.clock, .samples = step.sample_count});
    rows_ = step.rows;
  }
  void EndBackward(absl::Span<RowBatch* const> next_rows) override {
    for (size_t t = 0; t < rows_.size(); ++t) {
      const size_t dim = static_cast<size_t>(rows_[t]->dim());
      for (size_t i = 0; i < rows_[t]->keys().size(); ++i) {
        const float* const g = rows_[t]->gradient(i);
        handed_.back().gradients[t][rows_[t]->keys()[i]] = {g, g + dim};
      }
    }
    next_rows_ = next_rows;
  }
  absl::Status Wait() override {
    Fill(handed_.back().clock + 1, next_rows_);
    return absl::OkStatus();
  }
  int64_t open_clock() const override {
    return handed_.empty() ? 0
                           : std::max<int64_t>(open_, handed_.back().clock + 1);
  }
  bool was_left_behind(int64_t clock) const override { return clock == 0; }

 private:
  static void Fill(int64_t clock, absl::Span<RowBatch* const> rows) {
    for (RowBatch* const table : rows) {
      for (const uint32_t i : table->wanted()) {
        const std::vector<float> row = RowAt(*table, table->keys()[i], clock);
        std::copy(row.begin(), row.end(), table->value(i));
      }
    }
  }

  const PreparedJob& job_;
  std::vector<HandedRows>& handed_;
  std::vector<RowRead>& reads_;
  const int64_t open_;
  absl::Span<RowBatch* const> rows_;
  absl::Span<RowBatch* const> next_rows_;
};

class TrainerLateRowsTest : public ::testing::Test {
 protected:
  TrainerLateRowsTest() { WriteSamples(128); }

  void WriteSamples(int count) {
    Random random(11);
    std::string csv;
    for (int i = 0; i < count; ++i) {
      absl::StrAppend(&csv, random.Uniform());
      for (int id = 0; id < 4; ++id) {
        // Some repeat within a sample, most within a batch.
        absl::StrAppend(&csv, ",", random.Below(12) * 1'000'003);
      }
      csv += "\n";
    }
    dir_.Write("train.csv", csv);
  }

  // Trains rank_ of two workers to the end: eight clocks of 8 samples each.
  void Train(const std::string& late, int64_t open = 3,
             const std::string& training = "") {
    JobSpec job = JobFromText(
        R"pb(
          name: "late"
          model {
            path: "model.onnxtxt"
            initialize { pattern: "*" scheme: CONSTANT value: 0.5 }
          }
          data {
            train { csv { path: "train.csv" } }
            feeds { input: "bag" field: "1:4" }
            feeds { input: "user" field: "4" }
            label { field: "0" }
          }
          loss { kind: MEAN_SQUARED_ERROR }
          optimizer { kind: SGD }
          learning_rate { base: 0.1 }
          training { batch_size: 8 epochs: 1 seed: 7 threads: 1 }
          tables { name: "emb" }
          tables { name: "who" }
          resources { workers: 2 }
        )pb",
        absl::StrCat("consistency { mode: SYNC_WITH_BACKUPS needed: 1 ", late,
                     " } training { ", training, " }"));
    if (evaluates_) {
      *job.mutable_data()->mutable_test() = job.data().train();
    }
    if (model_ == kLateRowsAlone) job.mutable_model()->clear_initialize();
    AssignedJob assigned = AssignToOne(job, model_);
    assigned.assignment.add_workers();
    PrepareOptions options;
    options.data_root = dir_.path();
    std::vector<std::string> problems;
    job_ = PrepareJob(assigned.assignment, rank_, model_, options, &problems);
    ASSERT_THAT(problems, IsEmpty());
    handed_.clear();
    reads_.clear();
    JobExchange exchange;
    exchange.parameters = std::make_unique<RowsBehindExchange>(
        job_.get(), &handed_, &reads_, open);
    Trainer::Options trainer;
    trainer.metrics = &metrics_;
    trainer.on_progress = [](const WorkerProgress&) {};
    trainer.on_evaluation = [](const Evaluation&, const StoringProgress&) {};
    trainer_ = std::make_unique<Trainer>(*job_, std::move(exchange), trainer);
    ASSERT_OK(trainer_->Run());
  }
  std::vector<int64_t> Clocks() const {
    std::vector<int64_t> clocks;
    for (const HandedRows& step : handed_) clocks.push_back(step.clock);
    return clocks;
  }
  std::vector<int64_t> ReadClocks() const {
    std::vector<int64_t> clocks;
    for (const RowRead& read : reads_) clocks.push_back(read.clock);
    return clocks;
  }

  std::string model_ = kLateRowsModel;
  uint32_t rank_ = 1;
  bool evaluates_ = false;
  TempDir dir_;
  WorkerMetrics metrics_{nullptr};
  std::vector<HandedRows> handed_;
  std::vector<RowRead> reads_;
  std::unique_ptr<PreparedJob> job_;
  std::unique_ptr<Trainer> trainer_;
};

TEST_F(TrainerLateRowsTest, ScaledRowsArePushedAtTheOpenClock) {
  Train("late: DROP");
  ASSERT_THAT(Clocks(), ElementsAre(0, 3, 4, 5, 6, 7));
  const std::vector<HandedRows> dropped = handed_;
  Train("late: SCALE");
  ASSERT_THAT(Clocks(), ElementsAre(0, 3, 4, 5, 6, 7));
  EXPECT_EQ(handed_[1].samples, static_cast<uint64_t>(kBatch));
  for (int t = 0; t < kTables; ++t) {
    SCOPED_TRACE(t);
    ASSERT_GT(handed_[0].gradients[t].size(), 3u);
    RowsByKey scaled = handed_[0].gradients[t];
    for (auto& [key, row] : scaled) {
      for (float& value : row) value *= 0.25f;
    }
    EXPECT_EQ(handed_[1].gradients[t], scaled) << "three clocks late";
    EXPECT_NE(dropped[1].gradients[t], scaled);
    for (size_t step = 2; step < handed_.size(); ++step) {
      EXPECT_EQ(handed_[step].gradients[t], dropped[step].gradients[t])
          << "of the batch of clock " << handed_[step].clock;
    }
  }
  EXPECT_THAT(ReadClocks(), Not(Contains(3))) << "no value is needed";
  EXPECT_EQ(trainer_->Totals().samples(), 6 * 8u - 8) << "counted once";
}

TEST_F(TrainerLateRowsTest, CompensatedRowsAreReadAgain) {
  // Whole, and in parts whose gradients are added up.
  for (const char* training : {"", "micro_batches: 2"}) {
    SCOPED_TRACE(training);
    Train("late: DROP", 3, training);
    const std::vector<HandedRows> dropped = handed_;
    Train("late: COMPENSATE compensation: 2", 3, training);
    ASSERT_THAT(Clocks(), ElementsAre(0, 3, 4, 5, 6, 7));
    const auto at_3 =
        std::find_if(reads_.begin(), reads_.end(),
                     [](const RowRead& read) { return read.clock == 3; });
    ASSERT_NE(at_3, reads_.end());
    for (int t = 0; t < kTables; ++t) {
      SCOPED_TRACE(t);
      const RowBatch& table = *job_->rows->current()[t];
      const RowsByKey& before = handed_[0].gradients[t];
      const RowsByKey& late = handed_[1].gradients[t];
      ASSERT_EQ(late.size(), before.size());
      ASSERT_EQ(at_3->keys[t].size(), before.size()) << "each key once";
      double largest = 0;
      for (const int64_t key : at_3->keys[t]) {
        ASSERT_EQ(before.count(key), 1u) << key;
        ASSERT_EQ(late.count(key), 1u) << key;
        const std::vector<float> old_row = RowAt(table, key, 0);
        const std::vector<float> new_row = RowAt(table, key, 3);
        for (size_t i = 0; i < old_row.size(); ++i) {
          const double g = before.at(key)[i];
          const double correction =
              2.0 / kBatch * g * g * (new_row[i] - old_row[i]);
          largest = std::max(largest, correction);
          EXPECT_NEAR(late.at(key)[i], g + correction,
                      1e-6 * (1 + std::abs(g) + correction));
        }
      }
      EXPECT_GT(largest, 0.02);
      for (size_t step = 2; step < handed_.size(); ++step) {
        EXPECT_EQ(handed_[step].gradients[t], dropped[step].gradients[t])
            << "of the batch of clock " << handed_[step].clock;
      }
    }
  }
}

// The chief reads rows of other batches for it, too.
TEST_F(TrainerLateRowsTest, AnEvaluationForgetsThem) {
  WriteSamples(64);
  rank_ = 0;
  evaluates_ = true;
  std::vector<std::vector<HandedRows>> handed;
  for (const char* late : {"late: DROP", "late: COMPENSATE"}) {
    SCOPED_TRACE(late);
    Train(late, /*open=*/4, "epochs: 2");
    ASSERT_THAT(Clocks(), ElementsAre(0, 4, 5, 6, 7));
    EXPECT_EQ(trainer_->evaluations().size(), 2u);
    handed.push_back(handed_);
  }
  for (int t = 0; t < kTables; ++t) {
    ASSERT_GT(handed[0][1].gradients[t].size(), 3u);
    for (size_t step = 0; step < handed[0].size(); ++step) {
      EXPECT_EQ(handed[0][step].gradients[t], handed[1][step].gradients[t])
          << "computed anew";
    }
  }
}

TEST_F(TrainerLateRowsTest, AModelOfRowsAlone) {
  model_ = kLateRowsAlone;
  for (const char* late : {"late: SCALE", "late: COMPENSATE"}) {
    SCOPED_TRACE(late);
    Train(late);
    ASSERT_THAT(Clocks(), ElementsAre(0, 3, 4, 5, 6, 7));
    for (int t = 0; t < kTables; ++t) {
      ASSERT_EQ(handed_[1].gradients[t].size(), handed_[0].gradients[t].size());
      EXPECT_NE(handed_[1].gradients[t], handed_[0].gradients[t]);
    }
  }
}

// Behind the last step nothing is read, and there is no batch.
TEST_F(TrainerLateRowsTest, TheLastStepMayBeLate) {
  for (const char* late : {"late: SCALE", "late: COMPENSATE"}) {
    SCOPED_TRACE(late);
    Train(late, /*open=*/7);
    ASSERT_THAT(Clocks(), ElementsAre(0, 7));
    for (int t = 0; t < kTables; ++t) {
      ASSERT_EQ(handed_[1].gradients[t].size(), handed_[0].gradients[t].size());
      EXPECT_NE(handed_[1].gradients[t], handed_[0].gradients[t]);
    }
    EXPECT_EQ(trainer_->Totals().samples(), 8u);
  }
}

}  // namespace
}  // namespace syncline::worker

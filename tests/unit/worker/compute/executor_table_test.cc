// Goal: rows of an embedding table are trained as a dense parameter would be.
// Method: one model whose embedding is a parameter or a table; losses, scores
// and gradients of both, bit for bit.

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/model/model.h"
#include "tests/unit/worker/compute/executor_fixture.h"
#include "worker/compute/executor.h"

namespace syncline::worker {
namespace {

// One model whose embedding is a dense parameter, or a table. `w_e` is read
// three times: twice with the same ids, once under another shape.
constexpr char kEmbeddings[] = R"(<ir_version: 8, opset_import: ["" : 13]>
g (int64[N,3] ids, float[N,2] x, int64[N] user, float[11,4] w_e, float[4,2] w_a)
  => (float[N,2] y)
<int64[1] one = {1}>
{
  a = Gather(w_e, ids)
  weights = Cast <to = 1> (ids)
  column = Unsqueeze(weights, two)
  b = Mul(a, column)
  c = ReduceSum <keepdims = 0> (b, one)
  again = Gather(w_e, ids)
  d = ReduceMean <axes = [1], keepdims = 0> (again)
  u = Unsqueeze(user, one)
  e = Gather(w_e, u)
  f = Squeeze(e, one)
  g1 = Add(c, d)
  g2 = Mul(g1, f)
  h = MatMul(g2, w_a)
  y = Add(h, x)
  two = Constant <value_ints = [2]> ()
})";

class TableTest : public ::testing::Test {
 protected:
  static constexpr int64_t kBatch = 6;
  static constexpr int64_t kPadding = 0;

  // Feeds in the order ids, x, user.
  // `parts`: of a batch, and segments that are recomputed.
  std::unique_ptr<Executor> Create(bool table, int parts = 1,
                                   DType precision = DType::kFloat32,
                                   int64_t usual_batch = kBatch) {
    std::vector<std::string> tables;
    if (table) tables.push_back("w_e");
    auto model = Model::Parse(kEmbeddings, "test", {"w_*"}, tables);
    EXPECT_TRUE(model.ok()) << model.status();
    const Graph& graph = (*model)->graph();
    TrainingGraph training;
    training.feeds = graph.inputs;
    training.loss_output = graph.outputs[0];
    for (const Initializer& initializer : graph.initializers) {
      const Value& value = graph.values[initializer.value];
      if (value.name[0] != 'w' || value.name[1] != '_') continue;
      if (table && value.name == "w_e") {
        TrainingTable found;
        found.value = initializer.value;
        found.name = value.name;
        found.dim = 4;
        for (size_t n = 0; n < graph.nodes.size(); ++n) {
          if (graph.nodes[n].op_type != "Gather") continue;
          found.lookups.push_back(
              {static_cast<int>(n), found.lookups.size() < 2 ? 0 : 2});
        }
        training.tables.push_back(found);
      } else {
        training.parameters.push_back({.value = initializer.value,
                                       .name = value.name,
                                       .dims = value.dims,
                                       .initializer = value.initializer});
      }
    }
    Executor::Options options;
    options.loss.set_kind(LossSpec::SOFTMAX_CROSS_ENTROPY);
    options.batch_size = usual_batch;
    options.batch_max = kBatch;
    options.micro_batches = parts;
    options.recompute_segments = parts;
    options.precision = precision;
    options.eval_batch_size = kBatch;
    auto executor = Executor::Create(*model, training, options);
    EXPECT_TRUE(executor.ok()) << executor.status();
    return *std::move(executor);
  }

  static Batch MakeBatch(int64_t size, uint64_t seed) {
    Random random(seed);
    Batch batch;
    batch.size = size;
    batch.feeds.resize(3);
    batch.int_feeds.resize(3);
    for (int64_t i = 0; i < 3 * size; ++i) {
      batch.int_feeds[0].push_back(static_cast<int64_t>(random.Below(11)));
    }
    for (int64_t i = 0; i < 2 * size; ++i) {
      batch.feeds[1].push_back(static_cast<float>(random.Uniform()));
    }
    for (int64_t i = 0; i < size; ++i) {
      batch.int_feeds[2].push_back(static_cast<int64_t>(random.Below(11)));
      batch.labels.push_back(static_cast<float>(random.Below(2)));
    }
    return batch;
  }

  static std::unique_ptr<RowBatch> MakeRows(bool padded) {
    RowBatch::Options options;
    options.name = "w_e";
    options.dim = 4;
    options.samples_max = kBatch;
    options.lookups = {{.feed = 0, .ids_per_sample = 3},
                       {.feed = 0, .ids_per_sample = 3},
                       {.feed = 2, .ids_per_sample = 1}};
    if (padded) {
      for (auto& lookup : options.lookups) lookup.padding = kPadding;
    }
    options.with_gradients = true;
    return std::make_unique<RowBatch>(options, *TableMap::Create(256, 1));
  }

  static std::vector<float> Seeded(size_t count, uint64_t seed) {
    Random random(seed);
    std::vector<float> values(count);
    for (float& v : values) v = static_cast<float>(random.Uniform() - 0.5);
    return values;
  }
};

// Parts of a batch, and the precision.
class TablePartsTest
    : public TableTest,
      public ::testing::WithParamInterface<std::tuple<int, DType>> {};

TEST_P(TablePartsTest, RowsOfABatchAreTheDenseTablesBitForBit) {
  const auto [parts, precision] = GetParam();
  const auto dense = Create(false, parts, precision);
  const auto sparse = Create(true, parts, precision);
  const auto rows = MakeRows(/*padded=*/false);
  RowBatch* const tables[] = {rows.get()};
  sparse->UseTables(tables);
  const std::vector<float> values = Seeded(44, 1);
  const std::vector<float> a = Seeded(8, 2);
  std::copy(values.begin(), values.end(), dense->parameter(0).begin());
  std::copy(a.begin(), a.end(), dense->parameter(1).begin());
  std::copy(a.begin(), a.end(), sparse->parameter(0).begin());
  for (const int64_t size : {kBatch, int64_t{1}, kBatch, int64_t{4}}) {
    const Batch batch = MakeBatch(size, 7 + size);
    rows->Collect(batch);
    for (size_t i = 0; i < rows->keys().size(); ++i) {
      std::copy_n(values.begin() + 4 * rows->keys()[i], 4, rows->value(i));
    }
    const auto want = dense->TrainStep(batch, 0, Ignore);
    const auto got = sparse->TrainStep(batch, 0, Ignore);
    ASSERT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
    EXPECT_EQ(got->loss_sum, want->loss_sum);
    EXPECT_EQ(sparse->gradient(0), dense->gradient(1));
    std::vector<float> table_gradient(44);
    for (size_t i = 0; i < rows->keys().size(); ++i) {
      std::copy_n(rows->gradient(i), 4,
                  table_gradient.begin() + 4 * rows->keys()[i]);
    }
    EXPECT_EQ(dense->gradient(0), absl::MakeConstSpan(table_gradient));
    const auto want_scores = dense->Evaluate(batch);
    const auto got_scores = sparse->Evaluate(batch);
    ASSERT_TRUE(want_scores.ok() && got_scores.ok());
    EXPECT_EQ(got_scores->scores, want_scores->scores);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Parts, TablePartsTest,
    ::testing::Combine(::testing::Values(1, 4),
                       ::testing::Values(DType::kFloat32, DType::kBfloat16)));

TEST_F(TableTest, TheRowsOfALargerBatchThanUsualHaveRoom) {
  const auto whole = Create(true);
  const auto usually_small =
      Create(true, /*parts=*/1, DType::kFloat32, /*usual_batch=*/1);
  const std::vector<float> values = Seeded(44, 1);
  const std::vector<float> a = Seeded(8, 2);
  const Batch batch = MakeBatch(kBatch, 7);
  std::vector<double> losses;
  std::vector<std::vector<float>> gradients;
  for (const auto& executor : {whole.get(), usually_small.get()}) {
    const auto rows = MakeRows(/*padded=*/false);
    RowBatch* const tables[] = {rows.get()};
    executor->UseTables(tables);
    std::copy(a.begin(), a.end(), executor->parameter(0).begin());
    rows->Collect(batch);
    ASSERT_GT(rows->keys().size(), 7u) << "more than one sample can have";
    for (size_t i = 0; i < rows->keys().size(); ++i) {
      std::copy_n(values.begin() + 4 * rows->keys()[i], 4, rows->value(i));
    }
    const auto step = executor->TrainStep(batch, 0, Ignore);
    ASSERT_TRUE(step.ok()) << step.status();
    losses.push_back(step->loss_sum);
    gradients.emplace_back(rows->gradient(0),
                           rows->gradient(0) + 4 * rows->keys().size());
  }
  EXPECT_NEAR(losses[0], losses[1], 1e-5);
  ASSERT_EQ(gradients[0].size(), gradients[1].size());
  for (size_t i = 0; i < gradients[0].size(); ++i) {
    EXPECT_NEAR(gradients[0][i], gradients[1][i], 1e-5) << i;
  }
}

TEST_F(TableTest, PaddingReadsZerosAndHasNoGradient) {
  const auto dense = Create(false);
  const auto sparse = Create(true);
  const auto rows = MakeRows(/*padded=*/true);
  RowBatch* const tables[] = {rows.get()};
  sparse->UseTables(tables);
  std::vector<float> values = Seeded(44, 1);
  std::fill_n(values.begin(), 4, 0.0f);  // key 0 is the padding
  const std::vector<float> a = Seeded(8, 2);
  std::copy(values.begin(), values.end(), dense->parameter(0).begin());
  std::copy(a.begin(), a.end(), dense->parameter(1).begin());
  std::copy(a.begin(), a.end(), sparse->parameter(0).begin());
  const Batch batch = MakeBatch(kBatch, 3);
  rows->Collect(batch);
  for (size_t i = 0; i < rows->keys().size(); ++i) {
    ASSERT_NE(rows->keys()[i], kPadding);
    std::copy_n(values.begin() + 4 * rows->keys()[i], 4, rows->value(i));
  }
  const auto want = dense->TrainStep(batch, 0, Ignore);
  const auto got = sparse->TrainStep(batch, 0, Ignore);
  ASSERT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
  EXPECT_EQ(got->loss_sum, want->loss_sum);
  EXPECT_EQ(sparse->gradient(0), dense->gradient(1));
}

TEST_F(TableTest, RowsOfAnotherBatchAreRefused) {
  const auto executor = Create(true);
  const Batch batch = MakeBatch(kBatch, 3);
  EXPECT_EQ(executor->TrainStep(batch, 0, Ignore).status().message(),
            "table \"w_e\": its rows are not those of a batch of 6 samples");
  const auto rows = MakeRows(false);
  RowBatch* const tables[] = {rows.get()};
  executor->UseTables(tables);
  rows->Collect(MakeBatch(kBatch - 1, 3));
  EXPECT_EQ(executor->TrainStep(batch, 0, Ignore).status().message(),
            "table \"w_e\": its rows are not those of a batch of 6 samples");
}

TEST_F(TableTest, ARowThatIsNotFiniteIsNamed) {
  const auto executor = Create(true);
  const auto rows = MakeRows(false);
  RowBatch* const tables[] = {rows.get()};
  executor->UseTables(tables);
  const Batch batch = MakeBatch(kBatch, 3);
  rows->Collect(batch);
  for (float& v : executor->parameter(0)) v = 1;
  rows->value(2)[3] = kNan;
  EXPECT_EQ(
      executor->TrainStep(batch, 5, Ignore).status().message(),
      absl::StrCat("step at clock 5: the loss is nan: table \"w_e\" holds "
                   "NaN or infinity in the row of key ",
                   rows->keys()[2]));
}

}  // namespace
}  // namespace syncline::worker

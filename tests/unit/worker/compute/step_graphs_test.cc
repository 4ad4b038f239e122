// Goal: steps that are kept as graphs have the bits of those whose calls are
// queued one by one, whatever changes from step to step; a fault within a graph
// names its operator; and what a device does not keep is run as before. Method:
// the same steps on emulated devices, which run a kept call again with the
// arguments that it had, with streams that do their work at once or late.

#include "worker/compute/step_graphs.h"

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/casts.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/model/model.h"
#include "gmock/gmock.h"
#include "tests/testing/cuda_emulator/cudnn_double.h"
#include "tests/testing/cuda_emulator/emulated_device.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/training_model.h"
#include "tests/unit/worker/compute/device_steps.h"
#include "tests/unit/worker/compute/executor_fixture.h"
#include "worker/compute/executor.h"
#include "worker/compute/local_updater.h"

namespace syncline::worker {
namespace {

using testing::EmulatedDevice;
using testing::MakeTrainingModel;
using testing::TrainingModel;

constexpr auto kLoss = LossSpec::SOFTMAX_CROSS_ENTROPY;

// With a running mean, which is no gradient.
TrainingModel NormalisedLayer() {
  return MakeTrainingModel(
      "(float[N,4] x, float[4,5] w_a, float[5] w_s, float[5] w_b, "
      "float[5] w_running_m, float[5] w_running_v, float[5,3] w_c) "
      "=> (float[N,3] y)",
      "",
      "h = MatMul(x, w_a)\n"
      "n = BatchNormalization(h, w_s, w_b, w_running_m, w_running_v)\n"
      "r = Tanh(n)\n y = MatMul(r, w_c)",
      15);
}

// Gradients that leave in more than one segment.
TrainingModel Wide() {
  return MakeTrainingModel(
      "(float[N,4] x, float[4,700] w_a, float[700] w_b, float[700,400] w_c, "
      "float[400,3] w_d) => (float[N,3] y)",
      "",
      "h = Gemm(x, w_a, w_b)\n r = Tanh(h)\n s = MatMul(r, w_c)\n"
      "y = MatMul(s, w_d)");
}

struct OneStep {
  int64_t size = 6;
  int64_t first_in_step = 0;
  float scale = 0;  // 0: none is used
  uint64_t seed = 9;
};

// Statistics of other workers, which differ from fold to fold.
class Others : public StatisticsExchange {
 public:
  absl::Status Fold(absl::Span<double> values) override {
    ++folds_;
    if (folds_ == fails_at) return absl::UnavailableError("a worker is gone");
    for (double& value : values) value *= 1 + 1.0 / folds_;
    return absl::OkStatus();
  }

  int fails_at = 0;

 private:
  int folds_ = 0;
};

struct Setup {
  DType precision = DType::kFloat32;
  int64_t micro_batches = 1;
  int64_t segments = 1;
  bool scales_loss = false;
  bool folds_statistics = false;
};

// All that steps give, with values that are updated by their gradients on the
// host.
class StepsOnGpu {
 public:
  StepsOnGpu(const TrainingModel& m, const Setup& setup, EmulatedDevice* device,
             bool has_graphs = true)
      : model_(m), data_(m, kLoss, 6), scales_(setup.scales_loss) {
    Executor::Options options;
    options.device = device;
    options.loss.set_kind(kLoss);
    options.batch_size = 6;
    options.batch_max = 13;
    options.eval_batch_size = 6;
    options.micro_batches = setup.micro_batches;
    options.recompute_segments = static_cast<int>(setup.segments);
    options.precision = setup.precision;
    options.scales_loss = setup.scales_loss;
    options.folds_statistics = setup.folds_statistics;
    options.seed = 17;
    device->OfferGraphs(has_graphs);
    auto executor = Executor::Create(m.model, m.training, options);
    EXPECT_OK(executor.status());
    executor_ = *std::move(executor);
    if (setup.folds_statistics) executor_->UseStatistics(&others_);
    Random random(5);
    for (int i = 0; i < count(); ++i) {
      // A variance is not negative.
      const bool is_running = m.training.parameters[i].momentum.has_value();
      for (float& v : executor_->parameter(i)) {
        v = static_cast<float>(random.Uniform() - (is_running ? 0 : 0.3));
      }
    }
  }

  int count() const {
    return static_cast<int>(model_.training.parameters.size());
  }
  Executor& executor() { return *executor_; }
  Others& others() { return others_; }

  absl::StatusOr<Executor::StepResult> Try(const OneStep& made) {
    Batch batch = data_.MakeBatch(made.size, made.seed);
    batch.first_in_step = made.first_in_step;
    if (scales_) executor_->UseLossScale(made.scale);
    ready_.clear();
    return executor_->TrainStep(batch, ++clock_,
                                [&](int i) { ready_.push_back(i); });
  }
  // Everything that the step has given, as numbers.
  std::vector<float> Step(const OneStep& made) {
    const auto result = Try(made);
    EXPECT_OK(result.status());
    if (!result.ok()) return {};
    std::vector<float> all = {static_cast<float>(result->loss_sum),
                              result->overflow.empty() ? 0.0f : 1.0f};
    EXPECT_EQ(ready_.size(), static_cast<size_t>(count()));
    for (int i = 0; i < count(); ++i) {
      const auto gradient = executor_->gradient(i);
      all.insert(all.end(), gradient.begin(), gradient.end());
      if (!result->overflow.empty()) continue;
      if (model_.training.parameters[i].momentum.has_value()) continue;
      for (size_t k = 0; k < gradient.size(); ++k) {
        executor_->parameter(i)[k] -= 0.01f * gradient[k];
      }
    }
    all.insert(all.end(), ready_.begin(), ready_.end());
    return all;
  }
  std::vector<float> Evaluate() {
    const auto result = executor_->Evaluate(data_.MakeBatch(5));
    EXPECT_OK(result.status());
    return {result->scores.begin(), result->scores.end()};
  }

 private:
  const TrainingModel model_;
  const SeededExecutor data_;
  const bool scales_;
  Others others_;
  std::unique_ptr<Executor> executor_;
  std::vector<int> ready_;
  int64_t clock_ = 0;
};

// Numbers by their bits: NaN is NaN.
using Results = std::vector<std::vector<uint32_t>>;

std::vector<uint32_t> BitsOf(const std::vector<float>& numbers) {
  std::vector<uint32_t> bits;
  for (const float number : numbers) {
    bits.push_back(absl::bit_cast<uint32_t>(number));
  }
  return bits;
}

Results ResultsOf(const TrainingModel& m, const Setup& setup,
                  const std::vector<OneStep>& steps, EmulatedDevice* device,
                  bool has_graphs) {
  StepsOnGpu run(m, setup, device, has_graphs);
  Results results;
  for (const OneStep& made : steps) results.push_back(BitsOf(run.Step(made)));
  results.push_back(BitsOf(run.Evaluate()));
  results.push_back(BitsOf(run.Step(steps.back())));
  EXPECT_OK(device->status());
  return results;
}

// The steps, an evaluation and the last step again launch graphs so many times.
void ExpectBitsOfQueuedSteps(const TrainingModel& m, const Setup& setup,
                             const std::vector<OneStep>& steps,
                             int64_t graph_launches) {
  EmulatedDevice queued;
  const Results want = ResultsOf(m, setup, steps, &queued, false);
  EXPECT_EQ(queued.graph_launches(), 0);
  EmulatedDevice kept;
  EXPECT_EQ(ResultsOf(m, setup, steps, &kept, true), want);
  EXPECT_EQ(kept.graph_launches(), graph_launches);
  EXPECT_EQ(kept.launches(), queued.launches());
  EXPECT_EQ(kept.graphs(), 0) << "they go with the executor";
  for (const uint64_t seed : {1, 2, 3}) {
    for (const bool has_graphs : {false, true}) {
      SCOPED_TRACE(absl::StrCat("late, seed ", seed, ", graphs ", has_graphs));
      EmulatedDevice late(seed);
      late.WorkLate();
      EXPECT_EQ(ResultsOf(m, setup, steps, &late, has_graphs), want);
    }
  }
}

// Steps with other batches.
std::vector<OneStep> Batches(int count, int64_t size = 6) {
  std::vector<OneStep> steps;
  for (int i = 0; i < count; ++i) {
    steps.push_back({.size = size,
                     .first_in_step = 7 * i,
                     .scale = 1024,
                     .seed = static_cast<uint64_t>(20 + i)});
  }
  return steps;
}

TEST(StepGraphsTest, APerceptronsStepsAreOneGraphEach) {
  // The first of five is queued, and so is the evaluation.
  ExpectBitsOfQueuedSteps(Mlp(), {}, Batches(4), /*graph_launches=*/4);
}

TEST(StepGraphsTest, AnAttentionBlockIn16BitsWithWhatRunsAgain) {
  ExpectBitsOfQueuedSteps(
      Block(), {.precision = DType::kBfloat16, .segments = 2}, Batches(3), 3);
}

// The mask of a step depends on its clock and on the place of its samples.
TEST(StepGraphsTest, WhatIsRandomIsThatOfTheStep) {
  const std::vector<OneStep> same_batch(4);
  ExpectBitsOfQueuedSteps(Masked(), {}, same_batch, 4);
  ExpectBitsOfQueuedSteps(Masked(), {}, Batches(4), 4);
  EmulatedDevice device;
  StepsOnGpu steps(Masked(), {}, &device);
  std::vector<float> losses;
  for (const OneStep& made : same_batch) losses.push_back(steps.Step(made)[0]);
  EXPECT_NE(losses[2], losses[1]);
  EXPECT_NE(losses[3], losses[2]);
}

TEST(StepGraphsTest, ALossScaleThatChanges) {
  std::vector<OneStep> steps = Batches(7);
  for (size_t i = 0; i < steps.size(); ++i) {
    steps[i].scale = static_cast<float>(256 << i);
  }
  steps[4].scale = std::ldexp(1.0f, 100);  // an overflow
  ExpectBitsOfQueuedSteps(NormalisedLayer(),
                          {.precision = DType::kFloat16, .scales_loss = true},
                          steps, 7);
}

// Batches of different sizes have plans of their own; those that are larger
// than usual are run in parts.
TEST(StepGraphsTest, SizesThatAlternate) {
  std::vector<OneStep> steps;
  for (int round = 0; round < 3; ++round) {
    for (const int64_t size : {6, 4, 13}) {
      steps.push_back({.size = size, .seed = static_cast<uint64_t>(round)});
    }
  }
  // Twice 6, twice 4, and three times 13, in parts of 4, 4 and 5.
  ExpectBitsOfQueuedSteps(Masked(), {}, steps, 2 + 2 + 3 * 3);
}

// A model with a length, steps of which come in three lengths.
Results StepsOfLengths(EmulatedDevice* device, bool has_graphs) {
  device->OfferGraphs(has_graphs);
  const TrainingModel m = MakeTrainingModel(
      "(float[N,sequence,2] x, float[2,5] w_a, float[5,4] w_b) "
      "=> (float[N,sequence,4] y)",
      "float ratio = {0.4}",
      "h = MatMul(x, w_a)\n r = Tanh(h)\n d = Dropout(r, ratio)\n"
      "y = MatMul(d, w_b)",
      13, {"sequence", 7});
  Executor::Options options;
  options.device = device;
  options.loss.set_kind(kLoss);
  options.batch_size = 4;
  options.lengths = {1, 3, 7};
  const auto executor = *Executor::Create(m.model, m.training, options);
  Random random(5);
  for (const int i : {0, 1}) {
    for (float& v : executor->parameter(i)) {
      v = static_cast<float>(random.Uniform() - 0.5);
    }
  }
  Results results;
  for (int clock = 0; clock < 9; ++clock) {
    Batch batch;
    batch.size = 4;
    batch.length = options.lengths[clock % 3];
    batch.label_width = batch.length;
    batch.feeds.resize(1);
    for (int64_t i = 0; i < 4 * batch.length; ++i) {
      batch.labels.push_back(static_cast<float>(random.Below(4)));
      for (int k = 0; k < 2; ++k) {
        batch.feeds[0].push_back(static_cast<float>(random.Uniform()));
      }
    }
    const auto result = executor->TrainStep(batch, clock, Ignore);
    EXPECT_OK(result.status());
    if (!result.ok()) return results;
    results.push_back(BitsOf({static_cast<float>(result->loss_sum)}));
    for (const int i : {0, 1}) {
      const auto gradient = executor->gradient(i);
      results.push_back(BitsOf({gradient.begin(), gradient.end()}));
    }
  }
  EXPECT_OK(device->status());
  return results;
}

TEST(StepGraphsTest, LengthsThatAlternate) {
  EmulatedDevice queued;
  const Results want = StepsOfLengths(&queued, false);
  for (const bool is_late : {false, true}) {
    EmulatedDevice kept;
    if (is_late) kept.WorkLate();
    EXPECT_EQ(StepsOfLengths(&kept, true), want);
    EXPECT_EQ(kept.graph_launches(), 3 * 2);
    EXPECT_EQ(kept.graphs(), 0);
  }
}

using Numbers = std::vector<std::vector<float>>;

// Steps with a table, of whose rows each batch has others, and other numbers:
// losses and gradients. `sizes`: of the batches, 6 at most.
Numbers NumbersWithRows(Device* device, const std::vector<int64_t>& sizes,
                        int64_t parts) {
  constexpr char kText[] = R"(<ir_version: 8, opset_import: ["" : 13]>
g (int64[N,3] ids, float[N,4] x, float[50,4] w_e, float[4,2] w_a)
  => (float[N,2] y)
<int64[1] one = {1}>
{
  a = Gather(w_e, ids)
  b = ReduceSum <keepdims = 0> (a, one)
  c = Add(b, x)
  y = MatMul(c, w_a)
})";
  const auto model = Model::Parse(kText, "test", {"w_*"}, {"w_e"});
  EXPECT_OK(model.status());
  const Graph& graph = (*model)->graph();
  TrainingGraph training;
  training.feeds = graph.inputs;
  training.loss_output = graph.outputs[0];
  for (const Initializer& initializer : graph.initializers) {
    const Value& value = graph.values[initializer.value];
    if (value.name == "w_e") {
      TrainingTable table;
      table.value = initializer.value;
      table.name = value.name;
      table.dim = 4;
      table.lookups.push_back({0, 0});
      training.tables.push_back(table);
    } else if (value.name == "w_a") {
      training.parameters.push_back({.value = initializer.value,
                                     .name = value.name,
                                     .dims = value.dims,
                                     .initializer = value.initializer});
    }
  }
  Executor::Options options;
  options.device = device;
  options.loss.set_kind(kLoss);
  options.batch_size = 6;
  options.micro_batches = parts;
  options.scales_loss = true;
  const auto executor = *Executor::Create(*model, training, options);
  RowBatch::Options of_rows;
  of_rows.name = "w_e";
  of_rows.dim = 4;
  of_rows.samples_max = 6;
  of_rows.lookups = {{.feed = 0, .ids_per_sample = 3}};
  of_rows.with_gradients = true;
  RowBatch rows(of_rows, *TableMap::Create(256, 1));
  RowBatch* const tables[] = {&rows};
  executor->UseTables(tables);
  Random random(5);
  for (float& v : executor->parameter(0)) {
    v = static_cast<float>(random.Uniform() - 0.5);
  }
  Numbers results;
  for (size_t clock = 0; clock < sizes.size(); ++clock) {
    Batch batch;
    batch.size = sizes[clock];
    batch.int_feeds.resize(2);
    batch.feeds.resize(2);
    for (int i = 0; i < 3 * batch.size; ++i) {
      batch.int_feeds[0].push_back(
          static_cast<int64_t>(random.Below(clock == 2 ? 2 : 5 + 9 * clock)));
    }
    for (int i = 0; i < 4 * batch.size; ++i) {
      batch.feeds[1].push_back(static_cast<float>(random.Uniform()));
    }
    for (int i = 0; i < batch.size; ++i) {
      batch.labels.push_back(static_cast<float>(random.Below(2)));
    }
    rows.Collect(batch);
    for (size_t i = 0; i < rows.keys().size(); ++i) {
      for (int k = 0; k < 4; ++k) {
        rows.value(i)[k] = static_cast<float>(random.Uniform() - 0.5);
      }
    }
    executor->UseLossScale(static_cast<float>(64 << clock));
    const auto result =
        executor->TrainStep(batch, static_cast<int64_t>(clock), Ignore);
    EXPECT_OK(result.status());
    if (!result.ok()) return results;
    results.push_back({static_cast<float>(result->loss_sum)});
    const auto gradient = executor->gradient(0);
    results.emplace_back(gradient.begin(), gradient.end());
    for (size_t i = 0; i < rows.keys().size(); ++i) {
      results.emplace_back(rows.gradient(i), rows.gradient(i) + 4);
    }
  }
  return results;
}

Results StepsWithRows(EmulatedDevice* device, bool has_graphs, int64_t parts) {
  device->OfferGraphs(has_graphs);
  Results results;
  for (const auto& numbers :
       NumbersWithRows(device, std::vector<int64_t>(5, 6), parts)) {
    results.push_back(BitsOf(numbers));
  }
  EXPECT_OK(device->status());
  return results;
}

TEST(StepGraphsTest, RowsOfTables) {
  for (const int64_t parts : {1, 2}) {
    EmulatedDevice queued;
    const Results want = StepsWithRows(&queued, false, parts);
    ASSERT_GT(want.size(), 40u);
    for (const uint64_t seed : {0, 1, 2}) {
      EmulatedDevice kept(seed);
      if (seed > 0) kept.WorkLate();
      EXPECT_EQ(StepsWithRows(&kept, true, parts), want);
      EXPECT_EQ(kept.graph_launches(), 4 * parts);
    }
  }
}

// Parts of two sizes are steps of two plans, which add up in one place.
TEST(StepGraphsTest, RowsOfPartsOfTwoSizes) {
  const std::vector<int64_t> sizes = {6, 5, 6, 5, 5, 6, 2};
  for (const int64_t parts : {2, 4}) {
    const Numbers want = NumbersWithRows(&ThisMachine(), sizes, parts);
    ASSERT_GT(want.size(), 40u);
    for (const bool has_graphs : {false, true}) {
      EmulatedDevice device;
      device.OfferGraphs(has_graphs);
      device.WorkLate();
      const Numbers got = NumbersWithRows(&device, sizes, parts);
      EXPECT_OK(device.status());
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_THAT(got[i],
                    ::testing::Pointwise(::testing::FloatNear(1e-4f), want[i]))
            << parts << " parts, array " << i;
      }
    }
  }
}

TEST(StepGraphsTest, BatchesInParts) {
  // The first of three parts overwrites, the second adds, the last is final.
  ExpectBitsOfQueuedSteps(Masked(), {.micro_batches = 3}, Batches(3), 3 * 3);
  ExpectBitsOfQueuedSteps(
      NormalisedLayer(),
      {.precision = DType::kFloat16, .micro_batches = 2, .scales_loss = true},
      Batches(3), 3 * 2);
}

TEST(StepGraphsTest, GradientsLeaveBeforeTheStepEnds) {
  // w_d and w_c are 1 MiB; w_a and w_b follow.
  ExpectBitsOfQueuedSteps(Wide(), {}, Batches(2), 2 * 2);
}

TEST(StepGraphsTest, ConvolutionsOfALibrary) {
  std::vector<Results> results;
  for (const bool has_graphs : {false, true}) {
    EmulatedDevice device;
    device.UseCudnn(testing::MakeCudnnDouble());
    device.WorkLate();
    results.push_back(
        ResultsOf(Convolutions(), {}, Batches(3), &device, has_graphs));
    EXPECT_EQ(device.graph_launches(), has_graphs ? 3 : 0);
  }
  EXPECT_EQ(results[0], results[1]);
}

// The graph is cut around the operator in each direction: before it, between
// forward and backward, and behind it.
TEST(StepGraphsTest, StatisticsOfAllWorkersAreFoldedBetweenGraphs) {
  ExpectBitsOfQueuedSteps(NormalisedLayer(), {.folds_statistics = true},
                          Batches(3), 3 * 3);
  ExpectBitsOfQueuedSteps(NormalisedLayer(),
                          {.micro_batches = 2, .folds_statistics = true},
                          Batches(3), 3 * 2 * 3);
}

TEST(StepGraphsTest, AFoldThatFailsEndsTheStep) {
  for (const int fails_at : {5, 6}) {  // forward and backward of the third step
    std::string said[2];
    for (const bool has_graphs : {false, true}) {
      EmulatedDevice device;
      StepsOnGpu steps(NormalisedLayer(), {.folds_statistics = true}, &device,
                       has_graphs);
      for (const OneStep& made : Batches(2)) steps.Step(made);
      steps.others().fails_at = fails_at;
      const auto result = steps.Try({});
      EXPECT_TRUE(absl::IsUnavailable(result.status())) << result.status();
      said[has_graphs ? 1 : 0] = result.status().ToString();
      EXPECT_FALSE(steps.Step({}).empty()) << "the next step is made";
    }
    EXPECT_EQ(said[0], said[1]);
  }
}

TEST(StepGraphsTest, AStepThatIsRecordedIsQueued) {
  EmulatedDevice device;
  StepsOnGpu steps(Mlp(), {}, &device);
  for (const OneStep& made : Batches(3)) steps.Step(made);
  EXPECT_EQ(device.graph_launches(), 2);
  StepRecorder recorder(1);
  steps.executor().UseRecorder(&recorder);
  steps.Step({});
  EXPECT_EQ(device.graph_launches(), 2);
  steps.executor().UseRecorder(nullptr);
  steps.Step({});
  EXPECT_EQ(device.graph_launches(), 3);
}

TEST(StepGraphsTest, WhatADeviceDoesNotKeepIsQueued) {
  EmulatedDevice plain;
  const Results want = ResultsOf(Mlp(), {}, Batches(4), &plain, false);
  EmulatedDevice refuses;
  refuses.RefuseGraphs(absl::FailedPreconditionError("end a graph: no"));
  EXPECT_EQ(ResultsOf(Mlp(), {}, Batches(4), &refuses, true), want);
  EXPECT_EQ(refuses.graph_launches(), 0);
  EXPECT_EQ(refuses.launches(), plain.launches()) << "nothing ran twice";
}

// Refused once, a step is not tried again.
TEST(StepGraphsTest, OneStepThatIsRefusedLeavesTheOthers) {
  EmulatedDevice device;
  StepsOnGpu steps(Mlp(), {}, &device);
  steps.Step({.size = 6});
  device.RefuseGraphs(absl::FailedPreconditionError("end a graph: no"));
  steps.Step({.size = 6});
  device.RefuseGraphs(absl::OkStatus());
  steps.Step({.size = 6});
  EXPECT_EQ(device.graph_launches(), 0);
  for (int i = 0; i < 3; ++i) steps.Step({.size = 4});
  EXPECT_EQ(device.graph_launches(), 2);
}

TEST(StepGraphsTest, GraphsTakeNoMemoryOfTheArena) {
  EmulatedDevice device;
  StepsOnGpu steps(Masked(), {}, &device);
  steps.Step({});
  const uint64_t free = device.FreeBytes();
  for (int i = 0; i < 5; ++i) steps.Step({});
  EXPECT_EQ(device.FreeBytes(), free);
  EXPECT_EQ(device.graphs(), 1);
}

TEST(StepGraphsTest, BadDataIsNamedAndTheNextStepIsAsEver) {
  EmulatedDevice device;
  StepsOnGpu steps(Masked(), {}, &device);
  for (int i = 0; i < 3; ++i) steps.Step({});
  const float value = steps.executor().parameter(0)[1];
  steps.executor().parameter(0)[1] = kNan;
  const auto result = steps.Try({});
  EXPECT_TRUE(absl::IsFailedPrecondition(result.status())) << result.status();
  EXPECT_THAT(std::string(result.status().message()),
              ::testing::HasSubstr("parameter \"w_a\" is nan"));
  steps.executor().parameter(0)[1] = value;
  const int64_t launches = device.graph_launches();
  EXPECT_FALSE(steps.Step({}).empty());
  EXPECT_EQ(device.graph_launches(), launches + 1);
}

// The part of an error that names what was running.
std::string RanInGraph(const std::string& error) {
  const size_t at = error.find("running: ");
  if (at == std::string::npos) return error;
  const std::string name = error.substr(at + 9);
  return name.substr(0, name.find(": "));
}

// The operators that failures name, one for each launch of the third step.
std::vector<std::string> NamedByFailures(bool has_graphs) {
  std::vector<std::string> named;
  for (int64_t launch = 1;; ++launch) {
    EmulatedDevice device;
    StepsOnGpu steps(Masked(), {}, &device, has_graphs);
    // The evaluation's names come between those of the graph.
    steps.Step({});
    steps.Step({});
    steps.Evaluate();
    device.FailAt(device.launches() + launch);
    const absl::Status status = steps.Try({}).status();
    EXPECT_EQ(device.graph_launches(), has_graphs ? 2 : 0);
    if (status.ok()) break;
    EXPECT_TRUE(absl::IsInternal(status)) << status;
    EXPECT_EQ(device.health().message(), status.message());
    EXPECT_LT(launch, 1000);
    const std::string error(status.message());
    if (absl::StrContains(error, "MarkKernel")) continue;
    const std::string ran = RanInGraph(error);
    if (named.empty() || named.back() != ran) named.push_back(ran);
  }
  return named;
}

TEST(StepGraphsTest, AFailureWithinAGraphNamesItsOperator) {
  const std::vector<std::string> named = NamedByFailures(true);
  EXPECT_EQ(named, NamedByFailures(false));
  EXPECT_THAT(named, ::testing::Contains(
                         "operator 2 of 5, Dropout \"Dropout#1\", forward"));
  EXPECT_THAT(named, ::testing::Contains(
                         "operator 2 of 5, Dropout \"Dropout#1\", backward"));
}

// Hears of gradients, and copies them in a stream of its own.
class Heard : public GradientListener {
 public:
  Heard(StepsOnGpu* steps, EmulatedDevice* device)
      : steps_(*steps), stream_(*device->MakeStream()) {
    steps_.executor().UseGradientListener(this);
  }
  ~Heard() override { steps_.executor().UseGradientListener(nullptr); }

  void OnGradientQueued(int i, const float* values, Event& done) override {
    order.push_back(i);
    stream_->Wait(done);
    this->values.resize(steps_.count());
    this->values[i].resize(steps_.executor().gradient(i).size());
    stream_->CopyToHost(this->values[i].data(), values,
                        this->values[i].size() * sizeof(float));
  }
  void ExpectGradients() {
    ASSERT_OK(stream_->Synchronize());
    for (int i = 0; i < steps_.count(); ++i) {
      EXPECT_EQ(absl::MakeConstSpan(values[i]), steps_.executor().gradient(i));
    }
  }

  std::vector<int> order;
  std::vector<std::vector<float>> values;

 private:
  StepsOnGpu& steps_;
  const std::unique_ptr<Stream> stream_;
};

TEST(StepGraphsTest, AListenerHearsOfEachGradientOnce) {
  EmulatedDevice device;
  device.WorkLate();
  StepsOnGpu steps(Wide(), {}, &device);
  Heard heard(&steps, &device);
  std::vector<int> order;
  for (const OneStep& made : Batches(4)) {
    heard.order.clear();
    steps.Step(made);
    heard.ExpectGradients();
    if (order.empty()) order = heard.order;
    EXPECT_EQ(heard.order, order);
    EXPECT_EQ(heard.order.size(), 4u);
  }
  EXPECT_EQ(device.graph_launches(), 3 * 2);
}

// Values that stay on the device, with an updater whose names come between
// those of the graph.
std::vector<float> LocalSteps(EmulatedDevice* device, bool has_graphs) {
  StepsOnGpu steps(Masked(), {}, device, has_graphs);
  Executor& executor = steps.executor();
  const Executor::OnDevice on = executor.on_device();
  OptimizerParams optimizer;
  optimizer.kind = OptimizerKind::kAdam;
  StepRule rule;
  rule.learning_rate.base = 0.01;
  std::vector<LocalUpdater::Tensor> tensors;
  for (int i = 0; i < steps.count(); ++i) {
    tensors.push_back({.name = absl::StrCat("w", i),
                       .value = executor.parameter(i),
                       .gradient = executor.gradient(i)});
  }
  LocalUpdater updater(
      optimizer, rule, std::move(tensors),
      {.stream = on.stream, .values = on.values, .gradients = on.gradients});
  EXPECT_OK(updater.MakeResident(nullptr));
  executor.KeepOnDevice(true);
  std::vector<float> all;
  for (int round = 0; round < 2; ++round) {
    updater.Begin();
    for (int step = 0; step < 3; ++step) {
      const auto result =
          steps.Try({.seed = static_cast<uint64_t>(10 * round + step)});
      EXPECT_OK(result.status());
      if (result.ok()) all.push_back(static_cast<float>(result->loss_sum));
      EXPECT_OK(updater.Step(round, 6));
    }
    EXPECT_OK(updater.End(18));
    for (int i = 0; i < steps.count(); ++i) {
      const auto change = updater.change(i);
      all.insert(all.end(), change.begin(), change.end());
    }
  }
  return all;
}

TEST(StepGraphsTest, LocalStepsAreOneGraphEach) {
  EmulatedDevice queued;
  const std::vector<float> want = LocalSteps(&queued, false);
  for (const bool is_late : {false, true}) {
    EmulatedDevice kept;
    if (is_late) kept.WorkLate();
    EXPECT_EQ(LocalSteps(&kept, true), want);
    EXPECT_EQ(kept.graph_launches(), 5);
  }
}

// A recorder and a memory by themselves.
class SegmentsTest : public ::testing::Test {
 protected:
  void Write(float value) {
    stream_->CopyToDevice(memory_.data(), &value, sizeof(value));
  }

  EmulatedDevice device_;
  const std::unique_ptr<Stream> stream_ = *device_.MakeStream();
  const DeviceMemory memory_ = *device_.Allocate(sizeof(float));
};

TEST_F(SegmentsTest, EndWhereEnoughIsFinalAndAroundWhatRunsApart) {
  SegmentRecorder recorder(stream_.get(), 100);
  ASSERT_OK(recorder.Begin());
  recorder.AddLoss();
  ASSERT_OK(recorder.AddGradient(4, 60));
  ASSERT_OK(recorder.AddGradient(2, 40));
  ASSERT_OK(recorder.AddGradient(3, 99));
  ASSERT_OK(recorder.AddApart({.position = 7, .is_backward = true}));
  ASSERT_OK(recorder.AddGradient(1, 1));
  const auto segments = recorder.End();
  ASSERT_OK(segments.status());
  ASSERT_EQ(segments->size(), 4u);
  EXPECT_TRUE((*segments)[0].has_loss);
  EXPECT_THAT((*segments)[0].gradients, ::testing::ElementsAre(4, 2));
  EXPECT_FALSE((*segments)[1].has_loss);
  EXPECT_THAT((*segments)[1].gradients, ::testing::ElementsAre(3));
  EXPECT_EQ((*segments)[2].graph, nullptr);
  EXPECT_EQ((*segments)[2].apart.position, 7u);
  EXPECT_THAT((*segments)[3].gradients, ::testing::ElementsAre(1));
  EXPECT_NE((*segments)[3].graph, nullptr);
}

TEST_F(SegmentsTest, WorkThatIsGivenUpIsNotDone) {
  {
    SegmentRecorder recorder(stream_.get(), 100);
    ASSERT_OK(recorder.Begin());
    Write(1);
  }
  device_.RefuseGraphs(absl::FailedPreconditionError("no"));
  {
    SegmentRecorder recorder(stream_.get(), 100);
    ASSERT_OK(recorder.Begin());
    Write(1);
    EXPECT_TRUE(absl::IsFailedPrecondition(recorder.AddGradient(0, 100)));
  }
  float value = 0;
  stream_->CopyToHost(&value, memory_.data(), sizeof(value));
  EXPECT_THAT(std::string(stream_->Synchronize().message()),
              ::testing::HasSubstr("nobody has written"));
}

TEST(KeptStepsTest, AStepIsFoundOnceItWasAskedFor) {
  KeptSteps steps;
  const int a = 0;
  const int b = 0;
  const std::vector<const void*> first = {&a, &b};
  const std::vector<const void*> second = {&a, &a};
  EXPECT_EQ(steps.Find(first, 0), nullptr);
  EXPECT_EQ(steps.Find(second, 0), nullptr);
  EXPECT_EQ(steps.Find(first, 1), nullptr);
  KeptSteps::Step* const step = steps.Find(first, 0);
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->binding, first);
  EXPECT_NE(steps.Find(second, 0), step);
  EXPECT_EQ(steps.Find(first, 0), step);
  // Those that were not asked for lately go.
  for (int choices = 2; choices < 2 + static_cast<int>(KeptSteps::kStepsMax);
       ++choices) {
    EXPECT_EQ(steps.Find(first, choices), nullptr);
  }
  EXPECT_EQ(steps.Find(first, 0), nullptr);
}

}  // namespace
}  // namespace syncline::worker

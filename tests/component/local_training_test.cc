// Goal: in LOCAL each worker makes some steps of its own, and the ps take the
// mean of what the workers have changed as one step of the outer optimizer;
// with one local step and plain SGD that is SYNC. Rounds are cut at the ends of
// epochs, workers without samples make no step, and the job goes on from a
// checkpoint. Method: ps and workers in this process, generated digits. The
// reference is a loop in this file: every worker's steps one after the other
// with an executor of its own, in double, and the mean of the workers.

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/job/job_spec_validator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/assigned_job.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/training_cluster.h"
#include "worker/compute/fans.h"
#include "worker/compute/initializers.h"
#include "worker/job/prepared_job.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr char kModel[] = R"(
<
  ir_version: 8,
  opset_import: ["" : 13]
>
mlp (
  float[N, 28, 28] image,
  float[784, 16] w1, float[16] b1,
  float[16, 10] w2, float[10] b2
) => (float[N, 10] logits)
{
  pixels = Flatten <axis = 1> (image)
  sum1 = Gemm (pixels, w1, b1)
  hidden = Relu (sum1)
  logits = Gemm (hidden, w2, b2)
})";

// With running statistics.
constexpr char kNormalised[] = R"(
<
  ir_version: 8,
  opset_import: ["" : 15]
>
normalised (
  float[N, 28, 28] image,
  float[784, 4] w1, float[4, 10] w2, float[10] b2
) => (float[N, 10] logits)
<
  float[4] scale = {1, 1, 1, 1}, float[4] shift = {0, 0, 0, 0},
  float[4] mean = {0, 0, 0, 0}, float[4] variance = {1, 1, 1, 1}
>
{
  pixels = Flatten <axis = 1> (image)
  sum1 = MatMul (pixels, w1)
  normal = BatchNormalization <momentum = 0.5> (sum1, scale, shift, mean,
                                                variance)
  hidden = Relu (normal)
  logits = Gemm (hidden, w2, b2)
})";

// 280 samples in steps of 2 x 32 or 3 x 32: the last step is a short one, of
// which the last worker has less, or nothing.
JobSpec DigitsSpec(const std::string& edit) {
  return JobFromText(
      R"pb(
        name: "digits"
        model {
          path: "model.onnxtxt"
          initialize { pattern: "w*" scheme: HE_UNIFORM }
          initialize { pattern: "b*" scheme: ZEROS }
        }
        data {
          train { digits { count: 280 seed: 1 } }
          test { digits { count: 100 seed: 2 } }
          feeds { input: "image" field: "image" scale: 0.00392156863 }
          label { field: "label" }
        }
        loss { kind: SOFTMAX_CROSS_ENTROPY }
        metrics: ACCURACY
        optimizer { kind: SGD }
        learning_rate { base: 0.1 }
        training { epochs: 2 batch_size: 32 seed: 7 threads: 1 }
        limits { step_timeout_seconds: 20 }
      )pb",
      edit);
}

std::string Local(int steps, const std::string& outer = "") {
  return absl::StrCat("consistency { mode: LOCAL local { steps: ", steps, " ",
                      outer, " } } ");
}

// The values that LOCAL trains, computed without exchange, ps and its updater.
class ReferenceLoop {
 public:
  // SGD, with momentum or without, of `spec`; the outer optimizer is SGD or
  // NESTEROV.
  ReferenceLoop(const JobSpec& spec, const std::string& model, uint32_t workers)
      : workers_(workers) {
    JobSpec plain = spec;
    plain.clear_consistency();
    const AssignedJob assigned = AssignToOne(plain, model);
    worker::PrepareOptions options;
    options.threads = 1;
    std::vector<std::string> problems;
    job_ =
        worker::PrepareJob(assigned.assignment, 0, model, options, &problems);
    EXPECT_EQ(absl::StrJoin(problems, "\n"), "");
    spec_ = WithDefaults(spec);
    spec_.mutable_optimizer()->set_momentum(
        spec.optimizer().kind() == OptimizerSpec::MOMENTUM ? 0.9f : 0.0f);
    for (size_t i = 0; i < job_->training.parameters.size(); ++i) {
      const auto& parameter = job_->training.parameters[i];
      const absl::Span<float> value = job_->executor->parameter(Int(i));
      if (parameter.rule >= 0) {
        worker::InitializeParameter(
            spec_.model().initialize(parameter.rule),
            worker::FansOf(job_->model->graph(), parameter.value).fans,
            spec_.training().seed(), parameter.name, value);
      }
      at_ps_.emplace_back(value.begin(), value.end());
    }
    velocity_ = ZerosLike(at_ps_);
    inner_velocity_.assign(workers, ZerosLike(at_ps_));
  }

  Weights Train() {
    worker::BatchPlan::Options options;
    options.sample_count = job_->train->size();
    options.batch_size = spec_.training().batch_size();
    options.workers = workers_;
    options.seed = spec_.training().seed();
    const int64_t steps = worker::BatchPlan(options).steps_per_epoch();
    const auto of_round =
        static_cast<int64_t>(spec_.consistency().local().steps());
    int64_t clock = 0;
    for (int64_t epoch = 0; epoch < spec_.training().epochs(); ++epoch) {
      for (int64_t first = 0; first < steps; first += of_round, ++clock) {
        Round(options, epoch, first, std::min(steps, first + of_round), clock);
      }
    }
    clocks_ = clock;
    Weights weights;
    for (size_t i = 0; i < at_ps_.size(); ++i) {
      weights[job_->training.parameters[i].name].assign(at_ps_[i].begin(),
                                                        at_ps_[i].end());
    }
    return weights;
  }

  int64_t clocks() const { return clocks_; }
  double loss() const { return loss_sum_ / samples_; }  // of the first round

 private:
  using State = std::vector<std::vector<double>>;

  static int Int(size_t i) { return static_cast<int>(i); }
  static State ZerosLike(const State& state) {
    State zeros = state;
    for (auto& values : zeros) values.assign(values.size(), 0);
    return zeros;
  }

  void Round(worker::BatchPlan::Options options, int64_t epoch, int64_t begin,
             int64_t end, int64_t clock) {
    State sum = ZerosLike(at_ps_);
    double all_samples = 0;
    for (uint32_t rank = 0; rank < workers_; ++rank) {
      options.rank = rank;
      worker::BatchPlan plan(options);
      State value = at_ps_;
      double samples = 0;
      for (int64_t step = begin; step < end; ++step) {
        worker::Batch batch;
        const auto indices = plan.Indices(epoch, step);
        if (indices.empty()) continue;
        job_->train->Read(indices, &batch);
        Step(batch, clock, &value, &inner_velocity_[rank]);
        samples += static_cast<double>(batch.size);
      }
      for (size_t i = 0; i < value.size(); ++i) {
        for (size_t k = 0; k < value[i].size(); ++k) {
          sum[i][k] += samples * value[i][k];
        }
      }
      all_samples += samples;
    }
    first_round_ = false;
    const LocalSpec& outer = spec_.consistency().local();
    const double mu = outer.optimizer().momentum();
    for (size_t i = 0; i < sum.size(); ++i) {
      const bool is_mean = job_->training.parameters[i].momentum.has_value();
      for (size_t k = 0; k < sum[i].size(); ++k) {
        const double mean = sum[i][k] / all_samples;
        const double gradient = at_ps_[i][k] - mean;
        double& v = velocity_[i][k];
        v = mu * v + gradient;
        const double change =
            outer.optimizer().kind() == OptimizerSpec::NESTEROV
                ? gradient + mu * v
                : v;
        at_ps_[i][k] =
            is_mean ? mean : at_ps_[i][k] - outer.learning_rate() * change;
      }
    }
  }

  void Step(const worker::Batch& batch, int64_t clock, State* value,
            State* velocity) {
    for (size_t i = 0; i < value->size(); ++i) {
      std::copy((*value)[i].begin(), (*value)[i].end(),
                job_->executor->parameter(Int(i)).begin());
    }
    const auto computed = job_->executor->TrainStep(batch, clock, [](int) {});
    ASSERT_OK(computed.status());
    const auto samples = static_cast<double>(batch.size);
    if (first_round_) {
      loss_sum_ += computed->loss_sum;
      samples_ += samples;
    }
    const double rate = spec_.learning_rate().base();
    for (size_t i = 0; i < value->size(); ++i) {
      const auto gradient = job_->executor->gradient(Int(i));
      const auto momentum = job_->training.parameters[i].momentum;
      for (size_t k = 0; k < gradient.size(); ++k) {
        const double mean = gradient[k] / samples;
        double& of = (*value)[i][k];
        if (momentum.has_value()) {
          of = *momentum * of + (1 - *momentum) * mean;
          continue;
        }
        double& v = (*velocity)[i][k];
        v = spec_.optimizer().momentum() * v + mean;
        of -= rate * v;
      }
    }
  }

  const uint32_t workers_;
  JobSpec spec_;
  std::unique_ptr<worker::PreparedJob> job_;
  State at_ps_;
  State velocity_;
  std::vector<State> inner_velocity_;
  int64_t clocks_ = 0;
  bool first_round_ = true;
  double loss_sum_ = 0;
  double samples_ = 0;
};

class LocalTrainingTest : public ::testing::Test {
 protected:
  TrainingCluster::Options OptionsOf(uint32_t workers, uint32_t ps) {
    return {.workers = workers,
            .ps = ps,
            .work_dir = dir_.File(absl::StrCat("c", ++clusters_)),
            .data_root = dir_.path()};
  }
  TrainingCluster::Outcome Train(uint32_t workers, uint32_t ps,
                                 const JobSpec& spec,
                                 const std::string& model = kModel) {
    const auto outcome =
        TrainingCluster(OptionsOf(workers, ps)).RunJob(spec, model);
    EXPECT_OK(outcome.status);
    return outcome;
  }

  TempDir dir_;
  int clusters_ = 0;
};

TEST_F(LocalTrainingTest, OneLocalStepIsSync) {
  for (const char* model : {kModel, kNormalised}) {
    const auto sync = Train(3, 2, DigitsSpec(""), model);
    const auto local = Train(3, 2, DigitsSpec(Local(1)), model);
    EXPECT_EQ(local.last_progress.clocks_total(), 6);
    EXPECT_EQ(local.last_progress.samples(), sync.last_progress.samples());
    EXPECT_LE(LargestDifference(local.weights, sync.weights), 2e-5);
    ASSERT_THAT(local.evaluations, SizeIs(2));
    EXPECT_NEAR(local.evaluations[1].loss(), sync.evaluations[1].loss(), 1e-5);
  }
}

TEST_F(LocalTrainingTest, TheMeanOfTheWorkersIsThatOfTheirOwnSteps) {
  const struct {
    uint32_t workers;
    int steps;
    const char* outer;
    const char* edit;
    const char* model;
  } kCases[] = {
      // Five steps an epoch: a round of three, and one of two.
      {2, 3, "", "", kModel},
      {2, 2, "optimizer { kind: NESTEROV momentum: 0.9 } learning_rate: 0.7",
       "", kModel},
      {2, 2, "optimizer { kind: MOMENTUM } learning_rate: 0.5",
       "optimizer { kind: MOMENTUM } learning_rate { base: 0.02 }", kModel},
      // Two steps; of the second one's 88 samples the last worker has none.
      {3, 2, "", "training { batch_size: 64 }", kModel},
      {2, 3, "optimizer { kind: NESTEROV }", "", kNormalised},
      {1, 16, "learning_rate: 0.5", "", kModel},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(absl::StrCat(c.workers, " workers, ", c.steps, " steps, ",
                              c.outer, " ", c.edit));
    const JobSpec spec =
        DigitsSpec(absl::StrCat(Local(c.steps, c.outer), c.edit));
    ReferenceLoop reference(spec, c.model, c.workers);
    const Weights expected = reference.Train();
    const auto outcome = Train(c.workers, 2, spec, c.model);
    EXPECT_EQ(outcome.last_progress.clocks_total(), reference.clocks());
    EXPECT_EQ(outcome.last_progress.clock(), reference.clocks());
    EXPECT_LE(LargestDifference(outcome.weights, expected), 1e-4);
    ASSERT_THAT(outcome.evaluations, SizeIs(2));
    EXPECT_EQ(outcome.evaluations[1].clock(), reference.clocks());
  }
}

// A round's loss is the mean over the batches of its steps; that of a single
// worker's first round is what the loop has found.
TEST_F(LocalTrainingTest, TheLossOfARoundIsTheMeanOfItsBatches) {
  const JobSpec spec = DigitsSpec(
      absl::StrCat(Local(3), "training { epochs: 1 max_clocks: 1 }"));
  ReferenceLoop reference(spec, kModel, 1);
  reference.Train();
  const auto outcome = Train(1, 1, spec);
  EXPECT_EQ(outcome.last_progress.samples(), 96u);
  // A line with the names, and one: clock, epoch, samples, loss, rate.
  const std::vector<std::string> lines =
      absl::StrSplit(outcome.artifacts.at("history.csv"), '\n');
  ASSERT_GE(lines.size(), 2u);
  const std::vector<std::string> fields = absl::StrSplit(lines[1], ',');
  ASSERT_THAT(fields, SizeIs(5));
  EXPECT_EQ(fields[2], "96");
  double loss = 0;
  ASSERT_TRUE(absl::SimpleAtod(fields[3], &loss)) << lines[1];
  EXPECT_NEAR(loss, reference.loss(), 1e-5);
}

TEST_F(LocalTrainingTest, TheResultDoesNotDependOnTheNumberOfPs) {
  const JobSpec spec = DigitsSpec(
      Local(2, "optimizer { kind: NESTEROV } learning_rate: 0.7") +
      "optimizer { kind: ADAM clip_norm: 0.5 } learning_rate { base: 0.01 "
      "schedule: COSINE } training { micro_batches: 3 epochs: 6 }");
  const auto one = Train(2, 1, spec);
  const auto three = Train(2, 3, spec);
  EXPECT_EQ(one.weights, three.weights) << "bit for bit";
  EXPECT_GT(one.evaluations.back().accuracy(), 0.3) << "chance is 0.1";
}

TEST_F(LocalTrainingTest, ChangesTravelRoundedOrCompressed) {
  const std::string local = Local(3) + "training { epochs: 6 } ";
  const auto whole = Train(2, 2, DigitsSpec(local));
  for (const char* edit :
       {"wire_type: WIRE_BFLOAT16", "wire_type: WIRE_FLOAT16",
        "compression { kind: INT8 }",
        "compression { kind: TOP_K fraction: 0.3 }"}) {
    SCOPED_TRACE(edit);
    const auto less = Train(2, 2, DigitsSpec(local + edit));
    EXPECT_NE(less.weights, whole.weights);
    EXPECT_NEAR(less.evaluations.back().loss(), whole.evaluations.back().loss(),
                0.3);
    EXPECT_LT(less.last_progress.gradient_bytes(),
              less.last_progress.gradient_float32_bytes());
  }
}

// A clock pushes and pulls as many bytes as one of SYNC, and there are
// fewer clocks.
TEST_F(LocalTrainingTest, BytesAreThoseOfTheRounds) {
  const auto sync = Train(2, 2, DigitsSpec(""));
  const auto local = Train(2, 2, DigitsSpec(Local(5)));
  EXPECT_EQ(sync.last_progress.clock(), 10);
  EXPECT_EQ(local.last_progress.clock(), 2);
  EXPECT_EQ(local.last_progress.gradient_bytes() * 5,
            sync.last_progress.gradient_bytes());
}

// The evaluator waits for the end of a round that takes several times as long
// as it waits for workers who say nothing.
TEST_F(LocalTrainingTest, ARoundLongerThanTheStepTimeoutIsWaitedFor) {
  const std::string model =
      absl::StrReplaceAll(kModel, {{"784, 16", "784, 2048"}, {"[16", "[2048"}});
  JobSpec spec = DigitsSpec(Local(1024) +
                            "training { epochs: 1 batch_size: 1 } "
                            "limits { step_timeout_seconds: 1 }");
  spec.mutable_data()->mutable_train()->mutable_digits()->set_count(1000);
  spec.mutable_data()->mutable_test()->mutable_digits()->set_count(10);
  TrainingCluster::Options options = OptionsOf(2, 1);
  options.evaluator = true;
  const auto outcome = TrainingCluster(options).RunJob(spec, model);
  EXPECT_OK(outcome.status);
  EXPECT_EQ(outcome.last_progress.clock(), 1);
  EXPECT_EQ(outcome.last_progress.samples(), 500u);
}

TEST_F(LocalTrainingTest, AJobGoesOnFromACheckpoint) {
  const auto train = [&](JobSpec spec,
                         const std::optional<CheckpointInfo>& from,
                         std::vector<CheckpointInfo>* written) {
    TrainingCluster::Options options = OptionsOf(2, 2);
    if (written != nullptr) {
      spec.mutable_checkpoint()->set_every_clocks(3);
      spec.mutable_checkpoint()->set_directory(
          dir_.File(absl::StrCat("checkpoints", clusters_)));
    }
    options.change_assignment = [&](JobAssignment* assignment) {
      if (!from.has_value()) return;
      *assignment->mutable_start_from() = *from;
      assignment->set_start_clock(from->clock());
    };
    TrainingCluster cluster(options);
    const auto outcome = cluster.RunJob(spec, kModel);
    EXPECT_OK(outcome.status);
    for (const DaemonMessage& message : cluster.Messages(0)) {
      if (written == nullptr || !message.report().has_checkpoint()) continue;
      written->push_back(message.report().checkpoint());
    }
    return outcome;
  };
  // Two epochs of a round of three and one of two: the checkpoint is within the
  // second one. SGD has no state, so that the bits are those of a job that was
  // not interrupted; the outer momentum is in the checkpoint.
  const JobSpec sgd = DigitsSpec(Local(3, "optimizer { kind: NESTEROV }"));
  std::vector<CheckpointInfo> written;
  const auto whole = train(sgd, std::nullopt, &written);
  ASSERT_THAT(written, SizeIs(1));
  EXPECT_EQ(written[0].clock(), 3);
  const auto resumed = train(sgd, written[0], nullptr);
  EXPECT_EQ(resumed.weights, whole.weights) << "bit for bit";
  EXPECT_EQ(resumed.last_progress.clock(), 4);

  // The workers' Adam begins anew, which the log says.
  const JobSpec adam = DigitsSpec(
      Local(3) + "optimizer { kind: ADAM } learning_rate { base: 0.01 }");
  written.clear();
  const auto whole_adam = train(adam, std::nullopt, &written);
  ASSERT_THAT(written, SizeIs(1));
  const auto resumed_adam = train(adam, written[0], nullptr);
  EXPECT_NE(resumed_adam.weights, whole_adam.weights);
  EXPECT_NEAR(resumed_adam.evaluations.back().loss(),
              whole_adam.evaluations.back().loss(), 0.1);
  EXPECT_THAT(resumed_adam.artifacts.at("logs/worker-0.log"),
              HasSubstr("the optimizer's state of local steps begins anew"));
  EXPECT_THAT(resumed.artifacts.at("logs/worker-0.log"),
              ::testing::Not(HasSubstr("begins anew")));
}

TEST_F(LocalTrainingTest, AnEvaluatorReadsWhatTheChiefReads) {
  const JobSpec spec = DigitsSpec(Local(3));
  const auto by_chief = Train(2, 1, spec);
  TrainingCluster::Options options = OptionsOf(2, 1);
  options.evaluator = true;
  const auto by_evaluator = TrainingCluster(options).RunJob(spec, kModel);
  ASSERT_OK(by_evaluator.status);
  ASSERT_THAT(by_evaluator.evaluations, SizeIs(2));
  EXPECT_EQ(by_evaluator.evaluations[1].loss(), by_chief.evaluations[1].loss());
}

TEST_F(LocalTrainingTest, WhatIsNotFiniteEndsTheJobAndIsNamed) {
  const auto outcome =
      TrainingCluster(OptionsOf(2, 1))
          .RunJob(DigitsSpec(Local(4) + "learning_rate { base: 1e30 }"),
                  kModel);
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(outcome.status.message()),
              AllOf(HasSubstr("local step "), HasSubstr(" of 4 at clock 0")));
}

}  // namespace
}  // namespace syncline

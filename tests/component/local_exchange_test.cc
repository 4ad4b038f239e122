// Goal: an exchange without network and without ps trains a job alone: the
// training loop, evaluation and export know only ParameterExchange. Method: the
// same job twice, by a trainer over LocalExchange, and by one worker with a
// real ps in SYNC; parameters, rows and evaluations are equal bit for bit.

#include "tests/testing/fakes/local_exchange.h"

#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "tests/testing/assigned_job.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/training_cluster.h"
#include "worker/job/worker_metrics.h"
#include "worker/training/trainer.h"

namespace syncline {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int kEpochs = 2;

// Three steps an epoch, the last one with fewer samples.
JobSpec EvaluatedDigits() {
  JobSpec spec = DigitsJob();
  spec.mutable_data()->mutable_train()->mutable_digits()->set_count(80);
  spec.mutable_data()->mutable_test()->mutable_digits()->set_count(50);
  spec.mutable_data()->mutable_test()->mutable_digits()->set_seed(2);
  spec.mutable_data()->mutable_label()->set_field("label");
  spec.add_metrics(ACCURACY);
  spec.mutable_training()->set_epochs(kEpochs);
  return spec;
}

// With running statistics.
constexpr char kNormalised[] = R"(
<ir_version: 8, opset_import: ["" : 15]>
normalised (float[N, 784] x, float[784, 4] w1, float[4, 10] w2, float[10] b2)
    => (float[N, 10] logits)
<float[4] scale = {1, 1, 1, 1}, float[4] shift = {0, 0, 0, 0},
 float[4] mean = {0, 0, 0, 0}, float[4] variance = {1, 1, 1, 1}>
{
  sum = MatMul (x, w1)
  normal = BatchNormalization <momentum = 0.5> (sum, scale, shift, mean,
                                                variance)
  logits = Gemm (normal, w2, b2)
})";

constexpr int64_t kVocabulary = 12;

constexpr char kBagModel[] = R"(
<ir_version: 8, opset_import: ["" : 13]>
bag (int64[N, 3] ids, float[12, 2] emb, float[2, 1] w, float[1] b)
    => (float[N, 1] logit)
<int64[1] one = {1}>
{
  items = Gather (emb, ids)
  sum = ReduceSum <keepdims = 0> (items, one)
  logit = Gemm (sum, w, b)
})";

JobSpec BagJob() {
  JobSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(
        name: "bag"
        model {
          path: "bag.onnxtxt"
          initialize { pattern: "w" scheme: CONSTANT value: 0.5 }
          initialize { pattern: "b" scheme: ZEROS }
        }
        data {
          train { csv { path: "train.csv" } }
          test { csv { path: "test.csv" } }
          feeds { input: "ids" field: "1:4" }
          label { field: "0" }
        }
        loss { kind: SIGMOID_CROSS_ENTROPY }
        metrics: AUC
        optimizer { kind: SGD }
        learning_rate { base: 0.3 }
        tables { name: "emb" scheme: XAVIER_UNIFORM }
        training { batch_size: 16 seed: 7 threads: 1 }
      )pb",
      &spec));
  spec.mutable_training()->set_epochs(kEpochs);
  return spec;
}

// Ids repeat within a batch; the last one is never seen.
void WriteBags(const std::string& path, int count, uint64_t seed) {
  Random random(seed);
  std::ofstream file(path);
  for (int i = 0; i < count; ++i) {
    int64_t sum = 0;
    std::string line;
    for (int id = 0; id < 3; ++id) {
      const auto key = static_cast<int64_t>(random.Below(kVocabulary - 1));
      sum += key;
      absl::StrAppend(&line, ",", key);
    }
    file << (sum > 16 ? 1 : 0) << line << "\n";
  }
}

class LocalExchangeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteBags(dir_.File("train.csv"), 50, 1);
    WriteBags(dir_.File("test.csv"), 40, 2);
  }

  struct Trained {
    Weights weights;  // those that are trained, rows too
    std::vector<Evaluation> evaluations;
  };

  // One worker with two ps, SYNC.
  Trained TrainWithPs(const JobSpec& spec, const std::string& model) {
    TrainingCluster cluster({.workers = 1,
                             .ps = 2,
                             .work_dir = dir_.File("cluster"),
                             .data_root = dir_.path()});
    TrainingCluster::Outcome outcome = cluster.RunJob(spec, model);
    EXPECT_EQ(outcome.status, absl::OkStatus());
    return {std::move(outcome.weights), std::move(outcome.evaluations)};
  }

  void Prepare(JobSpec spec, const std::string& model) {
    spec.mutable_resources()->set_workers(1);
    spec.mutable_resources()->set_ps(1);
    worker::PrepareOptions options;
    options.data_root = worker::DataRoot(dir_.path());
    options.work_dir = dir_.path();
    std::vector<std::string> problems;
    job_ = worker::PrepareJob(AssignToOne(spec, model).assignment, /*rank=*/0,
                              model, options, &problems);
    ASSERT_THAT(problems, IsEmpty());
  }

  Trained TrainAlone(const JobSpec& spec, const std::string& model) {
    Trained trained;
    Prepare(spec, model);
    if (HasFatalFailure()) return trained;
    auto exchange = LocalExchange::Create(*job_);
    EXPECT_TRUE(exchange.ok()) << exchange.status();
    if (!exchange.ok()) return trained;
    worker::Trainer::Options options;
    options.metrics = &metrics_;
    options.on_progress = [](const WorkerProgress&) {};
    options.on_evaluation = [](const Evaluation&,
                               const worker::StoringProgress&) {};
    worker::Trainer trainer(
        *job_, {.parameters = *std::move(exchange), .folds = nullptr}, options);
    EXPECT_EQ(trainer.Run(), absl::OkStatus());
    trained.evaluations.assign(trainer.evaluations().begin(),
                               trainer.evaluations().end());
    for (size_t i = 0; i < job_->training.parameters.size(); ++i) {
      const auto values = job_->executor->parameter(static_cast<int>(i));
      trained.weights[job_->training.parameters[i].name].assign(values.begin(),
                                                                values.end());
    }
    for (size_t t = 0; t < job_->training.tables.size(); ++t) {
      const TrainingTable& table = job_->training.tables[t];
      const auto rows = worker::ReadDenseTable(
          table.rows, table.dim, worker::kDenseTableBytesMax,
          trainer.ReaderOf(static_cast<uint32_t>(t)));
      EXPECT_TRUE(rows.ok() && rows->has_value()) << rows.status();
      if (rows.ok() && rows->has_value()) trained.weights[table.name] = **rows;
      EXPECT_EQ(trainer.EndTables(), absl::OkStatus());
    }
    return trained;
  }

  void ExpectTheSame(const JobSpec& spec, const std::string& model) {
    const Trained with_ps = TrainWithPs(spec, model);
    const Trained alone = TrainAlone(spec, model);
    for (const auto& [name, values] : alone.weights) {
      const auto theirs = with_ps.weights.find(name);
      ASSERT_NE(theirs, with_ps.weights.end()) << name;
      EXPECT_EQ(values, theirs->second) << name << ", bit for bit";
    }
    ASSERT_EQ(alone.evaluations.size(), size_t{kEpochs});
    ASSERT_EQ(with_ps.evaluations.size(), size_t{kEpochs});
    for (int e = 0; e < kEpochs; ++e) {
      Evaluation ours = alone.evaluations[e];
      Evaluation theirs = with_ps.evaluations[e];
      ours.clear_time();  // of day
      theirs.clear_time();
      EXPECT_TRUE(MessageDifferencer::Equals(ours, theirs))
          << ours.DebugString() << theirs.DebugString();
    }
    EXPECT_NE(alone.evaluations[0].loss(), alone.evaluations[1].loss())
        << "nothing was trained";
  }

  TempDir dir_;
  worker::WorkerMetrics metrics_{nullptr};
  std::unique_ptr<worker::PreparedJob> job_;
};

TEST_F(LocalExchangeTest, TrainsWhatAPsTrains) {
  for (const char* const optimizer :
       {"kind: SGD weight_decay: 0.01", "kind: ADAM", "kind: ADAGRAD"}) {
    SCOPED_TRACE(optimizer);
    JobSpec spec = EvaluatedDigits();
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
        optimizer, spec.mutable_optimizer()));
    spec.mutable_learning_rate()->set_base(0.01f);
    ExpectTheSame(spec, MlpModel(784, 8, 10));
  }
}

TEST_F(LocalExchangeTest, LearnsWhenARateEndsWithTheJob) {
  JobSpec spec = EvaluatedDigits();
  spec.mutable_learning_rate()->set_schedule(LearningRateSpec::COSINE);
  ExpectTheSame(spec, MlpModel(784, 8, 10));
}

TEST_F(LocalExchangeTest, AveragesRunningStatistics) {
  JobSpec spec = EvaluatedDigits();
  spec.mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
  spec.mutable_learning_rate()->set_base(0.01f);
  ExpectTheSame(spec, kNormalised);
}

TEST_F(LocalExchangeTest, KeepsRowsOfTables) {
  for (const auto kind :
       {OptimizerSpec::SGD, OptimizerSpec::ADAM, OptimizerSpec::ADAGRAD}) {
    SCOPED_TRACE(OptimizerSpec::Kind_Name(kind));
    JobSpec spec = BagJob();
    spec.mutable_optimizer()->set_kind(kind);
    ExpectTheSame(spec, kBagModel);
  }
}

class LaterStartTest : public LocalExchangeTest {
 protected:
  using Values = std::vector<std::vector<float>>;
  struct Run {
    absl::Status status;
    Values values;  // by parameter
    std::vector<int64_t> evaluated_at;
    WorkerProgress totals;
    std::string history;
  };

  // Clocks [start, clocks) of the job, from the state `from`.
  Run Train(int64_t start, uint64_t clocks, const Values& from) {
    JobSpec spec = EvaluatedDigits();
    spec.mutable_training()->set_max_clocks(clocks);
    Prepare(spec, MlpModel(784, 8, 10));
    Run run;
    if (HasFatalFailure()) return run;
    job_->assignment.set_start_clock(start);
    auto exchange = *LocalExchange::Create(*job_);
    if (!from.empty()) exchange->StartFrom(from);
    exchange->OnCut(on_cut_);
    worker::Trainer::Options options;
    options.metrics = &metrics_;
    options.on_progress = [](const WorkerProgress&) {};
    options.on_evaluation = [&](const Evaluation& evaluation,
                                const worker::StoringProgress&) {
      run.evaluated_at.push_back(evaluation.clock());
    };
    worker::Trainer trainer(
        *job_, {.parameters = std::move(exchange), .folds = nullptr}, options);
    run.status = trainer.Run();
    for (size_t i = 0; i < job_->training.parameters.size(); ++i) {
      const auto values = job_->executor->parameter(static_cast<int>(i));
      run.values.emplace_back(values.begin(), values.end());
    }
    run.totals = trainer.Totals();
    run.history = trainer.HistoryCsv();
    return run;
  }

  // Where a cut is taken.
  std::function<absl::StatusOr<int64_t>(int64_t clock)> on_cut_;
};

// Six clocks, epochs end at 3 and 6: within an epoch, and at a border.
TEST_F(LaterStartTest, GoesOnAtAnyClockAsIfItHadNotStopped) {
  const Run whole = Train(0, 6, {});
  ASSERT_EQ(whole.status, absl::OkStatus());
  ASSERT_EQ(whole.evaluated_at, (std::vector<int64_t>{3, 6}));
  for (int64_t start = 1; start < 6; ++start) {
    SCOPED_TRACE(start);
    const Run head = Train(0, static_cast<uint64_t>(start), {});
    ASSERT_EQ(head.status, absl::OkStatus());
    EXPECT_NE(head.values, whole.values);
    const Run tail = Train(start, 6, head.values);
    ASSERT_EQ(tail.status, absl::OkStatus());
    EXPECT_EQ(tail.values, whole.values) << "bit for bit";
    EXPECT_EQ(tail.evaluated_at, start < 3 ? (std::vector<int64_t>{3, 6})
                                           : (std::vector<int64_t>{6}));
    EXPECT_EQ(tail.totals.clock(), 6);
    EXPECT_EQ(head.totals.samples() + tail.totals.samples(),
              whole.totals.samples());
    EXPECT_THAT(tail.history, HasSubstr(absl::StrCat("\n", start + 1, ",")));
    EXPECT_THAT(tail.history, Not(HasSubstr(absl::StrCat("\n", start, ","))));
  }
}

// With the values of the last cut, which are exported.
TEST_F(LaterStartTest, EndsAtOnceAfterTheLastClock) {
  const Run whole = Train(0, 6, {});
  ASSERT_EQ(whole.status, absl::OkStatus());
  const Run run = Train(6, 6, whole.values);
  EXPECT_EQ(run.status, absl::OkStatus());
  EXPECT_EQ(run.values, whole.values);
  EXPECT_EQ(run.evaluated_at, std::vector<int64_t>{6})
      << "the attempt before may have ended without";
  EXPECT_EQ(run.totals.clock(), 6);
  EXPECT_EQ(run.totals.samples(), 0u);
}

TEST_F(LaterStartTest, RefusesToEndWithoutTheValuesOfTheLastClock) {
  on_cut_ = [](int64_t) { return absl::DeadlineExceededError("ps:0 waits"); };
  const Run run = Train(6, 6, {});
  EXPECT_EQ(run.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(run.status.message()),
              AllOf(HasSubstr("job j-0001"), HasSubstr("start_clock is 6"),
                    HasSubstr("ps:0 waits")));
}

TEST_F(LaterStartTest, RefusesAClockThatTheJobDoesNotHave) {
  const Run run = Train(7, 6, {});
  EXPECT_EQ(run.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(run.status.message()),
              AllOf(HasSubstr("start_clock is 7"), HasSubstr("0 to 6"),
                    HasSubstr("of job j-0001")));
  // Refused before that as one that has no regime.
  EXPECT_EQ((worker::Epochs{3, 6}.CheckStart(-1).code()),
            absl::StatusCode::kInvalidArgument);
}

// Epochs end at 3 and 6: the first one's cut is raised.
TEST_F(LaterStartTest, ACutThatIsRaisedIsReadWhereItIs) {
  const Run whole = Train(0, 6, {});
  for (const int64_t raised : {4, 5, 6}) {
    SCOPED_TRACE(raised);
    on_cut_ = [=](int64_t clock) { return clock == 3 ? raised : clock; };
    const Run run = Train(0, 6, {});
    ASSERT_EQ(run.status, absl::OkStatus());
    EXPECT_EQ(run.values, whole.values) << "bit for bit";
    EXPECT_EQ(run.evaluated_at, raised == 6
                                    ? (std::vector<int64_t>{6})
                                    : (std::vector<int64_t>{raised, 6}));
  }
}

TEST_F(LaterStartTest, AnEpochWhoseCutIsNotToBeHadIsNotEvaluated) {
  const Run whole = Train(0, 6, {});
  const absl::Status no = absl::DeadlineExceededError("ps:0 did not agree");
  on_cut_ = [=](int64_t clock) -> absl::StatusOr<int64_t> {
    if (clock == 3) return no;
    return clock;
  };
  const Run run = Train(0, 6, {});
  ASSERT_EQ(run.status, absl::OkStatus());
  EXPECT_EQ(run.values, whole.values) << "bit for bit";
  EXPECT_EQ(run.evaluated_at, (std::vector<int64_t>{6}));
  on_cut_ = [=](int64_t clock) -> absl::StatusOr<int64_t> {
    if (clock == 6) return no;
    return clock;
  };
  EXPECT_EQ(Train(0, 6, {}).status, no) << "the last one is what is exported";
}

TEST_F(LocalExchangeTest, AStopEndsTheJob) {
  JobSpec spec = EvaluatedDigits();
  spec.mutable_training()->set_epochs(1'000'000);
  Prepare(spec, MlpModel(784, 8, 10));
  worker::Trainer* stopped = nullptr;
  worker::Trainer::Options options;
  options.metrics = &metrics_;
  options.on_progress = [](const WorkerProgress&) {};
  options.on_evaluation = [&](const Evaluation&,
                              const worker::StoringProgress&) {
    stopped->Stop();
  };
  worker::Trainer trainer(
      *job_, {.parameters = *LocalExchange::Create(*job_), .folds = nullptr},
      options);
  stopped = &trainer;
  EXPECT_EQ(trainer.Run().code(), absl::StatusCode::kCancelled);
}

TEST_F(LocalExchangeTest, RefusesWhatIsNotBuilt) {
  JobSpec spec = BagJob();
  spec.mutable_optimizer()->set_clip_norm(1);
  Prepare(spec, kBagModel);
  const auto exchange = LocalExchange::Create(*job_);
  EXPECT_EQ(exchange.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(exchange.status().message()), HasSubstr("clip_norm"));
}

// The gradient of `s` is not finite at any step, though the loss is.
constexpr char kSpoilt[] = R"(
<ir_version: 8, opset_import: ["" : 15]>
spoilt (float[N, 784] x, float[784, 10] w, float[10] b)
    => (float[N, 10] logits)
<float[10] s = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0}>
{
  linear = Gemm (x, w, b)
  root = Sqrt (s)
  logits = Add (linear, root)
})";

TEST_F(LocalExchangeTest, AGradientThatIsNotFiniteFailsTheJob) {
  Prepare(EvaluatedDigits(), kSpoilt);
  auto exchange = LocalExchange::Create(*job_);
  ASSERT_TRUE(exchange.ok()) << exchange.status();
  worker::Trainer::Options options;
  options.metrics = &metrics_;
  options.on_progress = [](const WorkerProgress&) {};
  options.on_evaluation = [](const Evaluation&,
                             const worker::StoringProgress&) {};
  worker::Trainer trainer(
      *job_, {.parameters = *std::move(exchange), .folds = nullptr}, options);
  const absl::Status status = trainer.Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("job j-0001"), HasSubstr("clock 0"),
                    HasSubstr("element 0 of 's'")));
}

// Optimizer, clip_norm, policy, and whether gradients are not finite.
using Rule = std::tuple<OptimizerSpec::Kind, float, NonFinitePolicy, bool>;

class UpdateRuleTest : public LocalExchangeTest,
                       public ::testing::WithParamInterface<Rule> {};

TEST_P(UpdateRuleTest, ComputesTheBitsOfAPs) {
  const auto [optimizer, clip_norm, policy, is_spoilt] = GetParam();
  JobSpec spec = EvaluatedDigits();
  spec.mutable_optimizer()->set_kind(optimizer);
  spec.mutable_optimizer()->set_clip_norm(clip_norm);
  spec.set_non_finite(policy);
  spec.mutable_learning_rate()->set_base(0.01f);
  if (!is_spoilt) return ExpectTheSame(spec, MlpModel(784, 8, 10));
  const Trained with_ps = TrainWithPs(spec, kSpoilt);
  const Trained alone = TrainAlone(spec, kSpoilt);
  EXPECT_EQ(alone.weights.at("s"), std::vector<float>(10, 0));
  for (const auto& [name, values] : alone.weights) {
    EXPECT_EQ(values, with_ps.weights.at(name)) << name << ", bit for bit";
  }
  ASSERT_EQ(alone.evaluations.size(), size_t{kEpochs});
  EXPECT_EQ(alone.evaluations[0].loss() == alone.evaluations[1].loss(),
            policy == SKIP_STEP)
      << "a block is left out, or a step";
}

INSTANTIATE_TEST_SUITE_P(
    FiniteGradients, UpdateRuleTest,
    ::testing::Combine(::testing::Values(OptimizerSpec::SGD,
                                         OptimizerSpec::ADAM,
                                         OptimizerSpec::LAMB),
                       ::testing::Values(0.0f, 0.5f),
                       ::testing::Values(FAIL_JOB, DROP_BLOCK, SKIP_STEP),
                       ::testing::Values(false)));
INSTANTIATE_TEST_SUITE_P(
    OthersToo, UpdateRuleTest,
    ::testing::Combine(::testing::Values(OptimizerSpec::SGD,
                                         OptimizerSpec::ADAM,
                                         OptimizerSpec::LAMB),
                       ::testing::Values(0.0f, 0.5f),
                       ::testing::Values(DROP_BLOCK, SKIP_STEP),
                       ::testing::Values(true)));

}  // namespace
}  // namespace syncline

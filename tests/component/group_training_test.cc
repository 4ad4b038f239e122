// Goal: workers of a group reduce their gradients among themselves, and their
// leader pushes the sum as one worker. Groups of one worker are no groups; one
// group of all ends with the bits of none, in each mode; several groups train
// alike, the same way twice; evaluations, an evaluator, checkpoints and an
// attempt that goes on from one are those of a job without groups; a member
// that is lost ends the job and is named. Method: ps and workers in this
// process, real gRPC to the ps and InProcessPeers within a group, generated
// digits. The reference of several groups is a loop in this file: gradients of
// all ranks, one after the other, by one executor, added up by group and then
// over groups.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/update/dense_updater.h"
#include "common/update/update_spec.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/testing/assigned_job.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/training_cluster.h"
#include "worker/compute/fans.h"
#include "worker/compute/initializers.h"
#include "worker/data/dataset.h"
#include "worker/job/prepared_job.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr uint32_t kWorkers = 4;

// The last step of an epoch has fewer samples: some workers have none.
JobSpec Digits(const std::string& edit = "") {
  JobSpec spec = DigitsJob();
  spec.mutable_data()->mutable_train()->mutable_digits()->set_count(297);
  spec.mutable_data()->mutable_test()->mutable_digits()->set_count(50);
  spec.mutable_data()->mutable_test()->mutable_digits()->set_seed(2);
  spec.add_metrics(ACCURACY);
  spec.mutable_training()->set_epochs(2);
  spec.mutable_training()->set_batch_size(16);
  spec.mutable_learning_rate()->set_base(0.05f);
  spec.mutable_limits()->set_step_timeout_seconds(20);
  EXPECT_TRUE(google::protobuf::TextFormat::MergeFromString(edit, &spec))
      << edit;
  return spec;
}

std::string Model() { return MlpModel(784, 32, 10); }

// With running statistics.
constexpr char kNormalised[] = R"(
<ir_version: 8, opset_import: ["" : 15]>
normalised (
  float[N, 28, 28] x, float[784, 4] w1, float[4, 10] w2, float[10] b2
) => (float[N, 10] logits)
<
  float[4] scale = {1, 1, 1, 1}, float[4] shift = {0, 0, 0, 0},
  float[4] mean = {0, 0, 0, 0}, float[4] variance = {1, 1, 1, 1}
>
{
  pixels = Flatten <axis = 1> (x)
  sum1 = MatMul (pixels, w1)
  normal = BatchNormalization <momentum = 0.5> (sum1, scale, shift, mean,
                                                variance)
  hidden = Relu (normal)
  logits = Gemm (hidden, w2, b2)
})";

std::vector<std::string> WithoutTime(std::vector<Evaluation> evaluations) {
  std::vector<std::string> bytes;
  for (Evaluation& evaluation : evaluations) {
    evaluation.clear_time();
    bytes.push_back(evaluation.ShortDebugString());
  }
  return bytes;
}

class Whole final : public FloatSource {
 public:
  explicit Whole(std::vector<float> values) : values_(std::move(values)) {}
  void CopyTo(size_t first, size_t count, float* out) const override {
    std::copy_n(values_.data() + first, count, out);
  }

 private:
  const std::vector<float> values_;
};

// The values that `groups`, of ranks, train in SYNC, without any exchange.
Weights SumsByGroup(const JobSpec& spec,
                    const std::vector<std::vector<uint32_t>>& groups) {
  const AssignedJob assigned = AssignToOne(spec, Model());
  worker::PrepareOptions prepare;
  prepare.threads = 1;
  std::vector<std::string> problems;
  const auto job =
      worker::PrepareJob(assigned.assignment, 0, Model(), prepare, &problems);
  EXPECT_EQ(absl::StrJoin(problems, "\n"), "");
  const JobSpec& full = job->spec();
  const int count = static_cast<int>(job->training.parameters.size());
  std::vector<size_t> counts;
  for (int i = 0; i < count; ++i) {
    counts.push_back(job->executor->parameter(i).size());
  }
  DenseUpdater updater(*ReadUpdate(full, job->regimes), counts);
  DenseUpdater::Scratch scratch;
  for (int i = 0; i < count; ++i) {
    const auto& parameter = job->training.parameters[static_cast<size_t>(i)];
    const absl::Span<float> value = job->executor->parameter(i);
    worker::InitializeParameter(
        full.model().initialize(parameter.rule),
        worker::FansOf(job->model->graph(), parameter.value).fans,
        full.training().seed(), parameter.name, value);
    updater.Init(static_cast<uint32_t>(i), Whole({value.begin(), value.end()}),
                 0);
  }
  worker::BatchPlan::Options options;
  options.sample_count = job->train->size();
  options.batch_size = full.training().batch_size();
  options.workers = kWorkers;
  options.seed = full.training().seed();
  const int64_t steps = worker::BatchPlan(options).steps_per_epoch();
  const int64_t clocks = steps * full.training().epochs();
  for (int64_t clock = 0; clock < clocks; ++clock) {
    uint64_t samples = 0;
    for (uint32_t group = 0; group < groups.size(); ++group) {
      uint64_t of_group = 0;
      std::vector<std::vector<float>> sums(counts.size());
      for (const uint32_t rank : groups[group]) {
        options.rank = rank;
        worker::BatchPlan plan(options);
        const auto indices = plan.Indices(clock / steps, clock % steps);
        if (indices.empty()) continue;
        worker::Batch batch;
        job->train->Read(indices, &batch);
        EXPECT_OK(job->executor->TrainStep(batch, clock, [](int) {}).status());
        of_group += static_cast<uint64_t>(batch.size);
        for (int i = 0; i < count; ++i) {
          const auto gradient = job->executor->gradient(i);
          std::vector<float>& sum = sums[static_cast<size_t>(i)];
          if (sum.empty()) {
            sum.assign(gradient.begin(), gradient.end());
            continue;
          }
          for (size_t k = 0; k < sum.size(); ++k) sum[k] += gradient[k];
        }
      }
      for (uint32_t i = 0; of_group > 0 && i < sums.size(); ++i) {
        updater.BufferGradient(
            i, group, std::make_shared<Whole>(std::move(sums[i])), 0, of_group);
      }
      samples += of_group;
    }
    for (int i = 0; i < count; ++i) {
      const auto block = static_cast<uint32_t>(i);
      updater.Apply(block, clock, samples, /*squared_norm=*/-1, &scratch);
      const auto values = updater.values(block);
      std::copy(values.begin(), values.end(),
                job->executor->parameter(i).begin());
    }
  }
  Weights weights;
  for (int i = 0; i < count; ++i) {
    const auto values = updater.values(static_cast<uint32_t>(i));
    weights[job->training.parameters[static_cast<size_t>(i)].name] = {
        values.begin(), values.end()};
  }
  return weights;
}

class GroupTrainingTest : public ::testing::Test {
 protected:
  TrainingCluster::Options OptionsOf(uint32_t workers) {
    return {.workers = workers,
            .ps = 2,
            .work_dir = dir_.File(absl::StrCat("c", ++clusters_)),
            .data_root = dir_.path()};
  }
  // Ranks are on as many hosts as `hosts` names, one after the other.
  TrainingCluster::Outcome Train(const JobSpec& spec,
                                 const std::string& model = Model(),
                                 std::vector<std::string> hosts = {}) {
    TrainingCluster::Options options = OptionsOf(kWorkers);
    options.change_assignment = [hosts](JobAssignment* assignment) {
      for (int rank = 0; !hosts.empty() && rank < assignment->workers_size();
           ++rank) {
        assignment->mutable_workers(rank)->mutable_member()->set_hostname(
            hosts[static_cast<size_t>(rank) % hosts.size()]);
      }
    };
    return TrainingCluster(options).RunJob(spec, model);
  }
  void ExpectSame(const TrainingCluster::Outcome& a,
                  const TrainingCluster::Outcome& b) {
    ASSERT_OK(a.status);
    ASSERT_OK(b.status);
    EXPECT_TRUE(a.artifacts.at("trained.safetensors") ==
                b.artifacts.at("trained.safetensors"))
        << "other bits; largest difference "
        << LargestDifference(a.weights, b.weights);
    EXPECT_EQ(WithoutTime(a.evaluations), WithoutTime(b.evaluations));
    EXPECT_EQ(a.last_progress.samples(), b.last_progress.samples());
  }

  TempDir dir_;
  int clusters_ = 0;
};

TEST_F(GroupTrainingTest, GroupsOfOneAreNone) {
  const JobSpec spec = Digits("optimizer { kind: ADAM }");
  JobSpec ones = spec;
  ones.mutable_groups()->set_size(1);
  const auto none = Train(spec);
  ExpectSame(Train(ones), none);
  // Each worker on a host of its own.
  JobSpec by_host = spec;
  by_host.mutable_groups()->set_by_host(true);
  ExpectSame(Train(by_host, Model(), {"a", "b", "c", "d"}), none);
}

TEST_F(GroupTrainingTest, OneGroupOfAllHasTheBitsOfNone) {
  for (const char* const edit :
       {"", "optimizer { kind: MOMENTUM clip_norm: 0.5 }",
        "optimizer { kind: LAMB }", "learning_rate { schedule: COSINE }"}) {
    SCOPED_TRACE(edit);
    const JobSpec spec = Digits(edit);
    JobSpec grouped = spec;
    grouped.mutable_groups()->set_size(kWorkers);
    ExpectSame(Train(grouped), Train(spec));
  }
  const JobSpec spec = Digits();
  JobSpec by_host = spec;
  by_host.mutable_groups()->set_by_host(true);
  ExpectSame(Train(by_host, kNormalised, {"a"}), Train(spec, kNormalised));
}

// One group is one worker to the ps, which no mode can make wait.
TEST_F(GroupTrainingTest, OneGroupOfAllHasThemInEachMode) {
  const auto sync = Train(Digits());
  for (const char* const mode :
       {"mode: ASYNC", "mode: BOUNDED_STALENESS staleness_bound: 2"}) {
    SCOPED_TRACE(mode);
    ExpectSame(Train(Digits(absl::StrCat("consistency { ", mode,
                                         " } groups { size: 4 }"))),
               sync);
  }
}

TEST_F(GroupTrainingTest, TwoGroupsOfTwoAddUpByGroup) {
  const auto groups = Train(Digits("groups { size: 2 }"));
  ExpectSame(Train(Digits("groups { size: 2 }")), groups);
  EXPECT_EQ(groups.weights, SumsByGroup(Digits(), {{0, 1}, {2, 3}}))
      << "bit for bit";
  // Ranks 0 and 2 are on one host, 1 and 3 on the other.
  const auto by_host =
      Train(Digits("groups { by_host: true }"), Model(), {"a", "b"});
  ASSERT_OK(by_host.status);
  const auto none = Train(Digits());
  ASSERT_OK(none.status);
  EXPECT_LT(LargestDifference(groups.weights, none.weights), 1e-5);
  EXPECT_EQ(by_host.weights, SumsByGroup(Digits(), {{0, 2}, {1, 3}}));
  EXPECT_EQ(groups.last_progress.samples(), none.last_progress.samples());
}

TEST_F(GroupTrainingTest, GroupsTrainInTheirOwnTime) {
  for (const char* const mode :
       {"mode: ASYNC", "mode: BOUNDED_STALENESS staleness_bound: 1"}) {
    SCOPED_TRACE(mode);
    const auto outcome = Train(
        Digits(absl::StrCat("consistency { ", mode,
                            " } groups { size: 2 } training { epochs: 6 }")));
    ASSERT_OK(outcome.status);
    ASSERT_THAT(outcome.evaluations, SizeIs(6));
    EXPECT_LT(outcome.evaluations.back().loss(),
              0.9 * outcome.evaluations.front().loss());
    EXPECT_EQ(outcome.last_progress.clock(),
              outcome.last_progress.clocks_total());
  }
}

TEST_F(GroupTrainingTest, AnEvaluatorSaysWhatTheChiefSays) {
  const JobSpec spec = Digits("groups { size: 2 }");
  const auto by_chief = Train(spec);
  TrainingCluster::Options options = OptionsOf(kWorkers);
  options.evaluator = true;
  const auto by_evaluator = TrainingCluster(options).RunJob(spec, Model());
  ExpectSame(by_evaluator, by_chief);
}

TEST_F(GroupTrainingTest, AJobGoesOnFromACheckpoint) {
  const auto train = [&](JobSpec spec,
                         const std::optional<CheckpointInfo>& from,
                         std::vector<CheckpointInfo>* written) {
    TrainingCluster::Options options = OptionsOf(kWorkers);
    if (written != nullptr) {
      spec.mutable_checkpoint()->set_every_clocks(3);
      spec.mutable_checkpoint()->set_keep_last(10);
      spec.mutable_checkpoint()->set_directory(
          dir_.File(absl::StrCat("checkpoints", clusters_)));
    }
    options.change_assignment = [&](JobAssignment* assignment) {
      if (!from.has_value()) return;
      *assignment->mutable_start_from() = *from;
      assignment->set_start_clock(from->clock());
    };
    TrainingCluster cluster(options);
    const auto outcome = cluster.RunJob(spec, Model());
    EXPECT_OK(outcome.status);
    for (const DaemonMessage& message : cluster.Messages(0)) {
      if (written == nullptr || !message.report().has_checkpoint()) continue;
      written->push_back(message.report().checkpoint());
    }
    return outcome;
  };
  const JobSpec spec = Digits("optimizer { kind: ADAM } groups { size: 2 }");
  std::vector<CheckpointInfo> written;
  const auto whole = train(spec, std::nullopt, &written);
  ASSERT_FALSE(written.empty());
  EXPECT_EQ(written[0].clock(), 3);
  const auto resumed = train(spec, written[0], nullptr);
  EXPECT_EQ(resumed.weights, whole.weights) << "bit for bit";
  // From the last clock on there is no step.
  const auto last = train(spec, written.back(), nullptr);
  EXPECT_EQ(last.weights, whole.weights);
  // Other groups take its place: all workers are at one clock.
  JobSpec others = spec;
  others.clear_groups();
  ASSERT_OK(train(others, written[0], nullptr).status);

  const JobSpec async =
      Digits("consistency { mode: ASYNC } groups { size: 2 }");
  written.clear();
  train(async, std::nullopt, &written);
  ASSERT_FALSE(written.empty());
  EXPECT_OK(train(async, written[0], nullptr).status);
}

TEST_F(GroupTrainingTest, ALostMemberEndsTheJobAndIsNamed) {
  TrainingCluster cluster(OptionsOf(kWorkers));
  ASSERT_OK(cluster.Prepare(
      Digits("groups { size: 2 } training { epochs: 100000 }"), Model()));
  cluster.Run();
  ASSERT_TRUE(cluster.AwaitClock(3, 2, absl::Seconds(60)));
  SchedulerMessage stop;
  stop.mutable_stop()->set_job_id("t-1");
  stop.mutable_stop()->set_reason("its process ends");
  cluster.Send(3, stop);
  // Its leader, rank 2, hears that the second member of the group has gone.
  absl::Status ended;
  EXPECT_TRUE(Eventually(absl::Seconds(60), [&] {
    for (const DaemonMessage& message : cluster.Messages(2)) {
      if (!message.has_done() || message.done().code() == 0) continue;
      ended = absl::Status(static_cast<absl::StatusCode>(message.done().code()),
                           message.done().message());
    }
    return !ended.ok();
  }));
  EXPECT_TRUE(absl::IsUnavailable(ended)) << ended;
  EXPECT_THAT(ended.message(), AllOf(HasSubstr("job t-1 on rank 0"),
                                     HasSubstr("rank 1 (worker:1")));
  ASSERT_OK(cluster.Stop(absl::Seconds(30)));
}

TEST_F(GroupTrainingTest, HostsThatDifferAreRefused) {
  const auto outcome =
      Train(Digits("groups { by_host: true }"), Model(), {"a", "a", "a", "b"});
  EXPECT_THAT(outcome.status.message(),
              AllOf(HasSubstr("groups.by_host"), HasSubstr("a has 3"),
                    HasSubstr("b has 1")))
      << outcome.status;
}

}  // namespace
}  // namespace syncline

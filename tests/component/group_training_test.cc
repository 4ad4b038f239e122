// Goal: workers of a group reduce their gradients among themselves, and their
// leader pushes the sum as one worker. Groups of one worker are no groups; one
// group of all ends with the bits of none, in each mode; several groups train
// alike, the same way twice; evaluations, an evaluator, checkpoints and an
// attempt that goes on from one are those of a job without groups; a member
// that is lost ends the job and is named. Method: ps and workers in this
// process, real gRPC to the ps and InProcessPeers within a group, generated
// digits. The reference of two groups of two has two workers that compute the
// batches of a group as micro-batches.

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/training_cluster.h"

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
  // Two workers with two micro-batches each add up what two members do.
  JobSpec halves = Digits();
  halves.mutable_training()->set_batch_size(32);
  halves.mutable_training()->set_micro_batches(2);
  const auto reference = TrainingCluster(OptionsOf(2)).RunJob(halves, Model());
  ASSERT_OK(reference.status);
  EXPECT_TRUE(groups.artifacts.at("trained.safetensors") ==
              reference.artifacts.at("trained.safetensors"))
      << "other bits; largest difference "
      << LargestDifference(groups.weights, reference.weights);
  // Ranks 0 and 2 are on one host, 1 and 3 on the other.
  const auto by_host =
      Train(Digits("groups { by_host: true }"), Model(), {"a", "b"});
  ASSERT_OK(by_host.status);
  const auto none = Train(Digits());
  ASSERT_OK(none.status);
  EXPECT_LT(LargestDifference(groups.weights, none.weights), 1e-5);
  EXPECT_LT(LargestDifference(by_host.weights, none.weights), 1e-5);
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
    EXPECT_GT(outcome.evaluations.back().accuracy(), 0.6);
    EXPECT_LT(outcome.evaluations.back().loss(),
              outcome.evaluations.front().loss());
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
  const absl::Status status = cluster.AwaitDone(absl::Seconds(60));
  EXPECT_THAT(status.message(), HasSubstr("rank 1"));
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
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

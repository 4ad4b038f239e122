// Goal: a job whose memory is not there is refused with what would fit, the
// memory of one that is prepared is there before its first step, a stop ends
// the taking of memory, and the next attempt has the data of the one before
// unless they have changed. Method: jobs prepared as a worker does; a child
// process whose address space is limited; what /proc says is resident.

#include "worker/job/prepared_job.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/manifest.h"
#include "common/job/checkpoint_trouble.h"
#include "common/system/file.h"
#include "common/system/malloc_policy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/assigned_job.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/process_memory.h"
#include "tests/testing/temp_dir.h"
#include "worker/data/kept_data.h"

namespace syncline::worker {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// With a hidden layer of 4,096: 24.5 MiB of parameters and gradients, and 128
// MiB of activations where a batch is of 4,096.
JobSpec LargeBatches(uint32_t batch_size) {
  JobSpec spec = DigitsJob();
  spec.mutable_data()->mutable_train()->mutable_digits()->set_count(64);
  spec.mutable_training()->set_batch_size(batch_size);
  return spec;
}

struct Preparing {
  std::unique_ptr<PreparedJob> job;
  std::vector<std::string> problems;
};

Preparing Prepare(const JobSpec& spec, int hidden, GoOnCheck go_on = nullptr) {
  const std::string text = MlpModel(784, hidden, 10);
  const AssignedJob assigned = AssignToOne(spec, text);
  PrepareOptions options;
  options.go_on = std::move(go_on);
  Preparing result;
  result.job =
      PrepareJob(assigned.assignment, 0, text, options, &result.problems);
  return result;
}

double ResidentBytes() {
  return static_cast<double>(ProcessMemoryBytes(getpid(), "RssAnon"));
}

// The problems, as a process of its own has them that may take `more_bytes` of
// address space; empty if it died.
std::string ProblemsWithin(uint64_t more_bytes, const JobSpec& spec,
                           int hidden = 4096) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const uint64_t limit = ProcessMemoryBytes(getpid(), "VmSize") + more_bytes;
    const rlimit limits = {limit, limit};
    if (setrlimit(RLIMIT_AS, &limits) != 0) _exit(2);
    const std::string said =
        absl::StrJoin(Prepare(spec, hidden).problems, "\n");
    const bool told = write(ends[1], said.data(), said.size()) ==
                      static_cast<ssize_t>(said.size());
    _exit(told ? 0 : 3);
  }
  close(ends[1]);
  std::string said;
  char piece[512];
  for (ssize_t got; (got = read(ends[0], piece, sizeof(piece))) > 0;) {
    said.append(piece, got);
  }
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
      << "it died: " << status;
  return said;
}

TEST(PreparedJobTest, HasTheRegimesOfItsAssignmentOrIsRefused) {
  const std::string text = MlpModel(784, 4, 10);
  JobSpec spec = LargeBatches(8);
  AssignedJob assigned = AssignToOne(spec, text);
  assigned.assignment.mutable_regimes(0)->set_learning_rate_factor(0.5);
  std::vector<std::string> problems;
  const auto job = PrepareJob(assigned.assignment, 0, text, {}, &problems);
  ASSERT_THAT(problems, ElementsAre());
  EXPECT_EQ(job->regimes.At(0).learning_rate_factor, 0.5);
  assigned.assignment.mutable_regimes(0)->set_group_size(4);
  PrepareJob(assigned.assignment, 0, text, {}, &problems);
  EXPECT_THAT(problems, ElementsAre("job j-0001: regimes[0].group_size: 4, but "
                                    "the job has no groups"));
  problems.clear();
  assigned.assignment.clear_regimes();
  PrepareJob(assigned.assignment, 0, text, {}, &problems);
  EXPECT_THAT(problems, ElementsAre("job j-0001: regimes: the assignment has "
                                    "none"));
}

// A job that says it started from a checkpoint does not train from its initial
// values.
TEST(PreparedJobTest, WithoutPsACheckpointIsLookedAtFirst) {
  const std::string text = MlpModel(784, 4, 10);
  JobSpec spec = LargeBatches(8);
  spec.set_strategy(ALL_REDUCE);
  spec.mutable_resources()->clear_ps();
  AssignedJob assigned = AssignToOne(spec, text);
  assigned.assignment.clear_ps();
  std::vector<std::string> problems;
  PrepareJob(assigned.assignment, 0, text, {}, &problems);
  EXPECT_THAT(problems, ElementsAre());
  problems.clear();
  assigned.assignment.mutable_start_from()->set_path("/checkpoints/7");
  PrepareJob(assigned.assignment, 0, text, {}, &problems);
  EXPECT_THAT(problems, ElementsAre(AllOf(HasSubstr("/checkpoints/7"),
                                          HasSubstr(kUnseenCheckpoint))));
  problems.clear();
  assigned.assignment.clear_start_from();
  assigned.assignment.set_start_clock(7);
  PrepareJob(assigned.assignment, 0, text, {}, &problems);
  EXPECT_THAT(problems, ElementsAre(HasSubstr("start_clock is 7, without a")));
}

// A disk that hangs is not asked for more, nor behind a stop.
TEST(PreparedJobTest, BehindAStopTheCheckpointsDiskIsLeftAlone) {
  const TempDir dir;
  const std::string text = MlpModel(784, 4, 10);
  JobSpec spec = LargeBatches(8);
  spec.set_strategy(ALL_REDUCE);
  spec.mutable_resources()->clear_ps();
  spec.mutable_checkpoint()->set_directory(dir.File("made"));
  AssignedJob assigned = AssignToOne(spec, text);
  JobAssignment& assignment = assigned.assignment;
  assignment.clear_ps();
  assignment.set_attempt(2);
  const std::string folder = dir.File(assignment.job_id());
  assignment.mutable_start_from()->set_path(
      absl::StrCat(folder, "/", CheckpointName{5, 1}.ToString()));
  CheckpointParts parts;
  parts.cut_id = 2;
  parts.clocks = {7};
  parts.shards.resize(1);
  parts.shards[0].set_file(ShardFileName(0, 1));
  parts.shards[0].set_bytes(5);
  const std::string instead =
      absl::StrCat(folder, "/", CheckpointName{7, 2}.ToString());
  ASSERT_TRUE(MakeDirs(instead).ok());
  ASSERT_TRUE(
      WriteManifest(instead, *EncodeManifest(MakeManifest(assignment, parts)))
          .ok());
  bool stopped = false;
  PrepareOptions options;
  options.go_on = [&] {
    return stopped ? absl::CancelledError("stopped") : absl::OkStatus();
  };
  for (stopped = true;; stopped = false) {
    std::vector<std::string> problems;
    const auto job = PrepareJob(assignment, 0, text, options, &problems);
    ASSERT_NE(job, nullptr);
    EXPECT_EQ(job->found.size(), stopped ? 0u : 1u);
    EXPECT_EQ(std::filesystem::exists(dir.File("made")), !stopped);
    EXPECT_THAT(problems,
                Contains(HasSubstr(stopped ? "stopped" : kDeletedCheckpoint)));
    if (!stopped) break;
  }
}

// Else it would say so of each checkpoint, while the job trains.
TEST(PreparedJobTest, AnEvaluatorThatSeesNoCheckpointSaysSoFirst) {
  const std::string text = MlpModel(784, 4, 10);
  JobSpec spec = LargeBatches(8);
  spec.mutable_data()->mutable_test()->mutable_digits()->set_count(8);
  spec.mutable_data()->mutable_test()->mutable_digits()->set_seed(2);
  spec.mutable_evaluate()->set_checkpoints(true);
  spec.mutable_checkpoint()->set_every_clocks(10);
  AssignedJob assigned = AssignToOne(spec, text);
  assigned.assignment.mutable_evaluator()->set_rank(1);
  assigned.assignment.mutable_evaluator()
      ->mutable_member()
      ->mutable_task()
      ->set_type(EVALUATOR);
  assigned.assignment.set_attempt(1);
  CheckpointSpec* const checkpoint =
      assigned.assignment.mutable_spec()->mutable_checkpoint();
  const auto problems = [&] {
    std::vector<std::string> said;
    PrepareJob(assigned.assignment, 1, text, {}, &said);
    return said;
  };
  checkpoint->set_directory("/not-mounted-here/ckpt/acme");
  EXPECT_THAT(problems(),
              ElementsAre(HasSubstr("checkpoint.directory: the evaluator does "
                                    "not see /not-mounted-here,")));
  // One that has trained is not lost for it.
  assigned.assignment.set_attempt(2);
  EXPECT_THAT(problems(), ElementsAre());
  assigned.assignment.set_attempt(1);
  // The others may make it.
  checkpoint->set_directory("/not-there-yet");
  EXPECT_THAT(problems(), ElementsAre());
  checkpoint->set_directory("/tmp/not-there-yet/ckpt/acme");
  EXPECT_THAT(problems(), ElementsAre());
}

TEST(PreparedJobTest, WhatDoesNotFitIsRefusedWithWhatWould) {
  constexpr uint64_t kMore = uint64_t{320} << 20;
  EXPECT_THAT(
      ProblemsWithin(kMore, LargeBatches(16384)),
      AllOf(HasSubstr("model: parameters, gradients and activations "
                      "need "),
            HasSubstr("training.micro_batches: "), HasSubstr(" would fit")));
  EXPECT_EQ(ProblemsWithin(kMore, LargeBatches(32)), "");
}

// Of 13 million elements: 99 MiB of parameters and gradients, and 348 MiB of
// residuals and momentum, each kept twice, and of gradients that stay whole.
TEST(PreparedJobTest, CompressionThatDoesNotFitIsRefused) {
  constexpr uint64_t kMore = uint64_t{448} << 20;
  constexpr int kHidden = 16'384;
  JobSpec spec = LargeBatches(32);
  spec.set_non_finite(SKIP_STEP);
  spec.mutable_optimizer()->set_kind(OptimizerSpec::MOMENTUM);
  spec.mutable_optimizer()->set_momentum(0.9);
  EXPECT_EQ(ProblemsWithin(kMore, spec, kHidden), "");
  spec.mutable_compression()->set_kind(CompressionSpec::DGC);
  EXPECT_THAT(
      ProblemsWithin(kMore, spec, kHidden),
      HasSubstr("compression: residuals and compressed gradients need 348 "
                "MiB, "));
}

TEST(PreparedJobTest, WhatIsPromisedIsResidentBeforeTheFirstStep) {
  // Small pieces come from memory that the process has already.
  Prepare(LargeBatches(4096), 32);
  ReturnFreedMemory();
  const double before = ResidentBytes();
  const Preparing prepared = Prepare(LargeBatches(4096), 4096);
  ASSERT_THAT(prepared.problems, ElementsAre());
  const auto promised =
      static_cast<double>(prepared.job->executor->memory_bytes());
  EXPECT_GT(promised, 150 * kMiB);
  EXPECT_GE(ResidentBytes() - before, 0.98 * promised);
}

// Attempts of one job over a file of numbers, each prepared as it stands then.
class KeptDataOfAttemptsTest : public testing::Test {
 protected:
  void SetUp() override { Write("1,2,3\n4,5,6\n"); }

  void Write(const std::string& text) {
    ASSERT_TRUE(WriteFileAtomically(dir_.File("data.csv"), text).ok());
  }
  // How many bytes of data were read. `problem`: why it is refused.
  size_t PrepareAttempt(const JobSpec& spec, const std::string& model,
                        const std::string& problem = "") {
    const AssignedJob assigned = AssignToOne(spec, model);
    kept_.Begin(assigned.assignment.job_id());
    PrepareOptions options;
    options.kept_data = &kept_;
    size_t read = 0;
    options.on_read = [&](const std::string&, size_t bytes) {
      read += bytes;
      return absl::OkStatus();
    };
    std::vector<std::string> problems;
    job_ = PrepareJob(assigned.assignment, 0, model, options, &problems);
    EXPECT_EQ(absl::StrJoin(problems, "\n"), problem);
    return read;
  }
  JobSpec Job() const {
    JobSpec spec = DigitsJob();
    DataSpec* const data = spec.mutable_data();
    data->mutable_train()->mutable_csv()->set_path(dir_.File("data.csv"));
    data->mutable_feeds(0)->set_field("0:2");
    data->mutable_label()->set_field("2");
    data->clear_test();
    return spec;
  }

  const TempDir dir_;
  KeptData kept_;
  std::unique_ptr<PreparedJob> job_;
};

TEST_F(KeptDataOfAttemptsTest, ANextAttemptReadsOnlyWhatHasChanged) {
  const std::string model = MlpModel(2, 4, 10);
  EXPECT_GT(PrepareAttempt(Job(), model), 0u);
  const std::shared_ptr<const Dataset> first = job_->train;
  const DataFingerprint print = job_->data;

  EXPECT_EQ(PrepareAttempt(Job(), model), 0u);
  EXPECT_EQ(job_->train, first);
  EXPECT_EQ(job_->data.SerializeAsString(), print.SerializeAsString());

  Write("1,2,3\n4,5,6\n7,8,9\n");
  EXPECT_GT(PrepareAttempt(Job(), model), 0u);
  EXPECT_EQ(job_->train->size(), 3);
  EXPECT_EQ(PrepareAttempt(Job(), model), 0u);
}

// A scheduler that has lost its state gives out the same ids again.
TEST_F(KeptDataOfAttemptsTest, AnotherJobOfTheSameIdReadsItsOwn) {
  EXPECT_GT(PrepareAttempt(Job(), MlpModel(2, 4, 10)), 0u);
  JobSpec other = Job();
  other.mutable_data()->mutable_feeds(0)->set_scale(0.5);
  EXPECT_GT(PrepareAttempt(other, MlpModel(2, 4, 10)), 0u);
  Batch batch;
  job_->train->Read({0}, &batch);
  EXPECT_THAT(batch.feeds[0], ElementsAre(0.5f, 1.0f));
  EXPECT_GT(PrepareAttempt(other, MlpModel(2, 5, 10)), 0u) << "another model";
}

constexpr char kBagModel[] = R"(<ir_version: 8, opset_import: ["" : 13]>
bag (int64[N,3] ids, float[8,2] emb, float[2,1] w) => (float[N,1] out) {
  rows = Gather(emb, ids)
  mean = ReduceMean<axes: ints = [1], keepdims: int = 0>(rows)
  out = MatMul(mean, w)
})";

// Padding is 0 unless the job says otherwise, and 0 is an id of most lists.
TEST_F(KeptDataOfAttemptsTest, IdsThatPassForPaddingAreWarnedOf) {
  Write("0|2,1\n3,0\n-8,1\n");
  JobSpec spec = DigitsJob();
  spec.mutable_model()->clear_initialize();
  spec.mutable_model()->add_initialize()->set_pattern("w");
  spec.mutable_model()->mutable_initialize(0)->set_scheme(
      InitializerRule::HE_NORMAL);
  spec.add_tables()->set_name("emb");
  DataSpec* const data = spec.mutable_data();
  CsvSource* const csv = data->mutable_train()->mutable_csv();
  csv->set_path(dir_.File("data.csv"));
  csv->set_list_delimiter("|");
  Feed* const feed = data->mutable_feeds(0);
  feed->Clear();
  feed->set_input("ids");
  feed->set_field("0");
  data->mutable_label()->set_field("1");
  spec.mutable_loss()->set_kind(LossSpec::SIGMOID_CROSS_ENTROPY);
  PrepareAttempt(spec, kBagModel);
  EXPECT_THAT(
      job_->training.warnings,
      ElementsAre("2 ids of data.train are 0, which is data.feeds[0].padding: "
                  "they stand for no row of table 'emb' and train none. If "
                  "that is an id like the others, set data.feeds[0].padding to "
                  "a number that is none"));
  feed->set_padding(7);
  PrepareAttempt(spec, kBagModel);
  EXPECT_THAT(job_->training.warnings, ElementsAre());
}

constexpr char kNormalisedModel[] = R"(
<ir_version: 8, opset_import: ["" : 15]>
normalised (float[N,784] x, float[784,10] w) => (float[N,10] y)
<float[10] s = {1,1,1,1,1,1,1,1,1,1}, float[10] b = {0,0,0,0,0,0,0,0,0,0},
 float[10] m = {0,0,0,0,0,0,0,0,0,0}, float[10] v = {1,1,1,1,1,1,1,1,1,1}>
{
  h = MatMul (x, w)
  y = BatchNormalization (h, s, b, m, v)
})";

TEST(PreparedJobTest, ALastBatchOfOneSampleIsWarnedOf) {
  const auto warnings = [](int64_t samples, uint32_t batch, uint32_t parts,
                           bool folds = false) {
    JobSpec spec = LargeBatches(batch);
    spec.mutable_data()->mutable_train()->mutable_digits()->set_count(samples);
    spec.mutable_training()->set_micro_batches(parts);
    spec.mutable_training()->set_sync_batch_statistics(folds);
    const AssignedJob assigned = AssignToOne(spec, kNormalisedModel);
    std::vector<std::string> problems;
    const auto job =
        PrepareJob(assigned.assignment, 0, kNormalisedModel, {}, &problems);
    EXPECT_THAT(problems, IsEmpty());
    if (job == nullptr) return std::vector<std::string>();
    return job->training.warnings;
  };
  EXPECT_THAT(warnings(22, 7, 1),
              Contains(AllOf(HasSubstr("data.train has 22 samples"),
                             HasSubstr("BatchNormalization"),
                             HasSubstr("by the running statistics"))));
  EXPECT_THAT(warnings(27, 8, 2),
              Contains(HasSubstr("in a part of its batch")));
  EXPECT_THAT(warnings(22, 7, 1, /*folds=*/true),
              Contains(HasSubstr("by the running statistics")));
  for (const int64_t samples : {21, 23}) {
    EXPECT_THAT(warnings(samples, 7, 1),
                Not(Contains(HasSubstr("by the running statistics"))));
  }
}

constexpr char kBagAndIdModel[] = R"(<ir_version: 8, opset_import: ["" : 13]>
bag (int64[N,3] ids, int64[N,1] own, float[8,2] emb, float[2,1] w)
    => (float[N,1] out) {
  rows = Gather(emb, ids)
  row = Gather(emb, own)
  mean = ReduceMean<axes: ints = [1], keepdims: int = 0>(rows)
  mine = ReduceMean<axes: ints = [1], keepdims: int = 0>(row)
  both = Add(mean, mine)
  out = MatMul(both, w)
})";

// One feed's padding is a row for another: one exported row cannot be both.
TEST_F(KeptDataOfAttemptsTest, PaddingThatIsARowForAnotherFeedIsRefused) {
  Write("2|1,7,1\n3,0,0\n1,-8,1\n");
  JobSpec spec = DigitsJob();
  spec.mutable_model()->clear_initialize();
  spec.mutable_model()->add_initialize()->set_pattern("w");
  spec.mutable_model()->mutable_initialize(0)->set_scheme(
      InitializerRule::HE_NORMAL);
  spec.add_tables()->set_name("emb");
  DataSpec* const data = spec.mutable_data();
  CsvSource* const csv = data->mutable_train()->mutable_csv();
  csv->set_path(dir_.File("data.csv"));
  csv->set_list_delimiter("|");
  data->clear_feeds();
  for (const auto& [input, field] :
       {std::pair("ids", "0"), std::pair("own", "1:2")}) {
    Feed* const feed = data->add_feeds();
    feed->set_input(input);
    feed->set_field(field);
  }
  data->mutable_label()->set_field("2");
  spec.mutable_loss()->set_kind(LossSpec::SIGMOID_CROSS_ENTROPY);
  PrepareAttempt(
      spec, kBagAndIdModel,
      "data.feeds[0].padding: 0 is a row of table 'emb' that 2 ids of "
      "data.feeds[1] stand for in data.train, too: the trained model would "
      "have one row for both. Set it to an id that no feed of the table means "
      "a row by");
  data->mutable_feeds(0)->set_padding(5);
  PrepareAttempt(spec, kBagAndIdModel);
}

TEST(PreparedJobTest, AStopEndsTheTakingOfMemory) {
  int asked = 0;
  // The arrays of parameters and of gradients are asked for once each; the
  // activations for every 64 MiB.
  const Preparing prepared = Prepare(LargeBatches(4096), 4096, [&] {
    return ++asked < 4 ? absl::OkStatus() : absl::CancelledError("stopped");
  });
  EXPECT_EQ(asked, 4);
  EXPECT_THAT(prepared.problems, ElementsAre("model: stopped"));
}

}  // namespace
}  // namespace syncline::worker

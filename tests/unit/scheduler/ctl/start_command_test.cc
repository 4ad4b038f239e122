// Goal: a job goes on from the checkpoint that was named, or is refused with
// the field that is in the way. Method: references, specs and records as data.
// tests/cluster has the commands against a scheduler.

#include "scheduler/ctl/start_command.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/job/job_spec_validator.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace syncline::ctl {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

// Of the checkpoint.
constexpr int64_t kClock = 400;

JobSpec Spec() {
  JobSpec spec;
  spec.mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
  spec.mutable_training()->set_batch_size(64);
  spec.mutable_resources()->set_workers(2);
  spec.mutable_resources()->set_ps(2);
  return WithDefaults(spec);
}

JobStatus Job(JobState state) {
  JobStatus job;
  job.set_job_id("j-0007");
  job.set_state(state);
  *job.mutable_spec() = Spec();
  for (const int64_t clock : {400, 800}) {
    CheckpointInfo* const checkpoint = job.add_checkpoints();
    checkpoint->set_clock(clock);
    checkpoint->set_path(absl::StrCat("/c/", clock));
    checkpoint->set_shards(2);
    checkpoint->set_manifest_crc32c(5);
  }
  return job;
}

TEST(StartCommandTest, AReferenceIsAJobOrAPath) {
  const auto job = ParseReference("j-0042");
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job->job_id, "j-0042");
  EXPECT_FALSE(job->clock.has_value());
  const auto at = ParseReference("j-0042@800");
  ASSERT_TRUE(at.ok());
  EXPECT_EQ(at->clock, 800);
  const auto path = ParseReference("./ckpt/j-0042@800");
  ASSERT_TRUE(path.ok());
  EXPECT_EQ(path->path, "./ckpt/j-0042@800");
  EXPECT_EQ(path->job_id, "");
  for (const char* bad :
       {"", "mnist", "j-x", "j-0042@", "j-0042@-1", "j-0042@1.5"}) {
    EXPECT_THAT(std::string(ParseReference(bad).status().message()),
                StartsWith("--from: '"))
        << bad;
  }
}

TEST(StartCommandTest, TheLastCheckpointUnlessAClockIsNamed) {
  const JobStatus job = Job(FAILED);
  EXPECT_EQ(ChooseCheckpoint(job, std::nullopt)->clock(), 800);
  EXPECT_EQ(ChooseCheckpoint(job, 400)->path(), "/c/400");
  EXPECT_EQ(ChooseCheckpoint(job, 500).status().message(),
            "job j-0007 has no checkpoint at clock 500; it has some at clocks "
            "400, 800");
  JobStatus none;
  none.set_job_id("j-0001");
  EXPECT_EQ(ChooseCheckpoint(none, std::nullopt).status().message(),
            "job j-0001 has no checkpoint");
}

TEST(StartCommandTest, WhatCannotGoOnIsRefusedByName) {
  std::vector<std::string> notes;
  EXPECT_TRUE(CheckGoesOn(Spec(), Spec(), kClock, &notes).ok());
  EXPECT_THAT(notes, IsEmpty());
  JobSpec other = Spec();
  other.mutable_optimizer()->set_kind(OptimizerSpec::SGD);
  EXPECT_THAT(std::string(CheckGoesOn(Spec(), other, kClock, &notes).message()),
              AllOf(StartsWith("optimizer.kind: SGD, but the job of the "
                               "checkpoint has ADAM"),
                    HasSubstr("--weights-only")));
  other = Spec();
  other.mutable_training()->set_batch_size(32);
  EXPECT_THAT(std::string(CheckGoesOn(Spec(), other, kClock, &notes).message()),
              StartsWith("training.batch_size: 32, but"));
  other = Spec();
  other.mutable_resources()->set_workers(3);
  EXPECT_THAT(std::string(CheckGoesOn(Spec(), other, kClock, &notes).message()),
              StartsWith("resources.workers: 3, but"));
  EXPECT_THAT(notes, IsEmpty());
}

TEST(StartCommandTest, InLocalAClockIsARoundAndTheOuterOptimizerHasTheState) {
  std::vector<std::string> notes;
  JobSpec from = Spec();
  from.mutable_consistency()->set_mode(ConsistencySpec::LOCAL);
  from = WithDefaults(from);
  JobSpec other = from;
  other.mutable_consistency()->mutable_local()->set_steps(8);
  EXPECT_THAT(std::string(CheckGoesOn(from, other, kClock, &notes).message()),
              StartsWith("consistency.local.steps: 8, but the job of the "
                         "checkpoint has 16"));
  EXPECT_THAT(std::string(CheckGoesOn(Spec(), from, kClock, &notes).message()),
              StartsWith("consistency.mode: LOCAL, but the job of the "
                         "checkpoint has SYNC: a clock would stand for"));
  other = from;
  other.mutable_consistency()->mutable_local()->mutable_optimizer()->set_kind(
      OptimizerSpec::NESTEROV);
  EXPECT_THAT(std::string(CheckGoesOn(from, other, kClock, &notes).message()),
              StartsWith("consistency.local.optimizer.kind: NESTEROV, but"));
  EXPECT_THAT(notes, IsEmpty());
  // That of the workers is in no checkpoint.
  other = from;
  other.mutable_optimizer()->set_kind(OptimizerSpec::SGD);
  EXPECT_TRUE(CheckGoesOn(from, other, kClock, &notes).ok());
  EXPECT_THAT(notes, ElementsAre(StartsWith("warning: optimizer is not")));
}

TEST(StartCommandTest, AFrozenMomentOfAnotherWarmUpIsRefused) {
  const JobSpec plain = Spec();
  JobSpec early = plain;
  early.set_strategy(ALL_REDUCE);
  early.mutable_compression()->set_kind(CompressionSpec::ONE_BIT_ADAM);
  early.mutable_compression()->set_warmup_clocks(kClock - 1);
  JobSpec late = early;
  late.mutable_compression()->set_warmup_clocks(kClock);
  std::vector<std::string> notes;
  EXPECT_TRUE(CheckGoesOn(early, early, kClock, &notes).ok());
  for (const auto& [from, to] : {std::pair{early, late},
                                 {late, early},
                                 {plain, early},
                                 {early, plain}}) {
    EXPECT_THAT(std::string(CheckGoesOn(from, to, kClock, &notes).message()),
                StartsWith("compression.warmup_clocks: "));
  }
  // Neither has come to its end.
  EXPECT_TRUE(CheckGoesOn(plain, late, kClock, &notes).ok());
  EXPECT_TRUE(CheckGoesOn(late, plain, kClock, &notes).ok());
  EXPECT_TRUE(CheckGoesOn(early, late, kClock - 1, &notes).ok());
}

TEST(StartCommandTest, MomentumMustStayWhereItIs) {
  JobSpec plain = Spec();
  plain.mutable_optimizer()->set_kind(OptimizerSpec::MOMENTUM);
  JobSpec top_k = plain;
  top_k.mutable_compression()->set_kind(CompressionSpec::TOP_K);
  JobSpec dgc = plain;
  dgc.mutable_compression()->set_kind(CompressionSpec::DGC);
  std::vector<std::string> notes;
  EXPECT_THAT(std::string(CheckGoesOn(plain, dgc, kClock, &notes).message()),
              AllOf(StartsWith("compression.kind: DGC, but the job of the "
                               "checkpoint has NONE"),
                    HasSubstr("--weights-only")));
  EXPECT_THAT(std::string(CheckGoesOn(dgc, top_k, kClock, &notes).message()),
              StartsWith("compression.kind: TOP_K, but the job of the "
                         "checkpoint has DGC"));
  EXPECT_TRUE(CheckGoesOn(dgc, dgc, kClock, &notes).ok());
  EXPECT_TRUE(CheckGoesOn(plain, top_k, kClock, &notes).ok());
  // SGD has no state that could be elsewhere.
  for (JobSpec* const spec : {&plain, &dgc}) {
    spec->mutable_optimizer()->set_kind(OptimizerSpec::SGD);
  }
  EXPECT_TRUE(CheckGoesOn(plain, dgc, kClock, &notes).ok());
  EXPECT_THAT(notes, ElementsAre(StartsWith("warning: compression is not"),
                                 StartsWith("warning: compression is not")));
}

TEST(StartCommandTest, OtherWorkersGoOnWhereAClockHasTheSameSamples) {
  std::vector<std::string> notes;
  JobSpec from = Spec();
  from.mutable_training()->set_batch_size(32);
  from.mutable_resources()->set_workers(3);
  JobSpec other = from;
  other.mutable_training()->set_global_batch(96);
  other.mutable_training()->set_batch_size(48);
  other.mutable_resources()->set_workers(2);
  EXPECT_TRUE(CheckGoesOn(from, other, kClock, &notes).ok());
  EXPECT_TRUE(CheckGoesOn(other, from, kClock, &notes).ok());
  EXPECT_THAT(notes, IsEmpty());
  other.mutable_training()->set_global_batch(95);
  EXPECT_THAT(std::string(CheckGoesOn(from, other, kClock, &notes).message()),
              StartsWith("training.global_batch: 95, but the job of the "
                         "checkpoint has 96"));
}

// What would be refused is not offered.
TEST(StartCommandTest, OtherWorkersOfAJobThatCompressesBeginAnewAlone) {
  std::vector<std::string> notes;
  const JobSpec from = Spec();
  JobSpec other = from;
  other.mutable_resources()->set_workers(from.resources().workers() + 1);
  EXPECT_THAT(std::string(CheckGoesOn(from, other, kClock, &notes).message()),
              HasSubstr("--set training.global_batch="));
  other.mutable_compression()->set_kind(CompressionSpec::INT8);
  EXPECT_THAT(std::string(CheckGoesOn(from, other, kClock, &notes).message()),
              AllOf(HasSubstr("--weights-only starts anew"),
                    Not(HasSubstr("global_batch"))));
}

TEST(StartCommandTest, AnyWorkersGoOnWithLeasedData) {
  std::vector<std::string> notes;
  JobSpec from = Spec();
  from.mutable_data()->set_sharing(DataSpec::LEASED);
  JobSpec other = from;
  other.mutable_resources()->set_workers(7);
  EXPECT_TRUE(CheckGoesOn(from, other, kClock, &notes).ok());
  EXPECT_THAT(notes, IsEmpty());
  other.mutable_training()->set_batch_size(32);
  EXPECT_THAT(std::string(CheckGoesOn(from, other, kClock, &notes).message()),
              StartsWith("training.batch_size: 32, but"));
  EXPECT_THAT(std::string(CheckGoesOn(from, Spec(), kClock, &notes).message()),
              StartsWith("data.sharing: STATIC, but the job of the checkpoint "
                         "has LEASED"));
}

TEST(StartCommandTest, WhatMakesItAnotherRunIsSaidAloud) {
  JobSpec other = Spec();
  // These change no step.
  other.set_name("longer");
  other.mutable_resources()->set_ps(5);
  other.mutable_training()->set_epochs(50);
  std::vector<std::string> notes;
  EXPECT_TRUE(CheckGoesOn(Spec(), other, kClock, &notes).ok());
  EXPECT_THAT(notes, IsEmpty());
  other.mutable_training()->set_seed(9);
  other.mutable_learning_rate()->set_base(0.5);
  other.mutable_data()->mutable_train()->mutable_digits()->set_count(7);
  EXPECT_TRUE(CheckGoesOn(Spec(), other, kClock, &notes).ok());
  EXPECT_THAT(notes, ElementsAre(StartsWith("warning: data is not that"),
                                 StartsWith("warning: learning_rate is not"),
                                 StartsWith("warning: training is not that")));
  other = Spec();
  other.mutable_compression()->set_kind(CompressionSpec::INT8);
  other.set_wire_type(WIRE_BFLOAT16);
  notes.clear();
  EXPECT_TRUE(CheckGoesOn(Spec(), other, kClock, &notes).ok());
  EXPECT_THAT(notes, ElementsAre(StartsWith("warning: compression is not that"),
                                 StartsWith("warning: wire_type is not that")));
}

// The rate would jump.
TEST(StartCommandTest, AnotherLengthIsSaidWhereTheRateFollowsFromIt) {
  JobSpec from = Spec();
  from.mutable_learning_rate()->set_schedule(LearningRateSpec::COSINE);
  JobSpec longer = from;
  longer.mutable_training()->set_epochs(50);
  std::vector<std::string> notes;
  EXPECT_TRUE(CheckGoesOn(from, longer, kClock, &notes).ok());
  EXPECT_THAT(notes, ElementsAre(HasSubstr("learning_rate.total_clocks")));
  notes.clear();
  from.mutable_learning_rate()->set_total_clocks(90);
  longer.mutable_learning_rate()->set_total_clocks(90);
  EXPECT_TRUE(CheckGoesOn(from, longer, kClock, &notes).ok());
  EXPECT_THAT(notes, IsEmpty());
}

TEST(StartCommandTest, AnotherModelFileIsSaid) {
  const TempDir dir;
  const std::string file = dir.File("model.onnx");
  ASSERT_OK(WriteFileAtomically(file, "a model"));
  JobStatus job = Job(RUNNING);
  Artifact* const model = job.add_artifacts();
  model->set_name("model.onnx");
  model->set_crc32c(Crc32c("a model"));
  EXPECT_EQ(OtherModelNote(file, CheckpointJobOf(job)), "");
  model->set_crc32c(Crc32c("another one"));
  EXPECT_THAT(OtherModelNote(file, CheckpointJobOf(job)),
              AllOf(StartsWith("warning: "), HasSubstr(file),
                    HasSubstr("model.freeze")));
  EXPECT_EQ(OtherModelNote(file, CheckpointJobOf(Job(RUNNING))), "")
      << "it is not known";
}

TEST(StartCommandTest, OnlyAJobThatHasEndedIsResumed) {
  for (const JobState state : {QUEUED, PREPARING, RUNNING}) {
    EXPECT_THAT(SpecToResume(Job(state)).status().message(),
                HasSubstr("cancel it first"));
  }
  EXPECT_THAT(SpecToResume(Job(SUCCEEDED)).status().message(),
              HasSubstr("has succeeded"));
  JobStatus none = Job(FAILED);
  none.clear_checkpoints();
  EXPECT_TRUE(absl::IsNotFound(SpecToResume(none).status()));
  const auto spec = SpecToResume(Job(CANCELLED));
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->start().checkpoint(), "/c/800");
  EXPECT_EQ(spec->start().clock(), 800);
  EXPECT_EQ(spec->start().shards(), 2u);
  EXPECT_EQ(spec->start().manifest_crc32c(), 5u);
  EXPECT_EQ(spec->optimizer().kind(), OptimizerSpec::ADAM);
}

}  // namespace
}  // namespace syncline::ctl

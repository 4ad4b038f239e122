// Goal: a job whose number of workers may change is refused by field where it
// cannot be what it says. Method: a valid job, edits to it and what each must
// report.

#include "common/job/elastic_validator.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/job_spec_validator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kSaved[] =
    "checkpoint { every_clocks: 10 directory: '/c' } restart {} ";

JobSpec Job(const std::string& edit) {
  return JobFromText(kImageJob, absl::StrCat("training { batch_size: 32 } "
                                             "resources { workers: 3 } ",
                                             edit));
}
std::vector<std::string> Problems(const std::string& edit) {
  return ValidateJobSpec(Job(edit));
}

TEST(ElasticValidatorTest, WhatIsRightIsTaken) {
  EXPECT_THAT(Problems(""), IsEmpty());
  EXPECT_THAT(Problems(absl::StrCat(
                  kSaved, "resources { min_workers: 1 max_workers: 8 }")),
              IsEmpty());
  EXPECT_THAT(Problems("resources { min_workers: 3 max_workers: 3 }"),
              IsEmpty());
  EXPECT_THAT(Problems("training { global_batch: 97 }"), IsEmpty());
  EXPECT_THAT(Problems("training { global_batch: 97 micro_batches: 4 }"),
              IsEmpty());
}

TEST(ElasticValidatorTest, WhatIsWrongIsNamed) {
  EXPECT_THAT(
      Problems(absl::StrCat(kSaved, "resources { min_workers: 4 }")),
      ElementsAre(
          "resources.min_workers: 4 is more than resources.workers, 3"));
  EXPECT_THAT(
      Problems(absl::StrCat(kSaved, "resources { max_workers: 2 }")),
      ElementsAre("resources.max_workers: 2 is less than resources.workers, "
                  "3"));
  EXPECT_THAT(Problems(absl::StrCat(kSaved, "resources { max_workers: 1025 }")),
              ElementsAre(HasSubstr("max_workers: 1025 is too large, at most "
                                    "1024")));
  EXPECT_THAT(
      Problems("resources { max_workers: 4 }"),
      ElementsAre(HasSubstr("resources.max_workers: needs checkpoint")));
  EXPECT_THAT(Problems("checkpoint { every_clocks: 10 } restart {} "
                       "resources { min_workers: 2 }"),
              ElementsAre(HasSubstr("checkpoint.directory: is required with "
                                    "resources.min_workers: without it each "
                                    "ps keeps its part")));
  EXPECT_THAT(Problems("checkpoint { every_clocks: 10 directory: '/c' } "
                       "resources { min_workers: 2 }"),
              ElementsAre(HasSubstr("resources.min_workers: needs restart")));
  EXPECT_THAT(
      Problems("training { global_batch: 2 }"),
      ElementsAre("training.global_batch: a clock has 2 samples, fewer than 3 "
                  "workers"));
  EXPECT_THAT(Problems(absl::StrCat(kSaved,
                                    "training { global_batch: 5 } "
                                    "resources { max_workers: 6 }")),
              ElementsAre(HasSubstr("fewer than 6 workers")));
  EXPECT_THAT(Problems("training { global_batch: 4000000000 }"),
              ElementsAre(HasSubstr("training.global_batch: a clock has "
                                    "4000000000 samples, so each of 3")));
  EXPECT_THAT(Problems(absl::StrCat(kSaved,
                                    "consistency { mode: ASYNC } "
                                    "resources { min_workers: 2 }")),
              ElementsAre(HasSubstr(
                  "resources.min_workers: does not go with "
                  "consistency.mode: ASYNC: the number of workers "
                  "changes in SYNC, where all of them are at one clock, "
                  "or with data.sharing LEASED")));
  EXPECT_THAT(Problems(absl::StrCat(kSaved,
                                    "regimes { when { clock: 5 } "
                                    "then { mode: ASYNC } } "
                                    "resources { max_workers: 4 }")),
              ElementsAre(HasSubstr("a rule leads to ASYNC")));
  EXPECT_THAT(Problems(absl::StrCat(kSaved,
                                    "auto_regime {} "
                                    "resources { max_workers: 4 }")),
              ElementsAre(HasSubstr("resources.max_workers: does not go with "
                                    "auto_regime: ")));
  EXPECT_THAT(Problems(absl::StrCat(kSaved,
                                    "training { sync_batch_statistics: true } "
                                    "resources { min_workers: 2 }")),
              ElementsAre(HasSubstr(
                  "training.sync_batch_statistics: each of 2 workers would "
                  "have 48 samples of a clock in 2 parts, and statistics are "
                  "of one part: raise training.batch_size to 48")));
  // Stage 3 of SHARDED takes them.
  EXPECT_THAT(Problems(absl::StrCat(kSaved,
                                    "strategy: SHARDED sharding { stage: 3 } "
                                    "resources { ps: 0 min_workers: 2 }")),
              IsEmpty());
}

TEST(ElasticValidatorTest, AJobIsScaledWithinWhatItAllows) {
  JobSpec job =
      WithDefaults(Job("resources { min_workers: 2 max_workers: 5 }"));
  const auto message = [&](uint32_t workers, bool normalizes = false) {
    return std::string(CheckWorkersOf(job, workers, normalizes).message());
  };
  EXPECT_EQ(message(2), "");
  EXPECT_EQ(message(5), "");
  EXPECT_EQ(message(0), "workers: 0 is outside 1..1024");
  EXPECT_EQ(message(1025), "workers: 1025 is outside 1..1024");
  EXPECT_EQ(message(1),
            "workers: 1 is less than the job's resources.min_workers, 2");
  EXPECT_EQ(message(6),
            "workers: 6 is more than the job's resources.max_workers, 5");
  EXPECT_THAT(message(2, true), HasSubstr("BatchNormalization takes each"));
  EXPECT_EQ(message(3, true), "") << "its own number";
  job.mutable_training()->set_sync_batch_statistics(true);
  EXPECT_EQ(message(4, true), "");
  EXPECT_THAT(message(2, true), HasSubstr("48 samples of a clock in 2 parts"));
  job = WithDefaults(Job("training { batch_size: 1 }"));
  job.mutable_training()->set_batch_size(1);
  EXPECT_THAT(message(4), HasSubstr("a clock has 3 samples, fewer than 4"));
  job.mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
  EXPECT_THAT(message(2), HasSubstr("consistency.mode: ASYNC"));
  job.mutable_consistency()->set_mode(ConsistencySpec::SYNC);
  job.mutable_compression()->set_kind(CompressionSpec::INT8);
  EXPECT_THAT(message(2), HasSubstr("compression: "));
}

TEST(ElasticValidatorTest, WhichJobsTrainOnWithoutAWorker) {
  const auto outlives = [](const std::string& text) {
    return OutlivesWorkers(WithDefaults(Job(text)));  // of 3 workers
  };
  EXPECT_TRUE(outlives("resources { min_workers: 1 }"));
  EXPECT_TRUE(outlives("resources { min_workers: 2 } precision: BFLOAT16"));
  EXPECT_FALSE(outlives(""));
  EXPECT_FALSE(outlives("resources { min_workers: 3 }"));
  EXPECT_FALSE(outlives("resources { max_workers: 5 }"));
  EXPECT_FALSE(outlives("resources { min_workers: 1 } strategy: ALL_REDUCE"));
  EXPECT_TRUE(outlives("resources { min_workers: 1 } precision: FLOAT16"));
  EXPECT_FALSE(
      outlives("resources { min_workers: 1 } "
               "training { sync_batch_statistics: true }"));
  const std::string leased =
      "resources { min_workers: 1 } data { sharing: LEASED } ";
  EXPECT_TRUE(outlives(leased + "consistency { mode: ASYNC }"));
  EXPECT_FALSE(outlives(leased + "consistency { mode: ASYNC } precision: "
                                 "FLOAT16"));
  EXPECT_FALSE(
      outlives("resources { min_workers: 1 } consistency { mode: ASYNC }"))
      << "others cannot take its places";
  EXPECT_FALSE(
      outlives("resources { min_workers: 1 } "
               "regimes { when { epoch: 1 } then { strategy: ALL_REDUCE } }"));
  EXPECT_TRUE(
      outlives("resources { min_workers: 1 } "
               "regimes { when { epoch: 1 } "
               "then { learning_rate_factor: 0.5 } }"));
}

TEST(ElasticValidatorTest, TheLargestShareIsThatOfTheFewestWorkers) {
  JobSpec job = WithDefaults(Job("resources { min_workers: 2 }"));
  job.mutable_training()->set_batch_size(10);  // of 3 workers each
  EXPECT_EQ(LargestShare(job), 15);
  job.mutable_resources()->set_min_workers(1);
  EXPECT_EQ(LargestShare(job), 30);
  job.mutable_training()->set_global_batch(31);
  job.mutable_resources()->set_min_workers(2);
  EXPECT_EQ(LargestShare(job), 16);
  job.mutable_data()->set_sharing(DataSpec::LEASED);
  job.mutable_training()->clear_global_batch();
  EXPECT_EQ(LargestShare(job), 10) << "a lease is a batch, whoever makes it";
  job.mutable_data()->clear_sharing();
  job.mutable_training()->set_global_batch(31);
  job.mutable_resources()->set_min_workers(0);
  EXPECT_EQ(LargestShare(job), 11);
}

TEST(ElasticValidatorTest, AJobWhoseWorkersChangeIsTiedToSync) {
  EXPECT_EQ(WhyTiedToSync(WithDefaults(Job("")), 3, 0), "");
  EXPECT_EQ(WhyTiedToSync(WithDefaults(Job("")), 3, 3), "") << "scaled back";
  EXPECT_THAT(WhyTiedToSync(WithDefaults(Job("")), 3, 4),
              HasSubstr("`synctl scale` has said 4 workers"));
  EXPECT_THAT(WhyTiedToSync(WithDefaults(Job("")), 4, 3),
              HasSubstr("scale it to 3, its own number, first"));
  EXPECT_THAT(
      WhyTiedToSync(WithDefaults(Job("resources { min_workers: 2 }")), 3, 0),
      HasSubstr("resources.min_workers or resources.max_workers is set"));
  EXPECT_THAT(
      WhyTiedToSync(WithDefaults(Job("training { global_batch: 97 }")), 3, 0),
      HasSubstr("training.global_batch is for SYNC"));
}

}  // namespace
}  // namespace syncline

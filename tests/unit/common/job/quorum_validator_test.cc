#include "common/job/quorum_validator.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/job_spec_validator.h"
#include "common/job/regime_rules.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"

namespace syncline {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

constexpr char kBackups[] =
    "resources { workers: 4 } "
    "consistency { mode: SYNC_WITH_BACKUPS needed: 3 } ";
constexpr char kTimeout[] =
    "resources { workers: 4 } "
    "consistency { mode: SYNC_WITH_TIMEOUT needed: 3 timeout_seconds: 2 } ";

std::vector<std::string> Problems(const std::string& edit) {
  return ValidateJobSpec(JobFromText(kSmallJob, edit));
}

std::string In(const std::string& consistency) {
  return "resources { workers: 4 } consistency { " + consistency + " }";
}

TEST(QuorumValidatorTest, GoodJobs) {
  EXPECT_THAT(Problems(kBackups), IsEmpty());
  EXPECT_THAT(Problems(kTimeout), IsEmpty());
  EXPECT_THAT(Problems(In("mode: SYNC_WITH_BACKUPS needed: 4 late: DROP")),
              IsEmpty());
  EXPECT_THAT(Problems(std::string(kBackups) +
                       "optimizer { kind: LAMB clip_norm: 1 } "
                       "wire_type: WIRE_BFLOAT16 non_finite: SKIP_STEP"),
              IsEmpty());
}

TEST(QuorumValidatorTest, Needed) {
  EXPECT_THAT(Problems(In("mode: SYNC_WITH_BACKUPS")),
              ElementsAre("consistency.needed: is required: without how many "
                          "workers no clock ends, 1..4"));
  EXPECT_THAT(Problems(In("mode: SYNC_WITH_BACKUPS needed: 5")),
              ElementsAre("consistency.needed: 5 is more than "
                          "resources.workers, 4"));
  EXPECT_THAT(Problems("consistency { mode: SYNC_WITH_BACKUPS needed: 2 }"),
              ElementsAre("consistency.needed: 2 is more than "
                          "resources.workers, 1"));
  for (const char* mode : {"SYNC", "ASYNC", "BOUNDED_STALENESS"}) {
    EXPECT_THAT(Problems(In(std::string("needed: 2 mode: ") + mode)),
                ElementsAre(StartsWith("consistency.needed: is for ")));
  }
}

TEST(QuorumValidatorTest, Timeout) {
  const std::string mode = "mode: SYNC_WITH_TIMEOUT needed: 3 ";
  for (const char* seconds : {"0", "-1", "60", "nan", "inf"}) {
    EXPECT_THAT(Problems(In(mode + "timeout_seconds: " + seconds)),
                Contains(AllOf(StartsWith("consistency.timeout_seconds: "),
                               HasSubstr("below "
                                         "limits.step_timeout_seconds, "
                                         "60"))))
        << seconds;
  }
  EXPECT_THAT(Problems(In("mode: SYNC_WITH_BACKUPS needed: 3 "
                          "timeout_seconds: 1")),
              ElementsAre("consistency.timeout_seconds: is for "
                          "SYNC_WITH_TIMEOUT only"));
  EXPECT_THAT(Problems(In("timeout_seconds: 1")),
              ElementsAre("consistency.timeout_seconds: is for "
                          "SYNC_WITH_TIMEOUT only"));
}

TEST(QuorumValidatorTest, WhatIsNotBuiltIsRefusedByName) {
  const std::string mode = "mode: SYNC_WITH_BACKUPS needed: 3 ";
  EXPECT_THAT(Problems(In(mode + "late: SCALE compensation: 1")),
              ElementsAre("consistency.compensation: is for consistency.late "
                          "COMPENSATE only"));
  for (const char* weight : {"-1", "inf", "nan"}) {
    EXPECT_THAT(Problems(In(absl::StrCat(
                    mode, "late: COMPENSATE compensation: ", weight))),
                ElementsAre(HasSubstr("consistency.compensation: ")))
        << weight;
  }
  for (const char* late : {"SCALE", "COMPENSATE"}) {
    EXPECT_THAT(Problems(In(absl::StrCat(mode, "late: ", late))), IsEmpty());
    EXPECT_THAT(Problems(absl::StrCat(In(absl::StrCat(mode, "late: ", late)),
                                      " tables { name: 't' }")),
                IsEmpty());
  }
  EXPECT_THAT(Problems(In("late: DROP")),
              ElementsAre(StartsWith("consistency.late: is for ")));
}

TEST(QuorumValidatorTest, WhatDoesNotGoWithIt) {
  const std::string job = kBackups;
  EXPECT_THAT(Problems(job + "training { sync_batch_statistics: true }"),
              Contains(StartsWith("training.sync_batch_statistics: is not for "
                                  "SYNC_WITH_BACKUPS")));
  EXPECT_THAT(Problems(job + "precision: FLOAT16"),
              Contains(StartsWith("precision: FLOAT16 is not for ")));
  for (const char* strategy : {"ALL_REDUCE", "SHARDED"}) {
    EXPECT_THAT(Problems(job + "strategy: " + strategy),
                Contains(StartsWith("consistency.mode: SYNC_WITH_BACKUPS does "
                                    "not go with ")));
  }
  EXPECT_THAT(Problems(job + "regimes { when { clock: 5 } then { mode: ASYNC } "
                             "}"),
              Contains(HasSubstr("of a job in SYNC_WITH_BACKUPS cannot "
                                 "change")));
  EXPECT_THAT(Problems(job + "tables { name: \"t\" cache_rows: 10 "
                             "cache_clocks: 2 }"),
              Contains(HasSubstr("cache_clocks: is not for SYNC")));
}

TEST(QuorumValidatorTest, NoRunningJobGoesThere) {
  const JobSpec sync = JobFromText(kSmallJob, "resources { workers: 4 }");
  Regime current;
  current.mutable_consistency()->set_mode(ConsistencySpec::SYNC);
  RegimeChange change;
  change.set_mode(ConsistencySpec::SYNC_WITH_BACKUPS);
  EXPECT_THAT(
      std::string(ChangedRegime(sync, 4, current, change).status().message()),
      HasSubstr("cannot change to SYNC_WITH_BACKUPS yet"));
}

TEST(QuorumValidatorTest, TheNoteSaysWhatIsLost) {
  EXPECT_EQ(QuorumNote(JobFromText(kSmallJob)), "");
  EXPECT_THAT(QuorumNote(JobFromText(kSmallJob, kTimeout)),
              AllOf(HasSubstr("SYNC_WITH_TIMEOUT"),
                    HasSubstr("not trained in that epoch")));
}

}  // namespace
}  // namespace syncline

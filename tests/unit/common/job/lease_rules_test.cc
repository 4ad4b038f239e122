// Goal: a job leases its data where each worker can make clocks of its own, and
// is refused by field elsewhere. Method: a valid job, edits to it and what each
// must report, through the whole validator.

#include "common/job/lease_rules.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/elastic_validator.h"
#include "common/job/job_spec_validator.h"
#include "common/job/regime_rules.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Of four workers, in `mode`.
JobSpec LeasedJob(const std::string& mode, const std::string& edit = "") {
  return JobFromText(
      kSmallJob, absl::StrCat("data { sharing: LEASED } resources { workers: 4 "
                              "} consistency { ",
                              mode, " } ", edit));
}
std::vector<std::string> LeasedProblems(const std::string& mode,
                                        const std::string& edit = "") {
  return ValidateJobSpec(LeasedJob(mode, edit));
}

TEST(LeaseRulesTest, TakesModesInWhichWorkersRunApart) {
  EXPECT_THAT(LeasedProblems("mode: ASYNC"), IsEmpty());
  EXPECT_THAT(LeasedProblems("mode: BOUNDED_STALENESS staleness_bound: 4"),
              IsEmpty());
  EXPECT_THAT(LeasedProblems("mode: ASYNC",
                             "strategy: PARAMETER_SERVER "
                             "compression { kind: INT8 } "
                             "training { micro_batches: 2 }"),
              IsEmpty());
  EXPECT_TRUE(LeasesData(WithDefaults(LeasedJob("mode: ASYNC"))))
      << "the default replaces nothing";
  EXPECT_FALSE(LeasesData(WithDefaults(JobFromText(kSmallJob))));
}

TEST(LeaseRulesTest, WhatCannotBeLeasedIsNamed) {
  for (const char* mode :
       {"", "mode: SYNC", "mode: SYNC_WITH_BACKUPS needed: 3", "mode: LOCAL"}) {
    EXPECT_THAT(LeasedProblems(mode),
                ElementsAre(HasSubstr("data.sharing: LEASED does not go with "
                                      "consistency.mode ")))
        << mode;
  }
  EXPECT_THAT(LeasedProblems("mode: BOUNDED_STALENESS staleness_bound: 3"),
              ElementsAre(HasSubstr("consistency.staleness_bound: 3 is less "
                                    "than 4, the number of workers")));
  EXPECT_THAT(LeasedProblems("mode: BOUNDED_STALENESS staleness_bound: 4",
                             "resources { max_workers: 5 } restart {} "
                             "checkpoint { every_clocks: 5 directory: '/c' }"),
              ElementsAre(HasSubstr("staleness_bound: 4 is less than 5")));
  EXPECT_THAT(LeasedProblems("", "strategy: ALL_REDUCE"),
              ElementsAre(HasSubstr("data.sharing: LEASED is for strategy "
                                    "PARAMETER_SERVER only")));
  EXPECT_THAT(LeasedProblems("mode: ASYNC", "groups { size: 2 }"),
              ElementsAre(HasSubstr("data.sharing: LEASED is not built for "
                                    "groups")));
  EXPECT_THAT(LeasedProblems("mode: ASYNC", "training { global_batch: 64 }"),
              ElementsAre(HasSubstr("training.global_batch: is for "
                                    "data.sharing STATIC")));
  EXPECT_THAT(LeasedProblems("mode: ASYNC", "auto_regime {}"),
              ElementsAre(HasSubstr("auto_regime: tries SYNC")));
  EXPECT_THAT(
      LeasedProblems("mode: ASYNC",
                     "regimes { when { clock: 9 } then { mode: SYNC } }"),
      ElementsAre(HasSubstr("regimes[0].then.mode: SYNC does not go "
                            "with data.sharing LEASED")));
  EXPECT_THAT(LeasedProblems("mode: ASYNC",
                             "regimes { when { clock: 9 } then { mode: "
                             "BOUNDED_STALENESS staleness_bound: 2 } }"),
              ElementsAre(HasSubstr("regimes[0].then.staleness_bound: 2 is "
                                    "less than 4")));
}

TEST(LeaseRulesTest, ARuleForStragglersIsRefused) {
  EXPECT_THAT(LeasedProblems("mode: ASYNC",
                             "regimes { when { straggler: 2 } then { "
                             "learning_rate_factor: 0.5 } }"),
              ElementsAre(HasSubstr("when.straggler: has no meaning with "
                                    "data.sharing LEASED")));
}

TEST(LeaseRulesTest, ARunningJobStaysWhereItCanLease) {
  const JobSpec spec = WithDefaults(LeasedJob("mode: ASYNC"));
  const Regime now = FirstRegimeOf(spec);
  RegimeChange change;
  change.set_mode(ConsistencySpec::SYNC);
  EXPECT_THAT(
      std::string(ChangedRegime(spec, 4, now, change).status().message()),
      HasSubstr("mode: SYNC does not go with data.sharing LEASED"));
  change.set_mode(ConsistencySpec::BOUNDED_STALENESS);
  change.set_staleness_bound(8);
  EXPECT_TRUE(ChangedRegime(spec, 4, now, change).ok());
  EXPECT_THAT(
      std::string(ChangedRegime(spec, 9, now, change).status().message()),
      HasSubstr("staleness_bound: 8 is less than 9"));
  JobSpec growing = spec;
  growing.mutable_resources()->set_max_workers(16);
  EXPECT_THAT(
      std::string(ChangedRegime(growing, 4, now, change).status().message()),
      HasSubstr("staleness_bound: 8 is less than 16"));
}

// A lease is the same batch for any number of workers.
TEST(LeaseRulesTest, TheNumberOfWorkersMayChange) {
  constexpr char kElastic[] =
      "resources { min_workers: 1 max_workers: 8 } restart {} "
      "checkpoint { every_clocks: 5 directory: '/c' }";
  EXPECT_THAT(LeasedProblems("mode: ASYNC", kElastic), IsEmpty());
  const JobSpec spec = WithDefaults(LeasedJob("mode: ASYNC", kElastic));
  EXPECT_TRUE(CheckWorkersOf(spec, 7, /*normalizes_batches=*/true).ok());
  EXPECT_EQ(WhyTiedToSync(spec, 4, 6), "");
  EXPECT_THAT(
      LeasedProblems("mode: ASYNC", absl::StrCat(kElastic,
                                                 "compression { kind: INT8 "
                                                 "}")),
      ElementsAre(HasSubstr("resources.min_workers: does not go with "
                            "compression")));
}

}  // namespace
}  // namespace syncline

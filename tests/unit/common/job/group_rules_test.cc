// Goal: groups that can be are taken in each mode that they are built for, and
// whatever does not go with them is refused by name. Method: jobs with one
// field or another, through the whole validator.

#include "common/job/group_rules.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/elastic_validator.h"
#include "common/job/job_spec_validator.h"
#include "common/job/regime_rules.h"
#include "common/job/strategy_change.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

JobSpec FourWorkers(const std::string& edit) {
  return JobFromText(kSmallJob,
                     absl::StrCat("resources { workers: 4 } ", edit));
}

TEST(GroupRulesTest, TakesEachModeAndWhatIsTheLeadersAlone) {
  for (const char* edit :
       {"groups { size: 2 }", "groups { size: 4 }", "groups { size: 1 }",
        "groups { by_host: true }",
        "groups { size: 2 } consistency { mode: ASYNC }",
        "groups { size: 2 } consistency { mode: BOUNDED_STALENESS "
        "staleness_bound: 3 }",
        "groups { size: 2 } optimizer { clip_norm: 1 }",
        "groups { size: 2 } non_finite: SKIP_STEP",
        "groups { size: 2 } wire_type: WIRE_BFLOAT16",
        "groups { size: 2 } precision: BFLOAT16",
        "groups { size: 2 } checkpoint { every_clocks: 5 } restart {}",
        // Groups of one worker are none.
        "groups { size: 1 } tables { name: \"t\" }",
        "groups { size: 1 } consistency { mode: LOCAL }"}) {
    EXPECT_THAT(ValidateJobSpec(FourWorkers(edit)), IsEmpty()) << edit;
  }
}

TEST(GroupRulesTest, RefusesByName) {
  const struct {
    const char* edit;
    const char* problem;
  } kCases[] = {
      {"groups {}", "groups.size: is 0"},
      {"groups { size: 3 }", "groups.size: 3 does not divide"},
      {"groups { size: 8 }", "groups.size: 8 does not divide"},
      {"groups { size: 2 by_host: true }", "groups.size: is not together"},
      {"groups { size: 2 } strategy: ALL_REDUCE",
       "groups: is for strategy PARAMETER_SERVER only"},
      {"groups { size: 1 } strategy: SHARDED",
       "groups: is for strategy PARAMETER_SERVER only"},
      {"groups { size: 2 } consistency { mode: LOCAL }",
       "consistency.mode: LOCAL does not go with groups"},
      {"groups { size: 2 } consistency { mode: SYNC_WITH_BACKUPS needed: 2 }",
       "consistency.mode: SYNC_WITH_BACKUPS does not go with groups"},
      {"groups { size: 2 } consistency { mode: SYNC_WITH_TIMEOUT needed: 2 "
       "timeout_seconds: 1 }",
       "consistency.mode: SYNC_WITH_TIMEOUT does not go with groups"},
      {"groups { size: 2 } tables { name: \"t\" }",
       "tables: do not go with groups yet"},
      {"groups { size: 2 } compression { kind: INT8 }",
       "compression: does not go with groups yet"},
      {"groups { size: 2 } precision: FLOAT16",
       "precision: FLOAT16 does not go with groups yet"},
      {"groups { size: 2 } non_finite: DROP_BLOCK",
       "non_finite: DROP_BLOCK does not go with groups yet"},
      {"groups { by_host: true } training { sync_batch_statistics: true }",
       "training.sync_batch_statistics: does not go with groups yet"},
      {"groups { size: 2 } regimes { when { clock: 5 } then { mode: ASYNC } }",
       "groups: the regime of a job with groups cannot change yet"},
      {"groups { size: 2 } regimes { when { clock: 5 } then { "
       "learning_rate_factor: 0.5 } }",
       "groups: the regime of a job with groups cannot change yet"},
      {"groups { size: 2 } auto_regime {}", "groups"},
      {"groups { size: 2 } resources { max_workers: 8 } checkpoint { "
       "every_clocks: 5 directory: \"/c\" }",
       "resources.max_workers: does not go with groups: groups keep"},
      {"groups { size: 2 } resources { min_workers: 2 } restart {} checkpoint "
       "{ every_clocks: 5 directory: \"/c\" }",
       "resources.min_workers: does not go with groups: groups keep"},
      {"groups { size: 2 } training { global_batch: 64 }",
       "training.global_batch: does not go with groups"},
  };
  for (const auto& c : kCases) {
    const auto problems = ValidateJobSpec(FourWorkers(c.edit));
    EXPECT_THAT(absl::StrJoin(problems, "\n"), HasSubstr(c.problem)) << c.edit;
    EXPECT_THAT(problems, SizeIs(1)) << c.edit;
  }
  EXPECT_THAT(
      absl::StrJoin(
          ValidateJobSpec(JobFromText(
              kImageJob,
              "resources { workers: 4 } groups { size: 2 } stop { metric: LOSS "
              "patience: 1 }")),
          "\n"),
      HasSubstr("stop: does not go with groups yet"));
}

TEST(GroupRulesTest, NothingOfThemChangesWhileTheJobRuns) {
  const JobSpec spec = WithDefaults(FourWorkers("groups { size: 2 }"));
  EXPECT_THAT(CheckModeCanChange(spec).message(), HasSubstr("groups: "));
  EXPECT_THAT(CheckTrainsBy(spec, ALL_REDUCE).message(), HasSubstr("groups: "));
  EXPECT_THAT(CheckWorkersOf(spec, 8, /*normalizes_batches=*/false).message(),
              HasSubstr("groups: "));
  EXPECT_EQ(CheckWorkersOf(spec, 4, /*normalizes_batches=*/false),
            absl::OkStatus());
  const Regime first = FirstRegimeOf(spec);
  EXPECT_EQ(first.group_size(), 2u);
  EXPECT_EQ(RegimeText(first), "SYNC, groups of 2");
}

}  // namespace
}  // namespace syncline

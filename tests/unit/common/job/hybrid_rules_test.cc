// Goal: a HYBRID job has a mode of its rows besides that of its dense part, and
// what both would have to decide together is refused by name. Method: jobs with
// one field or another, through the whole validator.

#include "common/job/hybrid_rules.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/job_spec_validator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// With a table `t`, of these fields too.
JobSpec HybridJob(const std::string& edit, const std::string& of_table = "") {
  return JobFromText(kSmallJob,
                     absl::StrCat("strategy: HYBRID tables { name: \"t\" ",
                                  of_table, " } ", edit));
}

TEST(HybridRulesTest, TakesEachModeOfRows) {
  for (const char* edit :
       {"table_consistency { mode: SYNC }", "table_consistency {}",
        "table_consistency { mode: ASYNC }",
        "table_consistency { mode: BOUNDED_STALENESS staleness_bound: 3 }",
        "consistency { mode: SYNC } table_consistency { mode: ASYNC }",
        "training { micro_batches: 2 sync_batch_statistics: true } "
        "table_consistency { mode: ASYNC }",
        "checkpoint { every_clocks: 5 directory: \"/c\" } restart {} start { "
        "checkpoint: \"/c/1\" }",
        "precision: BFLOAT16", "optimizer { clip_value: 1 }"}) {
    EXPECT_THAT(ValidateJobSpec(HybridJob(edit)), IsEmpty()) << edit;
  }
}

// The fields of a mode that rows do not have are no problem of their own.
TEST(HybridRulesTest, AModeThatRowsDoNotHaveIsOneProblem) {
  for (const char* edit :
       {"table_consistency { mode: SYNC_WITH_BACKUPS needed: 2 }",
        "table_consistency { mode: SYNC_WITH_TIMEOUT needed: 2 "
        "timeout_seconds: 1 }",
        "table_consistency { mode: ASYNC staleness_bound: 2000000 }"}) {
    const auto problems = ValidateJobSpec(HybridJob(edit));
    ASSERT_EQ(problems.size(), 1u) << absl::StrJoin(problems, "\n");
    EXPECT_THAT(problems[0], HasSubstr("table_consistency."));
  }
}

TEST(HybridRulesTest, RefusesByName) {
  const struct {
    const char* edit;
    const char* problem;
  } kCases[] = {
      {"table_consistency { mode: LOCAL }", "table_consistency.mode: LOCAL"},
      {"table_consistency { mode: SYNC_WITH_BACKUPS }",
       "table_consistency.mode: SYNC_WITH_BACKUPS"},
      {"table_consistency { mode: ASYNC staleness_bound: 1 }",
       "table_consistency.staleness_bound: is for BOUNDED_STALENESS only"},
      {"table_consistency { mode: BOUNDED_STALENESS staleness_bound: 1000001 }",
       "table_consistency.staleness_bound: 1000001"},
      {"optimizer { clip_norm: 1 }",
       "optimizer.clip_norm: is not built for HYBRID"},
      {"non_finite: SKIP_STEP",
       "non_finite: SKIP_STEP is not built for HYBRID"},
      {"non_finite: DROP_BLOCK",
       "non_finite: DROP_BLOCK is not built for HYBRID"},
      {"precision: FLOAT16", "precision: FLOAT16 is not built for HYBRID"},
      {"stop { metric: LOSS patience: 1 }",
       "stop: is not built for HYBRID yet"},
      {"checkpoint { every_clocks: 5 }",
       "checkpoint.directory: is required with strategy HYBRID"},
  };
  for (const auto& c : kCases) {
    EXPECT_THAT(absl::StrJoin(ValidateJobSpec(HybridJob(c.edit)), "\n"),
                HasSubstr(c.problem))
        << c.edit;
  }
  EXPECT_THAT(ValidateJobSpec(HybridJob("optimizer { kind: LAMB }",
                                        "optimizer { kind: SGD }")),
              ElementsAre(HasSubstr("LAMB is not built for HYBRID yet")));
}

TEST(HybridRulesTest, OthersHaveOneMode) {
  for (const char* strategy : {"PARAMETER_SERVER", "ALL_REDUCE", "SHARDED"}) {
    EXPECT_THAT(
        ValidateJobSpec(JobFromText(
            kSmallJob, absl::StrCat("strategy: ", strategy,
                                    " table_consistency { mode: ASYNC }"))),
        ElementsAre(
            "table_consistency: is for strategy HYBRID only; others have "
            "consistency"));
  }
}

// The rows' mode says whether a worker may keep rows from step to step.
TEST(HybridRulesTest, KeptRowsGoByTheModeOfRows) {
  const std::string kept =
      "optimizer { kind: SGD } cache_rows: 9 cache_clocks: 2";
  EXPECT_THAT(
      ValidateJobSpec(HybridJob("table_consistency { mode: ASYNC }", kept)),
      IsEmpty());
  EXPECT_THAT(ValidateJobSpec(HybridJob("", kept)),
              ElementsAre(HasSubstr("cache_clocks: is not for SYNC")));
  EXPECT_THAT(
      ValidateJobSpec(HybridJob(
          "table_consistency { mode: BOUNDED_STALENESS staleness_bound: 1 }",
          kept)),
      ElementsAre(
          HasSubstr("2 is more than table_consistency.staleness_bound, 1")));
}

TEST(HybridRulesTest, RowsAreReadAsTheDensePartByDefault) {
  JobSpec spec = WithDefaults(HybridJob(""));
  EXPECT_EQ(spec.table_consistency().mode(), ConsistencySpec::SYNC);
  EXPECT_EQ(&RowConsistency(spec), &spec.table_consistency());
  spec = WithDefaults(HybridJob("table_consistency { mode: ASYNC }"));
  EXPECT_EQ(RowConsistency(spec).mode(), ConsistencySpec::ASYNC);
  EXPECT_EQ(spec.consistency().mode(), ConsistencySpec::SYNC);
  spec = WithDefaults(JobFromText(kSmallJob));
  EXPECT_FALSE(spec.has_table_consistency());
  EXPECT_EQ(&RowConsistency(spec), &spec.consistency());
}

}  // namespace
}  // namespace syncline

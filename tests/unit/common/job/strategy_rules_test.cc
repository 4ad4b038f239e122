// Goal: a strategy is checked with all that it goes with, and completed.
// Method: jobs with one field or another, through the whole validator.

#include "common/job/strategy_rules.h"

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
using ::testing::IsEmpty;

std::vector<std::string> ProblemsOf(const std::string& edit) {
  return ValidateJobSpec(JobFromText(kSmallJob, edit));
}

TEST(StrategyRulesTest, TakesEachStrategy) {
  for (const char* edit :
       {"strategy: PARAMETER_SERVER resources { ps: 3 }",
        "strategy: PARAMETER_SERVER consistency { mode: ASYNC }",
        "strategy: ALL_REDUCE", "strategy: SHARDED",
        "strategy: ALL_REDUCE consistency { mode: SYNC } resources { workers: "
        "4 } wire_type: WIRE_FLOAT32",
        "strategy: ALL_REDUCE wire_type: WIRE_BFLOAT16",
        "strategy: ALL_REDUCE wire_type: WIRE_FLOAT16 non_finite: SKIP_STEP "
        "resources { ps: 2 }",
        "strategy: SHARDED sharding { stage: 1 } non_finite: SKIP_STEP",
        "strategy: SHARDED sharding { stage: 2 }",
        "strategy: SHARDED wire_type: WIRE_BFLOAT16",
        "strategy: SHARDED sharding { stage: 2 } wire_type: WIRE_FLOAT16",
        "strategy: HYBRID tables { name: \"t\" } wire_type: WIRE_BFLOAT16",
        "strategy: SHARDED sharding { stage: 3 } checkpoint { every_clocks: 5 "
        "directory: \"/c\" } restart {}",
        "strategy: ALL_REDUCE resources { ps: 2 }",
        "strategy: SHARDED resources { ps: 1 }",
        "strategy: HYBRID resources { ps: 2 workers: 2 } tables { name: \"t\" "
        "}",
        "strategy: SHARDED checkpoint { every_clocks: 5 directory: \"/c\" } "
        "restart {}",
        "strategy: ALL_REDUCE start { checkpoint: \"/c/1\" weights_only: "
        "true }"}) {
    EXPECT_THAT(ProblemsOf(edit), IsEmpty()) << edit;
  }
}

TEST(StrategyRulesTest, RefusesWhatDoesNotGoWithIt) {
  const struct {
    const char* edit;
    const char* problem;
  } kCases[] = {
      {"strategy: HYBRID",
       "strategy: HYBRID is for jobs with tables, whose rows are on the ps; "
       "this one has none: use ALL_REDUCE"},
      {"strategy: HYBRID tables { name: \"t\" } consistency { mode: ASYNC }",
       "consistency.mode: ASYNC does not go with HYBRID, which takes SYNC for "
       "the dense parameters; rows have table_consistency"},
      {"strategy: SHARDED sharding { stage: 2 } resources { ps: 1 }",
       "resources.ps: 1 reserved for a change to PARAMETER_SERVER, which this "
       "job cannot make: sharding.stage: 2: gradients leave the memory of "
       "workers as soon as they are computed, and PARAMETER_SERVER needs them "
       "there; use stage 1"},
      {"strategy: ALL_REDUCE resources { ps: 2 } training { "
       "sync_batch_statistics: true }",
       "resources.ps: 2 reserved for a change to PARAMETER_SERVER, which this "
       "job cannot make: training.sync_batch_statistics: statistics over all "
       "workers are folded where the job begins: its strategy cannot change"},
      {"strategy: ALL_REDUCE consistency { mode: ASYNC }",
       "consistency.mode: ASYNC does not go with ALL_REDUCE, which takes SYNC; "
       "use PARAMETER_SERVER"},
      {"strategy: SHARDED consistency { mode: BOUNDED_STALENESS "
       "staleness_bound: 2 }",
       "consistency.mode: BOUNDED_STALENESS does not go with SHARDED, which "
       "takes SYNC; use PARAMETER_SERVER"},
      {"strategy: ALL_REDUCE sharding { stage: 1 }",
       "sharding: has no meaning for ALL_REDUCE, only for SHARDED"},
      {"sharding {}",
       "sharding: has no meaning for PARAMETER_SERVER, only for SHARDED"},
      {"strategy: SHARDED sharding { stage: 3 } training { "
       "recompute_segments: 3 }",
       "training.recompute_segments: 3 is not built for SHARDED, stage 3, "
       "which gathers values for each use; use 1, or sharding { stage: 2 }"},
      {"strategy: SHARDED sharding { stage: 3 } precision: BFLOAT16",
       "precision: BFLOAT16 is not built for SHARDED, stage 3, which gathers "
       "values for each use; use FLOAT32, or sharding { stage: 2 }"},
      {"strategy: SHARDED sharding { stage: 3 } resources { device: CUDA }",
       "resources.device: CUDA is not built for SHARDED, stage 3, which "
       "gathers values for each use; use CPU, or sharding { stage: 2 }"},
      {"strategy: SHARDED sharding { stage: 3 } resources { ps: 1 }",
       "resources.ps: 1 reserved for a change to PARAMETER_SERVER, which this "
       "job cannot make: sharding.stage: 3: values are at their owners alone, "
       "and other strategies need them at each worker: the strategy of this "
       "job cannot change; use stage 1 or 2"},
      {"strategy: SHARDED sharding { stage: 4 }",
       "sharding.stage: 4 is not known; use 1, which divides the optimizer's "
       "state, 2, which divides the gradients, too, or 3, which divides the "
       "values, too"},
      {"strategy: ALL_REDUCE tables { name: \"t\" scheme: UNIFORM }",
       "tables: do not go with ALL_REDUCE: rows are on ps; use HYBRID or "
       "PARAMETER_SERVER"},
      {"strategy: ALL_REDUCE checkpoint { every_clocks: 5 }",
       "checkpoint.directory: is required with strategy ALL_REDUCE: workers "
       "write their parts there, and have no --checkpoint-dir"},
      {"strategy: SHARDED checkpoint { every_clocks: 5 } restart {}",
       "checkpoint.directory: is required with strategy SHARDED: workers "
       "write their parts there, and have no --checkpoint-dir"},
  };
  for (const auto& c : kCases) {
    EXPECT_THAT(ProblemsOf(c.edit), ElementsAre(c.problem)) << c.edit;
  }
}

TEST(StrategyRulesTest, FillsWhatDependsOnIt) {
  JobSpec spec = WithDefaults(JobFromText(kSmallJob));
  EXPECT_EQ(spec.strategy(), PARAMETER_SERVER);
  EXPECT_EQ(spec.resources().ps(), 1u);
  EXPECT_FALSE(spec.has_sharding());
  EXPECT_FALSE(IsWithoutPs(spec));
  spec = WithDefaults(JobFromText(kSmallJob, "strategy: ALL_REDUCE"));
  EXPECT_EQ(spec.resources().ps(), 0u);
  EXPECT_FALSE(spec.has_sharding());
  EXPECT_TRUE(IsWithoutPs(spec));
  spec = WithDefaults(JobFromText(kSmallJob, "strategy: SHARDED"));
  EXPECT_EQ(spec.sharding().stage(), 1u);
  EXPECT_TRUE(IsWithoutPs(spec));
  spec = WithDefaults(
      JobFromText(kSmallJob, "strategy: HYBRID tables { name: \"t\" }"));
  EXPECT_EQ(spec.resources().ps(), 1u);
  EXPECT_FALSE(IsWithoutPs(spec));
  EXPECT_EQ(spec.table_consistency().mode(), ConsistencySpec::SYNC);
}

TEST(StrategyRulesTest, SaysWhoReducesTheDensePart) {
  const auto among_workers = [](const std::string& edit) {
    return ReducesAmongWorkers(JobFromText(kSmallJob, edit));
  };
  EXPECT_FALSE(among_workers(""));
  EXPECT_FALSE(among_workers("strategy: PARAMETER_SERVER"));
  EXPECT_TRUE(among_workers("strategy: ALL_REDUCE"));
  EXPECT_TRUE(among_workers("strategy: SHARDED"));
  EXPECT_TRUE(among_workers("strategy: HYBRID"));
}

}  // namespace
}  // namespace syncline

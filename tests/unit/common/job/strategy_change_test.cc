// Goal: the strategies that a job can train by while it runs are those that its
// other fields go with, and what cannot be is refused by field.
// Method: changes of small jobs.

#include "common/job/strategy_change.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/job/job_spec_validator.h"
#include "common/job/regime_rules.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// The text of the regime after a change of this job, or why there is none.
std::string Changed(const std::string& edit, const std::string& change,
                    ConsistencySpec::Mode mode = ConsistencySpec::SYNC,
                    Strategy strategy = STRATEGY_UNSPECIFIED) {
  const JobSpec spec = WithDefaults(JobFromText(kSmallJob, edit));
  Regime current;
  current.mutable_consistency()->set_mode(mode);
  current.set_strategy(strategy == STRATEGY_UNSPECIFIED ? spec.strategy()
                                                        : strategy);
  current.set_wire_type(spec.wire_type());
  RegimeChange wanted;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(change, &wanted));
  const auto next = ChangedRegime(spec, 2, current, wanted);
  return next.ok() ? RegimeText(*next) : std::string(next.status().message());
}

TEST(StrategyChangeTest, StrategiesChangeInSync) {
  EXPECT_EQ(Changed("", "strategy: ALL_REDUCE"), "ALL_REDUCE SYNC");
  EXPECT_EQ(Changed("", "strategy: SHARDED"), "SHARDED SYNC");
  EXPECT_EQ(Changed("", "strategy: SHARDED sharding_stage: 1"), "SHARDED SYNC");
  EXPECT_EQ(
      Changed("", "strategy: PARAMETER_SERVER", ConsistencySpec::SYNC, SHARDED),
      "SYNC");
  EXPECT_EQ(Changed("strategy: ALL_REDUCE", "strategy: SHARDED"),
            "SHARDED SYNC");
  EXPECT_EQ(Changed("strategy: ALL_REDUCE resources { ps: 2 }",
                    "strategy: PARAMETER_SERVER"),
            "SYNC");
  EXPECT_EQ(Changed("strategy: SHARDED sharding { stage: 2 }",
                    "strategy: SHARDED", ConsistencySpec::SYNC, ALL_REDUCE),
            "SHARDED (stage 2) SYNC");
}

TEST(StrategyChangeTest, LeasedDataStayWithPs) {
  EXPECT_THAT(Changed("consistency { mode: ASYNC } data { sharing: LEASED }",
                      "strategy: ALL_REDUCE", ConsistencySpec::ASYNC),
              StartsWith("data.sharing: LEASED is for PARAMETER_SERVER"));
}

// Of a change between ps and ALL_REDUCE both sides have whole values.
TEST(StrategyChangeTest, SixteenBitsOnTheWireGoWithPsAndAllReduce) {
  EXPECT_EQ(Changed("wire_type: WIRE_BFLOAT16", "strategy: ALL_REDUCE"),
            "ALL_REDUCE SYNC, WIRE_BFLOAT16");
  EXPECT_EQ(Changed("strategy: ALL_REDUCE wire_type: WIRE_FLOAT16 resources { "
                    "ps: 2 }",
                    "strategy: PARAMETER_SERVER"),
            "SYNC, WIRE_FLOAT16");
  EXPECT_THAT(
      ValidateJobSpec(JobFromText(
          kSmallJob,
          "wire_type: WIRE_BFLOAT16 training { epochs: 3 } regimes { when { "
          "epoch: 1 } then { strategy: SHARDED } }")),
      ::testing::ElementsAre(
          HasSubstr("regimes[0].then.wire_type: WIRE_BFLOAT16: a job changes "
                    "to or from SHARDED only with WIRE_FLOAT32")));
}

TEST(StrategyChangeTest, RefusesByField) {
  EXPECT_THAT(Changed("strategy: ALL_REDUCE", "strategy: PARAMETER_SERVER"),
              StartsWith("resources.ps: no ps are reserved"));
  EXPECT_THAT(Changed("strategy: SHARDED sharding { stage: 2 } resources { ps: "
                      "1 }",
                      "strategy: PARAMETER_SERVER"),
              StartsWith("sharding.stage: 2: gradients leave"));
  EXPECT_THAT(Changed("", "strategy: HYBRID"),
              StartsWith("strategy: HYBRID cannot begin or end"));
  EXPECT_THAT(Changed("", "strategy: SHARDED sharding_stage: 2"),
              StartsWith("sharding_stage: 2, but the steps of this job"));
  EXPECT_THAT(Changed("", "strategy: SHARDED sharding_stage: 3"),
              StartsWith("sharding_stage: 3, but the steps of this job"));
  EXPECT_THAT(Changed("", "strategy: SHARDED sharding_stage: 4"),
              StartsWith("sharding_stage: 4 is not known"));
  EXPECT_THAT(Changed("strategy: SHARDED sharding { stage: 3 }",
                      "strategy: ALL_REDUCE"),
              StartsWith("sharding.stage: 3: values are at their owners"));
  EXPECT_THAT(Changed("", "strategy: ALL_REDUCE sharding_stage: 1"),
              StartsWith("sharding_stage: has no meaning for ALL_REDUCE"));
  EXPECT_THAT(Changed("", "strategy: ALL_REDUCE", ConsistencySpec::ASYNC),
              StartsWith("strategy: changes in SYNC alone"));
  EXPECT_THAT(Changed("", "strategy: ALL_REDUCE mode: ASYNC"),
              StartsWith("mode: changes after the strategy"));
  EXPECT_THAT(Changed("", "strategy: ALL_REDUCE learning_rate_factor: 2"),
              StartsWith("learning_rate_factor: changes before or after"));
  EXPECT_THAT(Changed("wire_type: WIRE_BFLOAT16", "strategy: SHARDED"),
              StartsWith("wire_type: WIRE_BFLOAT16: a job changes to or from "
                         "SHARDED only"));
  EXPECT_THAT(Changed("strategy: ALL_REDUCE wire_type: WIRE_FLOAT16",
                      "strategy: SHARDED"),
              StartsWith("wire_type: WIRE_FLOAT16: a job changes to or from"));
  EXPECT_THAT(Changed("tables { name: \"t\" }", "strategy: ALL_REDUCE"),
              StartsWith("tables: their rows are on ps"));
  EXPECT_THAT(Changed("training { sync_batch_statistics: true }",
                      "strategy: ALL_REDUCE"),
              StartsWith("training.sync_batch_statistics"));
  EXPECT_THAT(Changed("compression { kind: INT8 }", "strategy: ALL_REDUCE"),
              StartsWith("compression: what gradients have lost"));
  EXPECT_THAT(Changed("checkpoint { every_clocks: 5 }", "strategy: ALL_REDUCE"),
              StartsWith("checkpoint.directory: is required"));
  EXPECT_THAT(Changed("consistency { mode: SYNC_WITH_BACKUPS needed: 1 }",
                      "strategy: ALL_REDUCE"),
              StartsWith("consistency.mode: SYNC_WITH_BACKUPS needs ps"));
  EXPECT_THAT(
      Changed("stop { metric: LOSS patience: 1 }", "strategy: ALL_REDUCE"),
      StartsWith("stop: "));
}

// Without ps all workers wait for each other, so such a job has no other
// strategy to train by.
TEST(StrategyChangeTest, JobsThatLeaveWorkersBehindKeepTheirPs) {
  for (const char* const mode : {"SYNC_WITH_BACKUPS", "SYNC_WITH_TIMEOUT"}) {
    const JobSpec spec = WithDefaults(JobFromText(
        kSmallJob, absl::StrCat("consistency { mode: ", mode, " needed: 1 }")));
    EXPECT_TRUE(CheckTrainsBy(spec, PARAMETER_SERVER).ok());
    for (const Strategy strategy : {ALL_REDUCE, SHARDED}) {
      EXPECT_THAT(std::string(CheckTrainsBy(spec, strategy).message()),
                  StartsWith(absl::StrCat("consistency.mode: ", mode)));
    }
  }
}

// Ranks have their rate and mode from the start.
TEST(StrategyChangeTest, WithoutPsNothingElseChanges) {
  EXPECT_THAT(Changed("strategy: ALL_REDUCE", "mode: ASYNC"),
              HasSubstr("change to PARAMETER_SERVER first"));
  EXPECT_THAT(
      Changed("", "learning_rate_factor: 2", ConsistencySpec::SYNC, SHARDED),
      HasSubstr("change to PARAMETER_SERVER first"));
}

TEST(StrategyChangeTest, RulesMayNameStrategies) {
  EXPECT_EQ(
      ValidateJobSpec(
          JobFromText(
              kSmallJob,
              "training { epochs: 3 } regimes { when { epoch: 1 } then { "
              "strategy: ALL_REDUCE } } regimes { when { epoch: 2 } then { "
              "strategy: PARAMETER_SERVER } }"))
          .size(),
      0u);
  EXPECT_THAT(
      ValidateJobSpec(JobFromText(
          kSmallJob,
          "strategy: SHARDED training { epochs: 3 } regimes { when { epoch: 1 "
          "} then { strategy: PARAMETER_SERVER } }")),
      ::testing::Contains(HasSubstr("no ps are reserved")));
}

}  // namespace
}  // namespace syncline

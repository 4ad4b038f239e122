// Goal: LOCAL is checked, completed and explained, and everything that does not
// go with it is refused by name.
// Method: jobs with one field or another, through the whole validator.

#include "common/job/local_rules.h"

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/job_spec_validator.h"
#include "common/job/regime_rules.h"
#include "common/job/strategy_change.h"
#include "common/regime/job_regimes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_builder.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

JobSpec LocalJob(const std::string& edit) {
  return JobFromText(kSmallJob, "consistency { mode: LOCAL } " + edit);
}

std::vector<std::string> ProblemsOf(const std::string& edit) {
  return ValidateJobSpec(LocalJob(edit));
}

TEST(LocalRulesTest, TakesWhatIsBuilt) {
  for (const char* edit :
       {"", "consistency { local { steps: 1024 } }",
        "consistency { local { optimizer { kind: NESTEROV momentum: 0.8 } "
        "learning_rate: 0.7 } }",
        "consistency { local { optimizer { kind: MOMENTUM } } }",
        "strategy: PARAMETER_SERVER", "training { micro_batches: 4 }",
        "optimizer { kind: ADAMW weight_decay: 0.1 clip_norm: 1 }",
        "optimizer { kind: RMSPROP clip_value: 1 }", "precision: BFLOAT16",
        "wire_type: WIRE_BFLOAT16", "compression { kind: INT8 }",
        "compression { kind: TOP_K } optimizer { clip_norm: 1 }",
        "checkpoint { every_clocks: 5 } restart {}", "non_finite: FAIL_JOB"}) {
    EXPECT_THAT(ProblemsOf(edit), IsEmpty()) << edit;
    // Completed, it is valid again.
    EXPECT_THAT(ValidateJobSpec(WithDefaults(LocalJob(edit))), IsEmpty())
        << edit;
  }
}

TEST(LocalRulesTest, RefusesByName) {
  const struct {
    const char* edit;
    const char* problem;
  } kCases[] = {
      {"consistency { local { steps: 1025 } }",
       "consistency.local.steps: 1025 is too large, at most 1024"},
      {"consistency { local { learning_rate: -1 } }",
       "consistency.local.learning_rate: -1 must be finite and > 0"},
      {"consistency { local { optimizer {} } }",
       "consistency.local.optimizer.kind: is required: SGD, MOMENTUM or "},
      {"consistency { local { optimizer { kind: ADAM } } }",
       "consistency.local.optimizer.kind: ADAM is not for the change of a"},
      {"consistency { local { optimizer { kind: SGD momentum: 0.9 } } }",
       "consistency.local.optimizer.momentum: has no meaning for SGD"},
      {"consistency { local { optimizer { kind: SGD weight_decay: 1 } } }",
       "consistency.local.optimizer.weight_decay: is for `optimizer`"},
      {"consistency { local { optimizer { kind: SGD clip_norm: 1 } } }",
       "consistency.local.optimizer.clip_norm: is for `optimizer`"},
      {"consistency { local { optimizer { kind: SGD clip_value: 1 } } }",
       "consistency.local.optimizer.clip_value: is for `optimizer`"},
      {"consistency { staleness_bound: 2 }", "consistency.staleness_bound: is"},
      {"consistency { needed: 1 }", "consistency.needed: is for"},
      {"optimizer { kind: LAMB }", "optimizer.kind: LAMB is not built for LOC"},
      {"optimizer { kind: FTRL }", "optimizer.kind: FTRL is not for LOCAL"},
      {"non_finite: SKIP_STEP", "non_finite: SKIP_STEP is not built for LOCAL"},
      {"non_finite: DROP_BLOCK", "non_finite: DROP_BLOCK is not built for LOC"},
      {"precision: FLOAT16", "precision: FLOAT16 is not built for LOCAL"},
      {"training { sync_batch_statistics: true }",
       "training.sync_batch_statistics: is not for LOCAL"},
      {"compression { kind: DGC }",
       "compression.kind: DGC is not built for LOCAL"},
      {"compression { kind: TERNGRAD }",
       "compression.kind: TERNGRAD is not built for LOCAL"},
      {"tables { name: \"t\" }", "tables: do not go with LOCAL yet"},
      {"strategy: ALL_REDUCE",
       "consistency.mode: LOCAL does not go with ALL_REDUCE"},
      {"strategy: SHARDED", "consistency.mode: LOCAL does not go with SHARDED"},
      {"strategy: HYBRID tables { name: \"t\" }",
       "consistency.mode: LOCAL does not go with HYBRID"},
      {"training { global_batch: 64 }",
       "training.global_batch: does not go with consistency.mode: LOCAL"},
      {"resources { workers: 2 max_workers: 4 } checkpoint { every_clocks: 1 "
       "directory: \"/c\" }",
       "resources.max_workers: does not go with consistency.mode: LOCAL"},
      {"auto_regime {}", "auto_regime: does not go with LOCAL"},
      {"regimes { when { clock: 5 } then { mode: SYNC } }",
       "regimes[0].then.mode: cannot change while this job runs: "
       "consistency.mode: the regime of a job in LOCAL cannot change yet"},
      {"regimes { when { clock: 5 } then { learning_rate_factor: 0.5 } }",
       "regimes[0].then.mode: the regime of a job in LOCAL cannot change yet"},
      {"regimes { when { clock: 5 } then { strategy: ALL_REDUCE } }",
       "regimes[0].then: cannot be made in this job: consistency.mode: LOCAL "
       "needs ps for all of a job's"},
  };
  for (const auto& c : kCases) {
    EXPECT_THAT(absl::StrJoin(ProblemsOf(c.edit), "\n"), HasSubstr(c.problem))
        << c.edit;
  }
  JobSpec endless = LocalJob("");
  endless.mutable_consistency()->mutable_local()->set_learning_rate(
      std::numeric_limits<float>::infinity());
  EXPECT_THAT(absl::StrJoin(ValidateJobSpec(endless), "\n"),
              HasSubstr("consistency.local.learning_rate: "));
}

TEST(LocalRulesTest, ItsFieldsAreForLocalOnly) {
  EXPECT_THAT(ValidateJobSpec(
                  JobFromText(kSmallJob, "consistency { local { steps: 4 } }")),
              ElementsAre("consistency.local: is for LOCAL only"));
}

TEST(LocalRulesTest, NoJobEntersItWhileItRuns) {
  const JobSpec spec = WithDefaults(JobFromText(kSmallJob));
  RegimeChange change;
  change.set_mode(ConsistencySpec::LOCAL);
  EXPECT_THAT(
      std::string(
          ChangedRegime(spec, 2, RegimeOf(spec), change).status().message()),
      HasSubstr("mode: a running job cannot change to LOCAL yet"));
}

TEST(LocalRulesTest, ItKeepsItsStrategy) {
  const JobSpec spec = WithDefaults(LocalJob("resources { ps: 2 }"));
  EXPECT_TRUE(CheckTrainsBy(spec, PARAMETER_SERVER).ok());
  for (const Strategy strategy : {ALL_REDUCE, SHARDED}) {
    EXPECT_THAT(std::string(CheckTrainsBy(spec, strategy).message()),
                HasSubstr("consistency.mode: LOCAL needs ps"));
  }
}

TEST(LocalRulesTest, TheOptimizerOfTheOwnersIsTheOuterOne) {
  const JobSpec plain = WithDefaults(LocalJob("optimizer { kind: ADAM }"));
  EXPECT_EQ(StepsOfClock(plain), 16);
  EXPECT_EQ(OwnersOptimizer(plain).kind(), OptimizerSpec::SGD);
  EXPECT_EQ(plain.consistency().local().learning_rate(), 1);
  const JobSpec diloco = WithDefaults(
      LocalJob("consistency { local { steps: 50 optimizer { kind: NESTEROV } "
               "learning_rate: 0.7 } }"));
  EXPECT_EQ(StepsOfClock(diloco), 50);
  EXPECT_EQ(OwnersOptimizer(diloco).momentum(), 0.9f);
  EXPECT_STREQ(OwnersOptimizerField(diloco), "consistency.local.optimizer");
  EXPECT_EQ(RegimeText(RegimeOf(diloco)),
            "LOCAL, rounds of 50 steps, NESTEROV x 0.7 on the ps");
  const JobSpec sync =
      WithDefaults(JobFromText(kSmallJob, "optimizer { kind: ADAM }"));
  EXPECT_EQ(StepsOfClock(sync), 1);
  EXPECT_EQ(OwnersOptimizer(sync).kind(), OptimizerSpec::ADAM);
  EXPECT_STREQ(OwnersOptimizerField(sync), "optimizer");
  EXPECT_FALSE(sync.consistency().has_local());
}

TEST(LocalRulesTest, NotesSayWhatAClockIsAndWhatACheckpointLacks) {
  EXPECT_EQ(LocalNote(JobFromText(kSmallJob)), "");
  EXPECT_THAT(LocalNote(LocalJob("")), HasSubstr("a round of 16 steps"));
  EXPECT_THAT(LocalNote(LocalJob("consistency { local { steps: 1 } }")),
              HasSubstr("a round of 1 step on each"));
  EXPECT_EQ(LocalWarning(LocalJob("checkpoint { every_clocks: 1 }")), "");
  EXPECT_EQ(LocalWarning(LocalJob("optimizer { kind: ADAM }")), "");
  EXPECT_THAT(LocalWarning(LocalJob("optimizer { kind: ADAM } checkpoint { "
                                    "every_clocks: 1 }")),
              AllOf(HasSubstr("checkpoints have no state of `optimizer`"),
                    HasSubstr("ADAM begins anew")));
  EXPECT_EQ(LocalWarning(JobFromText(kSmallJob,
                                     "optimizer { kind: ADAM } checkpoint { "
                                     "every_clocks: 1 }")),
            "");
}

}  // namespace
}  // namespace syncline

// Goal: the regime of a job changes to what was asked for, with the factor of
// the learning rate that follows, or is refused by field.
// Method: changes of one small job.

#include "common/job/regime_rules.h"

#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;

class RegimeRulesTest : public ::testing::Test {
 protected:
  static RegimeChange Change(const std::string& text) {
    RegimeChange change;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &change));
    return change;
  }
  // The text of the regime, which the next change begins at; or why not.
  std::string To(const std::string& change) {
    const auto next = ChangedRegime(spec_, 4, current_, Change(change));
    if (!next.ok()) return std::string(next.status().message());
    current_ = *next;
    return RegimeText(*next);
  }
  JobSpec spec_;
  Regime current_;  // SYNC
};

TEST_F(RegimeRulesTest, TheRateFollowsTheMode) {
  EXPECT_EQ(To("mode: ASYNC"), "ASYNC, learning rate x 0.25");
  EXPECT_EQ(To("mode: BOUNDED_STALENESS staleness_bound: 3"),
            "BOUNDED_STALENESS, bound 3, learning rate x 0.25");
  EXPECT_EQ(To("staleness_bound: 5"),
            "BOUNDED_STALENESS, bound 5, learning rate x 0.25");
  EXPECT_EQ(To("learning_rate_factor: 0.5"),
            "BOUNDED_STALENESS, bound 5, learning rate x 0.5");
  EXPECT_EQ(To("mode: SYNC"), "SYNC");
  EXPECT_EQ(To("mode: ASYNC learning_rate_factor: 2"),
            "ASYNC, learning rate x 2");
  EXPECT_EQ(To("mode: SYNC learning_rate_factor: 2"),
            "SYNC, learning rate x 2");
}

TEST_F(RegimeRulesTest, WhatIsNoChangeIsRefused) {
  EXPECT_THAT(To(""), HasSubstr("mode: the job trains so already: SYNC"));
  EXPECT_THAT(To("mode: SYNC"), HasSubstr("trains so already"));
  EXPECT_THAT(To("mode: SYNC strategy: PARAMETER_SERVER wire_type: "
                 "WIRE_FLOAT32 learning_rate_factor: 1"),
              HasSubstr("trains so already"));
}

TEST_F(RegimeRulesTest, WhatIsNoneIsRefusedByField) {
  EXPECT_THAT(To("mode: BOUNDED_STALENESS"),
              HasSubstr("staleness_bound: BOUNDED_STALENESS needs one"));
  EXPECT_THAT(To("mode: BOUNDED_STALENESS staleness_bound: 1000001"),
              HasSubstr("staleness_bound: 1000001 is outside 0..1000000"));
  EXPECT_THAT(To("mode: ASYNC staleness_bound: 1"),
              HasSubstr("staleness_bound: is for BOUNDED_STALENESS only"));
  EXPECT_THAT(To("staleness_bound: 1"),
              HasSubstr("staleness_bound: is for BOUNDED_STALENESS only"));
  EXPECT_THAT(To("learning_rate_factor: 0"),
              HasSubstr("learning_rate_factor: is 0"));
  EXPECT_THAT(To("learning_rate_factor: -1"),
              HasSubstr("learning_rate_factor: is -1"));
  RegimeChange infinite;
  infinite.set_learning_rate_factor(std::numeric_limits<double>::infinity());
  EXPECT_THAT(
      std::string(
          ChangedRegime(spec_, 4, current_, infinite).status().message()),
      HasSubstr("learning_rate_factor: is inf"));
  EXPECT_THAT(To("learning_rate_factor: 1e30"),
              HasSubstr("learning_rate_factor: is 1e+30, must be > 0 and at "
                        "most 1e+06"));
  EXPECT_THAT(To("learning_rate_factor: 1000001"),
              HasSubstr("learning_rate_factor: is "));
  EXPECT_THAT(To("mode: LOCAL"),
              HasSubstr("mode: a running job cannot change to LOCAL"));
}

TEST_F(RegimeRulesTest, WhatIsKeptForLaterIsRefused) {
  current_.set_strategy(ALL_REDUCE);
  EXPECT_THAT(To("learning_rate_factor: 0.5"),
              HasSubstr("strategy: ALL_REDUCE: without ps neither mode nor "
                        "rate can change"));
}

TEST_F(RegimeRulesTest, TheWireTypeChangesThroughThePs) {
  EXPECT_EQ(To("wire_type: WIRE_BFLOAT16"), "SYNC, WIRE_BFLOAT16");
  EXPECT_EQ(To("mode: ASYNC"), "ASYNC, WIRE_BFLOAT16, learning rate x 0.25");
  EXPECT_EQ(To("mode: SYNC wire_type: WIRE_FLOAT16"), "SYNC, WIRE_FLOAT16");
  EXPECT_THAT(To("strategy: ALL_REDUCE"),
              HasSubstr("strategy: changes while the wire type is the one that "
                        "the job began with, WIRE_FLOAT32"));
  EXPECT_EQ(To("wire_type: WIRE_FLOAT32"), "SYNC");
  EXPECT_THAT(To("wire_type: WIRE_FLOAT32"), HasSubstr("trains so already"));
  EXPECT_THAT(To("strategy: ALL_REDUCE wire_type: WIRE_BFLOAT16"),
              HasSubstr("wire_type: changes alone"));
  EXPECT_THAT(To("wire_type: 9"), HasSubstr("wire_type: 9 is none"));
  spec_.set_wire_type(WIRE_BFLOAT16);
  current_.set_wire_type(WIRE_BFLOAT16);
  EXPECT_THAT(To("wire_type: WIRE_FLOAT32"),
              HasSubstr("wire_type: WIRE_FLOAT32 takes more memory "
                        "than WIRE_BFLOAT16, which the job began with"));
  EXPECT_EQ(To("wire_type: WIRE_FLOAT16"), "SYNC, WIRE_FLOAT16");
  current_.set_strategy(ALL_REDUCE);
  EXPECT_THAT(To("wire_type: WIRE_BFLOAT16"), HasSubstr("WIRE_BFLOAT16"));
  spec_.mutable_training()->set_sync_batch_statistics(true);
  EXPECT_THAT(To("wire_type: WIRE_FLOAT16"),
              HasSubstr("wire_type: by ALL_REDUCE it changes as the strategy "
                        "does, where that can; training.sync_batch_"));
  current_.set_strategy(SHARDED);
  EXPECT_THAT(To("wire_type: WIRE_FLOAT16"),
              HasSubstr("wire_type: changes while the job trains by "
                        "PARAMETER_SERVER or ALL_REDUCE, and it trains by "
                        "SHARDED"));
}

TEST_F(RegimeRulesTest, TheCompressionChangesThroughThePs) {
  EXPECT_EQ(To("compression: INT8"), "SYNC, compressed by INT8");
  EXPECT_EQ(current_.compression_spec().block_elements(), 256);
  EXPECT_THAT(To("compression: INT8"), HasSubstr("trains so already"));
  EXPECT_EQ(To("mode: ASYNC compression: TERNGRAD"),
            "ASYNC, compressed by TERNGRAD, learning rate x 0.25");
  EXPECT_EQ(To("mode: SYNC"), "SYNC, compressed by TERNGRAD");
  EXPECT_THAT(To("strategy: ALL_REDUCE"),
              HasSubstr("strategy: changes while nothing is compressed, and it "
                        "is by TERNGRAD"));
  current_.mutable_compression_spec()->set_values(true);
  EXPECT_THAT(To("mode: ASYNC"),
              HasSubstr("mode: ASYNC does not go with compression.values"));
  EXPECT_THAT(To("wire_type: WIRE_BFLOAT16"),
              HasSubstr("wire_type: values come back compressed"));
  current_.mutable_compression_spec()->set_values(false);
  EXPECT_EQ(To("compression: NONE"), "SYNC");
  EXPECT_THAT(To("strategy: ALL_REDUCE compression: INT8"),
              HasSubstr("compression: changes alone"));
  EXPECT_THAT(To("compression: DGC"),
              HasSubstr("compression: DGC has the momentum at the workers"));
  EXPECT_THAT(To("compression: ONE_BIT_ADAM"),
              HasSubstr("compression: ONE_BIT_ADAM is none that a running"));
  spec_.mutable_compression()->set_kind(CompressionSpec::TOP_K);
  spec_.mutable_compression()->set_fraction(0.25);
  EXPECT_EQ(To("compression: TOP_K"), "SYNC, compressed by TOP_K");
  EXPECT_EQ(current_.compression_spec().fraction(), 0.25);
  EXPECT_EQ(To("compression: NONE"), "SYNC");
  spec_.mutable_optimizer()->set_clip_norm(1);
  EXPECT_THAT(To("compression: INT8"),
              HasSubstr("compression: optimizer.clip_norm: does not go with "
                        "compression INT8"));
  spec_.Clear();
  spec_.mutable_resources()->set_workers(2);
  spec_.mutable_resources()->set_min_workers(1);
  spec_.mutable_checkpoint()->set_directory("/c");
  spec_.mutable_restart();
  EXPECT_THAT(To("compression: INT8"),
              HasSubstr("what a worker has kept back of its gradients"));
  spec_.Clear();
  current_.set_strategy(ALL_REDUCE);
  EXPECT_THAT(To("compression: INT8"),
              HasSubstr("compression: changes while the job trains by "
                        "PARAMETER_SERVER, and it trains by ALL_REDUCE"));
}

TEST_F(RegimeRulesTest, WhatIsTiedToTheModeIsNamed) {
  spec_.mutable_optimizer()->set_kind(OptimizerSpec::LAMB);
  EXPECT_THAT(To("mode: ASYNC"),
              HasSubstr("mode: cannot change while this job runs: "
                        "optimizer.kind: LAMB is for SYNC"));
  EXPECT_EQ(To("learning_rate_factor: 0.5"), "SYNC, learning rate x 0.5");
  spec_.Clear();
  spec_.mutable_training()->set_sync_batch_statistics(true);
  EXPECT_THAT(To("mode: ASYNC"),
              HasSubstr("training.sync_batch_statistics: is for SYNC"));
  spec_.Clear();
  spec_.set_precision(FLOAT16);
  EXPECT_THAT(To("mode: ASYNC"), HasSubstr("precision: the loss scale"));
  spec_.Clear();
  spec_.add_tables();
  TableSpec* const table = spec_.add_tables();
  table->set_cache_rows(10);
  table->set_cache_clocks(2);
  EXPECT_THAT(To("mode: ASYNC"), HasSubstr("tables[1].cache_clocks: "));
}

// --- JobSpec.regimes ---

std::vector<std::string> ProblemsOf(const std::string& spec_text) {
  JobSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(spec_text, &spec));
  std::vector<std::string> list;
  Problems problems(&list);
  CheckRegimeRules(spec, &problems);
  return list;
}

TEST(RegimeRulesOfJobsTest, WhatCanComeTrueIsAccepted) {
  EXPECT_THAT(ProblemsOf(R"(
      training { epochs: 3 } resources { workers: 2 }
      data { test { digits { count: 1 } } }
      regimes { when { clock: 1 } then { mode: ASYNC } }
      regimes { when { epoch: 2 } then { mode: SYNC } }
      regimes { when { loss_below: 0.5 } then { learning_rate_factor: 0.5 } }
      regimes { when { straggler: 1.5 }
                then { mode: BOUNDED_STALENESS staleness_bound: 3 } }
      regimes { when { plateau { evaluations: 2 } }
                then { staleness_bound: 1 } }
      regimes { when { loss_below: 0.1 } then { compression: TOP_K } })"),
              ::testing::IsEmpty());
  EXPECT_THAT(ProblemsOf(R"(
      training { epochs: 3 } compression { kind: INT8 }
      regimes { when { epoch: 2 } then { compression: NONE } })"),
              ::testing::IsEmpty());
}

TEST(RegimeRulesOfJobsTest, WhatCannotIsRefusedByField) {
  EXPECT_THAT(
      ProblemsOf(R"(
      regimes { then { mode: ASYNC } }
      regimes { when { clock: 0 } }
      regimes { when { epoch: 1 } then { mode: LOCAL } }
      regimes { when { plateau { min_improvement: 1 } }
                then { mode: BOUNDED_STALENESS } }
      regimes { when { straggler: 1 } then { compression: DGC } })"),
      ::testing::ElementsAre(
          HasSubstr("regimes[0].when: is required"),
          HasSubstr("regimes[1].when.clock: 0 must be > 0"),
          HasSubstr("regimes[1].then: is required"),
          HasSubstr("regimes[2].when.epoch: 1 is outside 1..0"),
          HasSubstr("regimes[2].then.mode: a running job cannot change"),
          HasSubstr("regimes[3].when.plateau.evaluations: 0 is outside"),
          HasSubstr("regimes[3].when.plateau.min_improvement: 1 is outside"),
          HasSubstr("regimes[3].when.plateau: needs data.test"),
          HasSubstr("regimes[3].then.staleness_bound: BOUNDED_STALENESS needs"),
          HasSubstr("regimes[4].when.straggler: 1 must be finite and > 1"),
          HasSubstr("regimes[4].when.straggler: needs resources.workers"),
          HasSubstr("regimes[4].then.compression: ")));
}

TEST(RegimeRulesOfJobsTest, ConditionsThatNeverComeTrueAreRefused) {
  EXPECT_THAT(
      ProblemsOf(R"(
      training { max_clocks: 100 }
      regimes { when { clock: 99 } then { mode: ASYNC } }
      regimes { when { clock: 100 } then { mode: SYNC } }
      regimes { when { loss_below: 0 } then { mode: ASYNC } }
      regimes { when { loss_below: -1 }
                then { learning_rate_factor: 1e30 } })"),
      ::testing::ElementsAre(
          HasSubstr("regimes[1].when.clock: 100 is not below "
                    "training.max_clocks, 100"),
          HasSubstr("regimes[2].when.loss_below: 0 must be finite and > 0"),
          HasSubstr("regimes[3].when.loss_below: -1 must be finite and > 0"),
          HasSubstr("regimes[3].then.learning_rate_factor: is 1e+30")));
}

TEST(RegimeRulesOfJobsTest, RulesOfWhichNoneChangesAnythingAreRefused) {
  EXPECT_THAT(ProblemsOf(R"(
      regimes { when { clock: 1 } then { mode: SYNC } }
      regimes { when { clock: 2 } then { learning_rate_factor: 1 } })"),
              ::testing::ElementsAre(
                  HasSubstr("regimes[0].then: changes nothing: the job begins "
                            "so (SYNC)"),
                  HasSubstr("regimes[1].then: changes nothing")));
  const std::string bounded =
      "consistency { mode: BOUNDED_STALENESS staleness_bound: 4 } ";
  EXPECT_THAT(ProblemsOf(bounded + "regimes { when { clock: 1 } then { mode: "
                                   "BOUNDED_STALENESS staleness_bound: 4 } }"),
              ::testing::ElementsAre(HasSubstr("BOUNDED_STALENESS, bound 4")));
  EXPECT_THAT(ProblemsOf(bounded +
                         "regimes { when { clock: 1 } then { staleness_bound: "
                         "5 } }"),
              ::testing::IsEmpty());
  EXPECT_THAT(ProblemsOf(R"(
      regimes { when { clock: 1 } then { mode: ASYNC } }
      regimes { when { clock: 2 } then { learning_rate_factor: 1 } })"),
              ::testing::IsEmpty());
  // Another rule leads away from the first mode, so this one may lead back.
  EXPECT_THAT(ProblemsOf(R"(
      regimes { when { clock: 5 } then { mode: SYNC } }
      regimes { when { clock: 2 } then { mode: ASYNC } })"),
              ::testing::IsEmpty());
}

TEST(RegimeRulesOfJobsTest, WhatIsTiedToTheModeIsRefusedAtSubmit) {
  EXPECT_THAT(ProblemsOf(R"(optimizer { kind: LAMB }
      regimes { when { clock: 1 } then { mode: ASYNC } })"),
              ::testing::ElementsAre(
                  HasSubstr("regimes[0].then.mode: cannot change while this "
                            "job runs: optimizer.kind: LAMB")));
}

}  // namespace
}  // namespace syncline

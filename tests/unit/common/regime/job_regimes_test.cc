// Goal: members take from an assignment what they can do, and refuse all else
// by field.
// Method: assignments with one thing wrong each; a regime there and back.

#include "common/regime/job_regimes.h"

#include <limits>
#include <string>

#include "gtest/gtest.h"
#include "tests/testing/assignment_builder.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

JobAssignment AssignmentOf(const JobSpec& spec = PlainSgdJob()) {
  return AssignmentBuilder(spec).Parameter("w", {4}).Workers(1).Ps(1).Build();
}

std::string ErrorOf(const JobAssignment& assignment) {
  return std::string(ReadRegimes(assignment).status().message());
}

// Of an assignment with this regime, in place of the spec's.
std::string ErrorOf(const Regime& regime, const JobSpec& spec = PlainSgdJob()) {
  JobAssignment assignment = AssignmentOf(spec);
  *assignment.mutable_regimes(0) = regime;
  return ErrorOf(assignment);
}

TEST(JobRegimesTest, AJobBeginsAsItsSpecSays) {
  JobSpec spec = PlainSgdJob();
  spec.mutable_consistency()->set_mode(ConsistencySpec::BOUNDED_STALENESS);
  spec.mutable_consistency()->set_staleness_bound(3);
  spec.set_wire_type(WIRE_FLOAT16);
  const TrainingRegime expected = {.mode = ConsistencyMode::kBoundedStaleness,
                                   .staleness_bound = 3,
                                   .wire_type = ElementType::kFloat16};
  const auto assigned = ReadRegimes(AssignmentOf(spec));
  ASSERT_OK(assigned.status());
  EXPECT_EQ(assigned->At(0), expected);
  const auto planned = ReadRegimes(spec);
  ASSERT_OK(planned.status());
  EXPECT_EQ(planned->At(0), expected);
}

TEST(JobRegimesTest, WhatIsUnsetHasADefault) {
  JobAssignment assignment = AssignmentOf();
  *assignment.mutable_regimes(0) = Regime();
  const auto regimes = ReadRegimes(assignment);
  ASSERT_OK(regimes.status());
  EXPECT_EQ(regimes->At(0), TrainingRegime());
}

TEST(JobRegimesTest, TheAssignmentCountsNotTheSpec) {
  JobAssignment assignment = AssignmentOf();  // SYNC
  assignment.mutable_regimes(0)->mutable_consistency()->set_mode(
      ConsistencySpec::ASYNC);
  EXPECT_EQ(ReadRegimes(assignment)->At(0).mode, ConsistencyMode::kAsync);
}

TEST(JobRegimesTest, RegimesComeBackFromMessages) {
  const std::vector<TrainingRegime> regimes = {
      {.mode = ConsistencyMode::kAsync, .wire_type = ElementType::kBfloat16},
      {.first_clock = 10,
       .mode = ConsistencyMode::kBoundedStaleness,
       .staleness_bound = 5,
       .learning_rate_factor = 0.25},
      {.first_clock = 12, .learning_rate_factor = 2}};
  JobAssignment assignment = AssignmentOf();
  assignment.clear_regimes();
  for (const TrainingRegime& regime : regimes) {
    *assignment.add_regimes() = ToProto(regime);
  }
  const auto read = ReadRegimes(assignment);
  ASSERT_OK(read.status());
  EXPECT_EQ(read->regimes(), absl::MakeConstSpan(regimes));
}

TEST(JobRegimesTest, RefusesAnAssignmentWithoutRegimes) {
  JobAssignment assignment = AssignmentOf();
  assignment.clear_regimes();
  EXPECT_EQ(ErrorOf(assignment),
            "job j-0001: regimes: the assignment has none");
}

TEST(JobRegimesTest, RefusesClocksOutOfOrder) {
  JobAssignment assignment = AssignmentOf();
  *assignment.add_regimes() = ToProto({.first_clock = 4});
  *assignment.add_regimes() = ToProto({.first_clock = 4});
  EXPECT_EQ(ErrorOf(assignment),
            "job j-0001: regimes[2].first_clock: 4 is not after that of the "
            "regime before it, 4");
  EXPECT_EQ(ErrorOf(ToProto({.first_clock = -1})),
            "job j-0001: regimes[0].first_clock: -1 is negative");
}

TEST(JobRegimesTest, TheFirstClockHasARegime) {
  JobAssignment assignment = AssignmentOf();
  assignment.mutable_regimes(0)->set_first_clock(5);
  EXPECT_EQ(ErrorOf(assignment),
            "job j-0001: regimes[0].first_clock: 5 is after the job's first "
            "clock, 0");
  assignment.set_start_clock(5);
  EXPECT_EQ(ErrorOf(assignment), "");
}

TEST(JobRegimesTest, RefusesWhatIsNotBuiltByName) {
  const std::string at = "job j-0001: regimes[0].";
  Regime regime;
  regime.mutable_consistency()->set_mode(ConsistencySpec::LOCAL);
  EXPECT_EQ(ErrorOf(regime),
            at + "consistency.mode: LOCAL, but the job does not begin in it");
  regime.Clear();
  regime.set_strategy(HYBRID);
  EXPECT_EQ(ErrorOf(regime),
            at + "strategy: HYBRID, but the job's is PARAMETER_SERVER");
  regime.Clear();
  // A job that began with ps may have changed to it.
  regime.set_strategy(ALL_REDUCE);
  EXPECT_EQ(ErrorOf(regime), "");
  regime.set_wire_type(WIRE_FLOAT16);
  EXPECT_EQ(ErrorOf(regime), "");
  regime.set_strategy(SHARDED);
  EXPECT_EQ(ErrorOf(regime),
            at + "wire_type: SHARDED is for float32 where a job has not begun "
                 "with it");
  regime.set_strategy(ALL_REDUCE);
  regime.mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
  EXPECT_EQ(ErrorOf(regime),
            at + "consistency.mode: ASYNC, but ALL_REDUCE is for SYNC");
  regime.Clear();
  regime.set_group_size(2);
  EXPECT_EQ(ErrorOf(regime), at + "group_size: 2, but the job has no groups");
  regime.set_group_size(1025);
  EXPECT_EQ(ErrorOf(regime), at + "group_size: 1025 is not built");
  regime.Clear();
  regime.set_wire_type(static_cast<WireType>(99));
  EXPECT_EQ(ErrorOf(regime), at + "wire_type: 99 is not built");
  regime.Clear();
  regime.set_compression(static_cast<Regime::Compression>(7));
  EXPECT_EQ(ErrorOf(regime), at + "compression: 7 is not built");
  regime.Clear();
  regime.set_late_policy(static_cast<Regime::LatePolicy>(7));
  EXPECT_EQ(ErrorOf(regime), at + "late_policy: 7 is not built");
}

TEST(JobRegimesTest, RefusesNumbersOutOfRange) {
  const std::string at = "job j-0001: regimes[0].";
  Regime regime;
  regime.mutable_consistency()->set_staleness_bound(2);
  EXPECT_EQ(ErrorOf(regime), at + "consistency.staleness_bound: is for "
                                  "BOUNDED_STALENESS only");
  regime.mutable_consistency()->set_mode(ConsistencySpec::BOUNDED_STALENESS);
  regime.mutable_consistency()->set_staleness_bound(1'000'001);
  EXPECT_EQ(ErrorOf(regime), at + "consistency.staleness_bound: 1000001 is too "
                                  "large, at most 1000000");
  for (const double wrong : {-1.0, std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()}) {
    regime.Clear();
    regime.set_learning_rate_factor(wrong);
    EXPECT_EQ(ErrorOf(regime), absl::StrCat(at, "learning_rate_factor: is ",
                                            wrong, ", must be finite and > 0"));
  }
}

TEST(JobRegimesTest, TheSpecMayRefuseARegime) {
  const Regime async = ToProto({.mode = ConsistencyMode::kAsync});
  const std::string mode = "job j-0001: regimes[0].consistency.mode: ";
  JobSpec lamb = PlainSgdJob();
  lamb.mutable_optimizer()->set_kind(OptimizerSpec::LAMB);
  EXPECT_EQ(ErrorOf(async, lamb),
            mode + "ASYNC, but optimizer.kind LAMB is for SYNC");
  JobSpec statistics = PlainSgdJob();
  statistics.mutable_training()->set_sync_batch_statistics(true);
  EXPECT_EQ(ErrorOf(async, statistics),
            mode + "ASYNC, but training.sync_batch_statistics is for SYNC");
  JobSpec cached = PlainSgdJob();
  cached.add_tables()->set_cache_rows(8);
  cached.mutable_tables(0)->set_cache_clocks(3);
  EXPECT_EQ(ErrorOf(ToProto({}), cached),
            mode + "SYNC, but tables[0].cache_clocks is not for SYNC");
  EXPECT_EQ(ErrorOf(ToProto({.mode = ConsistencyMode::kBoundedStaleness,
                             .staleness_bound = 2}),
                    cached),
            "job j-0001: regimes[0].consistency.staleness_bound: 2 is less "
            "than tables[0].cache_clocks, 3");
  EXPECT_EQ(ErrorOf(async, cached), "");
}

JobSpec HybridJob() {
  JobSpec spec = PlainSgdJob();
  spec.set_strategy(HYBRID);
  spec.mutable_consistency()->set_mode(ConsistencySpec::SYNC);
  spec.add_tables()->set_name("t");
  spec.mutable_table_consistency()->set_mode(
      ConsistencySpec::BOUNDED_STALENESS);
  spec.mutable_table_consistency()->set_staleness_bound(3);
  return spec;
}

// The ps hold rows alone, and go by their mode.
TEST(JobRegimesTest, AHybridJobGoesByTheModeOfItsRows) {
  const TrainingRegime expected = {
      .mode = ConsistencyMode::kBoundedStaleness,
      .staleness_bound = 3,
      .strategy = TrainingRegime::Strategy::kHybrid};
  const auto assigned = ReadRegimes(AssignmentOf(HybridJob()));
  ASSERT_OK(assigned.status());
  EXPECT_EQ(assigned->At(0), expected);
  EXPECT_TRUE(assigned->At(0).has_ps());
  EXPECT_TRUE(assigned->At(0).in_step()) << "the dense part is in SYNC";
  EXPECT_FALSE(TrainingRegime{.mode = ConsistencyMode::kAsync}.in_step());
  const Regime message = ToProto(expected);
  EXPECT_EQ(message.consistency().mode(), ConsistencySpec::SYNC);
  EXPECT_EQ(message.table_consistency().staleness_bound(), 3u);
  const auto again = ReadRegime("regime", message);
  ASSERT_OK(again.status());
  EXPECT_EQ(*again, expected);
}

TEST(JobRegimesTest, RefusesAHybridRegimeThatDoesNotFit) {
  const std::string at = "job j-0001: regimes[0].";
  Regime regime = RegimeOf(HybridJob());
  regime.mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
  EXPECT_EQ(ErrorOf(regime, HybridJob()),
            at + "consistency.mode: ASYNC, but HYBRID is for SYNC: it is of "
                 "the dense parameters; rows have table_consistency");
  regime = RegimeOf(HybridJob());
  regime.mutable_table_consistency()->set_mode(ConsistencySpec::LOCAL);
  EXPECT_EQ(ErrorOf(regime, HybridJob()),
            at + "table_consistency.mode: LOCAL is not built");
  regime = RegimeOf(HybridJob());
  regime.set_wire_type(WIRE_BFLOAT16);
  EXPECT_EQ(ErrorOf(regime, HybridJob()), "");
  regime = RegimeOf(PlainSgdJob());
  EXPECT_EQ(ErrorOf(regime, HybridJob()),
            at + "strategy: PARAMETER_SERVER, but the job's is HYBRID");
  regime.mutable_table_consistency()->set_mode(ConsistencySpec::ASYNC);
  EXPECT_EQ(ErrorOf(regime), at + "table_consistency: is for HYBRID only");
  JobSpec cached = HybridJob();
  cached.mutable_tables(0)->set_cache_rows(8);
  cached.mutable_tables(0)->set_cache_clocks(4);
  EXPECT_EQ(ErrorOf(RegimeOf(cached), cached),
            at + "table_consistency.staleness_bound: 3 is less than "
                 "tables[0].cache_clocks, 4");
}

}  // namespace
}  // namespace syncline

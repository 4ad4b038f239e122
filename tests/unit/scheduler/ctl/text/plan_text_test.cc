// Goal: a plan can be read, by people and by programs. Method: one plan and the
// exact text.

#include "scheduler/ctl/text/plan_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/ctl/text/console.h"

namespace syncline::ctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

PlanReport Report() {
  PlanReport report;
  report.spec.set_name("tiny");
  report.spec.mutable_training()->set_batch_size(32);
  report.spec.mutable_training()->set_micro_batches(4);
  report.spec.mutable_resources()->set_workers(3);
  report.spec.mutable_resources()->set_ps(2);
  ExecutorPlan& executor = report.plan.worker.executor;
  executor.parameters = 12345;
  executor.parameter_bytes = 48 << 10;
  executor.gradient_bytes = 48 << 10;
  executor.training_arena_bytes = 1 << 20;
  executor.tensors = {{"h", "activation", {8, 64}, 2048},
                      {"norm", "workspace", {}, 1024},
                      {"w", "parameter", {3}, 12}};
  executor.operators = {{"MatMul", 2, 3e6, 6e6, 1e6}, {"Reshape", 5, 0, 0, 0}};
  report.plan.worker.batch_bytes = 1 << 10;
  report.plan.evaluator.emplace().executor.parameter_bytes = 48 << 10;
  report.plan.ps = {{.value_bytes = 1 << 20, .slot_bytes = 2 << 20},
                    {.value_bytes = 2 << 20, .slot_bytes = 4 << 20}};
  report.plan.tables = {{"users", 16, 1000, 76},
                        {"ads", 8, 0, 44},
                        {"all", 8, int64_t{1} << 62, 44}};
  report.tensors_max = 2;
  return report;
}

TEST(PlanTextTest, SaysWhatCopiesForCheckpointsTakeAndWhatFewerCost) {
  PlanReport report = Report();
  report.spec.mutable_checkpoint()->set_every_clocks(10);
  for (PsPlan& ps : report.plan.ps) ps.copy_bytes = 6 << 20;
  std::string text = PlanText(report);
  EXPECT_THAT(text, testing::HasSubstr(R"(
  checkpoint copies       6.0 MiB  of blocks pushed before they are written
  total                  12.0 MiB
)"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("too little")));
  report.spec.mutable_checkpoint()->set_copy_bytes(1 << 20);
  for (PsPlan& ps : report.plan.ps) ps.copy_bytes = 1 << 20;
  text = PlanText(report);
  EXPECT_THAT(text, testing::HasSubstr("wait until 5.0 MiB are written"));
}

TEST(PlanTextTest, SaysWhereMemoryAndTimeGo) {
  EXPECT_EQ(PlanText(Report()),
            R"(Job tiny: 3 workers, 2 ps, batch 32 in 4 parts
12,345 parameters

The chief
  parameters             48.0 KiB
  gradients              48.0 KiB
  training arena          1.0 MiB  activations and workspaces; others lie in gradients
  batches                 1.0 KiB  read ahead; the data set itself is not in it
  total                   1.1 MiB

An evaluator, if the cluster has one
  parameters             48.0 KiB
  total                  48.0 KiB

The largest ps, without rows of tables, kept or waiting
  parameters              2.0 MiB
  optimizer state         4.0 MiB
  total                   6.0 MiB

Tables, over all ps
  users                      76 B a row, 1,000 rows: 74.2 KiB
  ads                        44 B a row
  all                        44 B a row, 4,611,686,018,427,387,904 rows: 16777216.0 TiB

Largest tensors of a worker
       2.0 KiB  activation  h [8,64]
       1.0 KiB  workspace   norm

A step of a worker computes
  operator                  nodes        forward       backward     recomputed   share
  MatMul                        2     3.00 MFLOP     6.00 MFLOP     1.00 MFLOP  100.0%
  total                         7     3.00 MFLOP     6.00 MFLOP     1.00 MFLOP  100.0%
)");
}

TEST(PlanTextTest, AGpuHasLinesOfItsOwn) {
  PlanReport report = Report();
  report.plan.worker.executor.device = "cuda";
  report.plan.worker.executor.staged_bytes = 3 << 10;
  const std::string text = PlanText(report);
  EXPECT_THAT(text, HasSubstr("batch 32 in 4 parts, on GPUs"));
  EXPECT_THAT(text, HasSubstr(R"(The chief
  parameters             48.0 KiB
  gradients              48.0 KiB
  batches                 1.0 KiB  read ahead; the data set itself is not in it
  total                  97.0 KiB

Its GPU, besides CUDA's own some 0.5 GiB
  parameters             48.0 KiB
  gradients              48.0 KiB
  training arena          1.0 MiB  activations and workspaces; others lie in gradients
  inputs                  3.0 KiB  batches, rows of tables, constants of the model
  total                   1.1 MiB
)"));
  const auto json = PlanJson(report);
  EXPECT_EQ(json.fields()
                .at("worker_gpu")
                .struct_value()
                .fields()
                .at("inputs_bytes")
                .number_value(),
            3 << 10);
  EXPECT_FALSE(PlanJson(Report()).fields().contains("worker_gpu"));
  report.plan.worker.executor.local_bytes = 4 << 20;
  EXPECT_THAT(PlanText(report), HasSubstr(R"(
  inputs                  3.0 KiB  batches, rows of tables, constants of the model
  local steps             4.0 MiB  what a round begins with, and the optimizer's state
  total                   5.1 MiB
)"));
  report.plan.worker.executor.local_bytes = 0;
  report.plan.worker.executor.update_bytes = 4 << 20;
  EXPECT_THAT(PlanText(report), HasSubstr(R"(
  updates                 4.0 MiB  values and the optimizer's state
  total                   5.1 MiB
)"));
}

TEST(PlanTextTest, NamesTheBucketsOfLengths) {
  PlanReport report = Report();
  EXPECT_THAT(PlanText(report), Not(HasSubstr("Batches by")));
  report.spec.mutable_data()->mutable_buckets()->set_dimension("sequence");
  report.plan.worker.executor.lengths = {{8, 1 << 18, 2e6}, {32, 1 << 20, 1e7}};
  EXPECT_THAT(PlanText(report), HasSubstr(R"(
Batches by sequence, in the memory of the longest; all else is of these
        length training arena         a step
             8      256.0 KiB     2.00 MFLOP
            32        1.0 MiB    10.00 MFLOP
)"));
  const std::string json = ToJson(PlanJson(report));
  EXPECT_THAT(json, HasSubstr(R"("length":32)"));
  EXPECT_THAT(json, HasSubstr(R"("step_flops":10000000)"));
}

TEST(PlanTextTest, SaysWhatTheModelNotes) {
  PlanReport report = Report();
  report.notes = {"m.onnx: computes in float64"};
  EXPECT_THAT(PlanText(report),
              HasSubstr("\nnote: m.onnx: computes in float64\n"));
  EXPECT_THAT(ToJson(PlanJson(report)),
              HasSubstr(R"("note":"m.onnx: computes in float64")"));
  report.notes = {"warning: job.textproto: durability: nothing is stored"};
  EXPECT_THAT(PlanText(report), HasSubstr("\nwarning: job.textproto: dura"));
}

TEST(PlanTextTest, SaysThePrecision) {
  PlanReport report = Report();
  EXPECT_THAT(PlanText(report), Not(HasSubstr("precision")));
  EXPECT_THAT(ToJson(PlanJson(report)), HasSubstr(R"("precision":"FLOAT32")"));
  report.spec.set_precision(FLOAT16);
  EXPECT_THAT(PlanText(report),
              HasSubstr("batch 32 in 4 parts, precision FLOAT16\n"));
  EXPECT_THAT(ToJson(PlanJson(report)), HasSubstr(R"("precision":"FLOAT16")"));
}

TEST(PlanTextTest, SaysWhichGroupsThereAre) {
  PlanReport report = Report();
  EXPECT_THAT(PlanText(report), Not(HasSubstr("group")));
  report.spec.mutable_groups()->set_size(1);
  EXPECT_THAT(PlanText(report), Not(HasSubstr("group")));
  report.spec.mutable_groups()->set_size(2);
  EXPECT_THAT(PlanText(report), HasSubstr(", groups of 2\n"));
  EXPECT_THAT(ToJson(PlanJson(report)), HasSubstr(R"("group_size":2)"));
  report.spec.mutable_groups()->set_size(0);
  report.spec.mutable_groups()->set_by_host(true);
  EXPECT_THAT(PlanText(report), HasSubstr(", a group on each host\n"));
  EXPECT_THAT(ToJson(PlanJson(report)), HasSubstr(R"("group_by_host":true)"));
}

TEST(PlanTextTest, SaysWhatLocalStepsTake) {
  PlanReport report = Report();
  EXPECT_THAT(PlanText(report), Not(HasSubstr("round")));
  report.spec.mutable_consistency()->set_mode(ConsistencySpec::LOCAL);
  report.spec.mutable_consistency()->mutable_local()->set_steps(16);
  report.plan.worker.round_bytes = 3 << 20;
  report.plan.worker.slot_bytes = 6 << 20;
  EXPECT_THAT(PlanText(report),
              AllOf(HasSubstr("batch 32 in 4 parts, rounds of 16 steps\n"),
                    HasSubstr("  round values            3.0 MiB  that a round "
                              "of local steps begins with\n"
                              "  optimizer state         6.0 MiB\n")));
  EXPECT_THAT(ToJson(PlanJson(report)),
              AllOf(HasSubstr(R"("local_steps":16)"),
                    HasSubstr(R"("round_values_bytes":3145728)")));
}

TEST(PlanTextTest, ShowsThePlainPlanBesideIt) {
  PlanReport report = Report();
  report.plain = report.plan;
  report.plain->worker.executor.training_arena_bytes = 4 << 20;
  EXPECT_THAT(PlanText(report), HasSubstr("all at once"));
  EXPECT_THAT(
      PlanText(report),
      HasSubstr("  training arena          1.0 MiB        4.0 MiB  act"));
}

TEST(PlanTextTest, JsonHasBytesAndFlops) {
  PlanReport report = Report();
  const std::string json = ToJson(PlanJson(report));
  for (const char* part :
       {R"("name":"tiny")", R"("micro_batches":4)", R"("parameters":12345)",
        R"("training_arena_bytes":1048576)",
        R"("optimizer_state_bytes":2097152)", R"("dims":[8,64])",
        R"("row_bytes":76)", R"("recomputed_flops":1000000)", R"("step":{)"}) {
    EXPECT_THAT(json, HasSubstr(part));
  }
  EXPECT_THAT(json, Not(HasSubstr("plain")));
  report.plain = report.plan;
  EXPECT_THAT(ToJson(PlanJson(report)), HasSubstr(R"("plain":{)"));
}

TEST(PlanTextTest, SaysWhatIsTrained) {
  PlanReport report = Report();
  report.training.parameters = {
      {.name = "w", .dims = {3}, .reason = WeightReason::kFileSays}};
  report.training.fixed = {
      {.name = "half", .dims = {}, .reason = WeightReason::kBuffer}};
  EXPECT_THAT(PlanText(report), HasSubstr(R"(
12,345 parameters
  trained         1 (3 numbers): the file calls them PARAMETER
  not trained     1 (1 numbers): the file calls them BUFFER ('half')
)"));
  EXPECT_EQ(PlanJson(report).fields().at("weights").list_value().values_size(),
            2);
}

}  // namespace
}  // namespace syncline::ctl

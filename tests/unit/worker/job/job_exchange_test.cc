// Goal: a cut whose end waits for an evaluation is held for as long as that
// takes, any other as long as the exchange says; a stop is heard before a
// checkpoint's disk answers. Method: an exchange that writes the hold of its
// cuts down; checkpoints that are not there.

#include "worker/job/job_exchange.h"

#include <optional>
#include <vector>

#include "common/regime/job_regimes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/assigned_job.h"
#include "tests/testing/fakes/idle_exchange.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "worker/job/checkpoint_values.h"

namespace syncline::worker {
namespace {

class FakeExchange final : public IdleExchange {
 public:
  absl::StatusOr<std::vector<int64_t>> BeginCut(const Cut& cut) override {
    hold = cut.hold;
    return cut.clocks;
  }

  std::optional<absl::Duration> hold;
};

// Of the first cut that the chief of such a job announces.
std::optional<absl::Duration> HoldOf(const JobSpec& spec) {
  PreparedJob job;
  job.assignment = AssignToOne(spec, MlpModel(784, 8, 10)).assignment;
  FakeExchange exchange;
  const auto cut =
      AnnounceCut(job, Epochs{.steps_per_epoch = 10, .clocks_total = 20},
                  /*clock=*/0, &exchange);
  EXPECT_OK(cut);
  return exchange.hold;
}

TEST(JobExchangeTest, ACutThatMayEndTheJobIsHeldForItsEvaluation) {
  JobSpec spec = DigitsJob();
  EXPECT_EQ(HoldOf(spec), std::nullopt);
  spec.mutable_stop()->set_patience(2);
  EXPECT_EQ(HoldOf(spec), absl::Hours(24));
}

// Whoever hears it waits for no disk: else it would say that none is there.
TEST(JobExchangeTest, AStopIsHeardWhileTheCheckpointIsLookedFor) {
  const absl::Status stop = absl::CancelledError("stopped");
  const GoOnCheck go_on = [&] { return stop; };
  CheckpointInfo none;
  none.set_path("/checkpoints/7");
  JobSpec spec = DigitsJob();
  spec.set_strategy(ALL_REDUCE);
  spec.mutable_resources()->clear_ps();
  PreparedJob job;
  job.assignment = AssignToOne(spec, MlpModel(784, 8, 10)).assignment;
  job.assignment.clear_ps();
  *job.assignment.mutable_start_from() = none;
  const auto regimes = ReadRegimes(job.assignment);
  ASSERT_OK(regimes.status());
  job.regimes = *regimes;
  JobProcess process;
  process.go_on = go_on;
  process.join_peers = [](auto&&...) {
    return absl::InternalError("joined without its checkpoint");
  };
  EXPECT_EQ(MakeJobExchange(job, process).status(), stop);
  EXPECT_EQ(ReadCheckpointValues(job, none, go_on), stop);
  EXPECT_EQ(
      ScanCheckpointTable(
          job, none, 0, [](auto, auto) { return absl::OkStatus(); }, go_on),
      stop);
}

}  // namespace
}  // namespace syncline::worker

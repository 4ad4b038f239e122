// Goal: a cut whose end waits for an evaluation is held for as long as that
// takes, any other as long as the exchange says. Method: an exchange that
// writes the hold of its cuts down.

#include "worker/job/job_exchange.h"

#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/assigned_job.h"
#include "tests/testing/fakes/idle_exchange.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"

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

}  // namespace
}  // namespace syncline::worker

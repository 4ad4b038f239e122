// Goal: a worker's folds reach the others', whatever their size, and each of
// its waits ends, with the name of who is missing. Method: a real ps in this
// process, and clients in threads.

#include "worker/client/statistics_client.h"

#include <limits>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "common/daemon/metrics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/fakes/relay.h"
#include "tests/testing/fakes/test_metrics.h"
#include "tests/testing/ps_fixture.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

class StatisticsClientTest : public ::testing::Test {
 protected:
  worker::StatisticsClient::Options OptionsOf(uint32_t rank,
                                              absl::Duration step_timeout) {
    return OptionsOf(rank, fixture_.address(0), step_timeout);
  }
  worker::StatisticsClient::Options OptionsOf(uint32_t rank,
                                              const std::string& address,
                                              absl::Duration step_timeout) {
    return OptionsOf(PlainWorker(&fixture_, rank).caller(), address,
                     step_timeout);
  }
  // The root is called at `address`.
  worker::StatisticsClient::Options OptionsOf(const Caller& caller,
                                              const std::string& address,
                                              absl::Duration step_timeout) {
    JobAssignment assignment = fixture_.assignment();
    assignment.mutable_ps(0)->mutable_member()->set_address(address);
    auto routing =
        worker::CurrentRouting::Create(assignment, caller, step_timeout);
    EXPECT_OK(routing.status());
    return {.routing = *std::move(routing), .step_timeout = step_timeout};
  }
  static absl::Status FoldOne(worker::StatisticsClient* client) {
    std::vector<double> values = {1};
    return client->Fold(absl::MakeSpan(values));
  }

  MetricsRegistry metrics_;
  PsFixture fixture_{
      {.workers = 2, .metrics = &metrics_, .spec = [](JobSpec* spec) {
         spec->mutable_training()->set_sync_batch_statistics(true);
       }}};
};

TEST_F(StatisticsClientTest, FoldsMoreThanACallBrings) {
  const auto fold = [this](uint32_t rank) {
    worker::StatisticsClient client(OptionsOf(rank, absl::Seconds(20)));
    for (int64_t clock = 0; clock < 2; ++clock) {
      client.BeginStep(clock, /*recorder=*/nullptr);
      for (const size_t count : {150'000, 2}) {
        std::vector<double> values(count, 1.0 + rank);
        EXPECT_OK(client.Fold(absl::MakeSpan(values)));
        EXPECT_THAT(values, Each(3));
      }
      EXPECT_GT(client.waited(), absl::ZeroDuration());
    }
  };
  std::thread other(fold, 1);
  fold(0);
  other.join();
}

TEST_F(StatisticsClientTest, WhoLeavesIsNotWaitedFor) {
  worker::StatisticsClient chief(OptionsOf(0, absl::Seconds(20)));
  worker::StatisticsClient other(OptionsOf(1, absl::Seconds(20)));
  for (int64_t clock = 0; clock < 3; ++clock) {
    chief.BeginStep(clock, nullptr);
    other.BeginStep(clock, nullptr);
    EXPECT_OK(other.Leave());
    EXPECT_GT(other.waited(), absl::ZeroDuration());
    EXPECT_OK(FoldOne(&chief));
    EXPECT_OK(FoldOne(&chief));
  }
}

TEST_F(StatisticsClientTest, KnowsWhetherOthersHaveSpoiltTheSums) {
  const auto fold = [this](uint32_t rank) {
    worker::StatisticsClient client(OptionsOf(rank, absl::Seconds(20)));
    for (int64_t clock = 0; clock < 2; ++clock) {
      client.BeginStep(clock, /*recorder=*/nullptr);
      const bool is_bad = rank == 1 && clock == 0;
      std::vector<double> bad = {
          1, is_bad ? std::numeric_limits<double>::infinity() : 1};
      EXPECT_OK(client.Fold(absl::MakeSpan(bad)));
      EXPECT_OK(FoldOne(&client));
      EXPECT_EQ(client.spoilt_by_others(), rank == 0 && clock == 0);
    }
  };
  std::thread other(fold, 1);
  fold(0);
  other.join();
}

TEST_F(StatisticsClientTest, AWaitInVainNamesTheMissing) {
  worker::StatisticsClient chief(OptionsOf(0, absl::Seconds(1)));
  chief.BeginStep(5, nullptr);
  const absl::Status status = FoldOne(&chief);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("ps:0 at "), HasSubstr("clock 5"),
                    HasSubstr("missing: worker:1 at 10.0.0.1:1")));
  EXPECT_EQ(FoldOne(&chief), status) << "for good";
}

// A step timeout after the last of what came, not after the first wait.
TEST_F(StatisticsClientTest, AWorkerThatIsSlowerThanOneAttemptIsWaitedFor) {
  // An attempt waits for half of it.
  constexpr absl::Duration kStepTimeout = absl::Seconds(4);
  testing::TestCounter retries;
  worker::StatisticsClient::Options options = OptionsOf(0, kStepTimeout);
  options.telemetry.retries = &retries;
  worker::StatisticsClient chief(options);
  worker::StatisticsClient other(OptionsOf(1, kStepTimeout));
  chief.BeginStep(0, nullptr);
  other.BeginStep(0, nullptr);
  std::thread late([&] {
    EXPECT_TRUE(
        Eventually(absl::Seconds(20), [&] { return retries.value() > 0; }));
    EXPECT_OK(FoldOne(&other));
  });
  EXPECT_OK(FoldOne(&chief));
  late.join();
}

// The other has gone on to the next fold meanwhile.
TEST_F(StatisticsClientTest, AnAnswerThatDoesNotArriveIsAskedForAgain) {
  Relay relay(fixture_.address(0));
  testing::TestCounter retries;
  worker::StatisticsClient::Options options =
      OptionsOf(0, relay.address(), absl::Seconds(2));
  options.telemetry.retries = &retries;
  worker::StatisticsClient chief(options);
  worker::StatisticsClient other(OptionsOf(1, absl::Seconds(20)));
  chief.BeginStep(0, nullptr);
  other.BeginStep(0, nullptr);
  std::thread ahead([&] {
    for (int fold = 0; fold < 3; ++fold) EXPECT_OK(FoldOne(&other));
  });
  EXPECT_OK(FoldOne(&chief));
  relay.Stall(true);
  std::thread restore([&] {
    EXPECT_TRUE(
        Eventually(absl::Seconds(20), [&] { return retries.value() > 0; }));
    relay.Stall(false);
  });
  for (int fold = 1; fold < 3; ++fold) {
    std::vector<double> values = {5};
    EXPECT_OK(chief.Fold(absl::MakeSpan(values)));
    EXPECT_THAT(values, Each(6));
  }
  restore.join();
  ahead.join();
}

TEST_F(StatisticsClientTest, CancelEndsAWait) {
  worker::StatisticsClient chief(OptionsOf(0, absl::Seconds(20)));
  chief.BeginStep(0, nullptr);
  std::thread waiting(
      [&] { EXPECT_EQ(FoldOne(&chief), absl::CancelledError("stopped")); });
  EXPECT_TRUE(Eventually(absl::Seconds(20), [&] {
    return absl::StrContains(metrics_.Render(),
                             "syncline_ps_parked_calls{kind=\"statistics\"} 1");
  }));
  chief.Cancel(absl::CancelledError("stopped"));
  waiting.join();
  EXPECT_EQ(chief.Leave(), absl::CancelledError("stopped"));
}

TEST_F(StatisticsClientTest, AReplacedProcessIsRefused) {
  Caller replaced = PlainWorker(&fixture_, 0).caller();
  replaced.set_incarnation(7);
  worker::StatisticsClient zombie(
      OptionsOf(replaced, fixture_.address(0), absl::Seconds(20)));
  zombie.BeginStep(0, nullptr);
  EXPECT_OK(zombie.status());
  const absl::Status refused = FoldOne(&zombie);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(zombie.status(), refused);
}

}  // namespace
}  // namespace syncline

// Goal: what was under way when the routing changed is made again, all of it
// and once, by a client for the new one. Method: a client that writes down its
// calls and is refused where a test says so; a fake ps brings the routing.

#include "worker/client/routed_exchange.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/wire/routing_version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/assignment_builder.h"
#include "tests/testing/fakes/fake_ps.h"
#include "tests/testing/status_matchers.h"

namespace syncline::worker {
namespace {

using ::testing::ElementsAre;

// The calls of all clients, in order: "2 Wait" is one by version 2.
struct Log {
  std::vector<std::string> calls;
  // A call by version 1 that is refused, because the job is at version 2; one
  // by version 2, after which it is at version 3.
  std::string refused;
  std::string refused_again;
  std::function<void()> on_refused_again = [] {};
  std::vector<int64_t> cut_clocks = {7, 7};  // that BeginCut agrees on
  absl::Status cancelled;
};

class LoggingClient final : public ParameterExchange {
 public:
  LoggingClient(uint64_t version, Log* log) : version_(version), log_(*log) {}

  void Cancel(const absl::Status& reason) override { log_.cancelled = reason; }
  absl::Status Init(int64_t) override { return Call("Init"); }
  absl::Status Pull(int64_t clock) override {
    return Call(absl::StrCat("Pull ", clock));
  }
  absl::Status PullRows(int64_t, uint64_t,
                        absl::Span<RowBatch* const>) override {
    return Call("PullRows");
  }
  absl::Status ReportActivity(int64_t, absl::string_view, uint64_t,
                              uint64_t) override {
    return Call("ReportActivity");
  }
  absl::StatusOr<std::vector<int64_t>> BeginCut(const Cut& cut) override {
    const absl::Status begun =
        Call(absl::StrCat("BeginCut ", absl::StrJoin(cut.clocks, ",")));
    if (!begun.ok()) return begun;
    return log_.cut_clocks;
  }
  absl::Status PullCut(uint64_t, int64_t) override { return Call("PullCut"); }
  absl::Status ScanTable(uint32_t, int64_t, uint64_t, int64_t,
                         RowSink) override {
    return Call("ScanTable");
  }
  absl::Status EndCut(uint64_t, int64_t) override { return Call("EndCut"); }
  void BeginStep(const Step& step) override {
    abandoned_ = false;
    Note(absl::StrCat("BeginStep ", step.clock));
  }
  void PullEarly(absl::Span<RowBatch* const>, int64_t) override {
    Note("PullEarly");
  }
  void AbandonStep(bool own_values) override {
    abandoned_ = true;
    Note(absl::StrCat("AbandonStep ", own_values));
  }
  bool step_abandoned() const override { return abandoned_; }
  bool was_skipped(int64_t clock) const override { return clock == 5; }
  void OnGradientReady(uint32_t tensor) override {
    Note(absl::StrCat("gradient ", tensor));
  }
  void EndBackward(absl::Span<RowBatch* const>) override {
    Note("EndBackward");
  }
  absl::Status Wait() override { return Call("Wait"); }
  WaitTimes wait_times() const override { return {}; }

 private:
  void Note(const std::string& call) {
    log_.calls.push_back(absl::StrCat(version_, " ", call));
  }
  absl::Status Call(const std::string& call) {
    Note(call);
    const bool again = version_ == 2 && call == log_.refused_again;
    if (again) log_.on_refused_again();
    if (!again && (version_ > 1 || call != log_.refused)) {
      return absl::OkStatus();
    }
    return WithRoutingVersion(absl::AbortedError("elsewhere"), version_ + 1);
  }

  const uint64_t version_;
  Log& log_;
  bool abandoned_ = false;
};

class RoutedExchangeTest : public ::testing::Test {
 protected:
  RoutedExchangeTest() {
    const JobAssignment assignment = AssignmentBuilder({}, "j")
                                         .Parameter("w", {4096})
                                         .Workers(2)
                                         .PsAt(ps_.address())
                                         .Build();
    response_.mutable_routing()->set_version(2);
    *response_.mutable_ps() = assignment.ps();
    Caller caller;
    caller.set_job_id("j");
    auto routing =
        CurrentRouting::Create(assignment, caller, absl::Seconds(20));
    EXPECT_OK(routing.status());
    RoutedExchange::Options options;
    options.routing = *std::move(routing);
    options.make_client = [this](const std::shared_ptr<const RoutedJob>& job) {
      return std::make_unique<LoggingClient>(job->table.version(), &log_);
    };
    options.on_routing = [this](const RoutingTable& table) {
      log_.calls.push_back(absl::StrCat("rows to ", table.version()));
    };
    exchange_ = std::make_unique<RoutedExchange>(options);
  }

  Log log_;
  GetRoutingResponse response_;
  FakePs ps_{[this](const FakePs::Call&) {
    return FakePs::Answer{.response = response_.SerializeAsString()};
  }};
  std::unique_ptr<RoutedExchange> exchange_;
};

TEST_F(RoutedExchangeTest, AStepIsHandedOverAgain) {
  log_.refused = "Wait";
  RowBatch* const no_rows[] = {nullptr};
  exchange_->BeginStep({.clock = 4, .sample_count = 1});
  exchange_->PullEarly(no_rows, 3);
  exchange_->OnGradientReady(1);
  exchange_->OnGradientReady(0);
  exchange_->EndBackward({});
  EXPECT_OK(exchange_->Wait());
  EXPECT_THAT(
      log_.calls,
      ElementsAre("1 BeginStep 4", "1 PullEarly", "1 gradient 1",
                  "1 gradient 0", "1 EndBackward", "1 Wait", "rows to 2",
                  "2 BeginStep 4", "2 PullEarly", "2 gradient 1",
                  "2 gradient 0", "2 EndBackward", "2 Wait"));
  log_.calls.clear();
  EXPECT_OK(exchange_->Pull(5));
  EXPECT_THAT(log_.calls, ElementsAre("2 Pull 5")) << "the step is over";
}

TEST_F(RoutedExchangeTest, AnAbandonedStepStaysSo) {
  log_.refused = "Wait";
  exchange_->BeginStep({.clock = 4, .sample_count = 1});
  exchange_->AbandonStep(/*own_values=*/true);
  exchange_->EndBackward({});
  EXPECT_OK(exchange_->Wait());
  EXPECT_TRUE(exchange_->step_abandoned());
  EXPECT_THAT(log_.calls,
              ElementsAre("1 BeginStep 4", "1 AbandonStep 1", "1 EndBackward",
                          "1 Wait", "rows to 2", "2 BeginStep 4",
                          "2 AbandonStep 0", "2 EndBackward", "2 Wait"))
      << "its values are counted once";
}

TEST_F(RoutedExchangeTest, AnAbandonedStepStaysSoIfTheRoutingChangesTwice) {
  exchange_->BeginStep({.clock = 4, .sample_count = 1});
  exchange_->AbandonStep(/*own_values=*/true);
  exchange_->EndBackward({});
  log_.calls.clear();
  log_.refused = "Wait";
  log_.refused_again = "Wait";
  log_.on_refused_again = [this] {
    response_.mutable_routing()->set_version(3);
  };
  EXPECT_OK(exchange_->Wait());
  EXPECT_THAT(
      log_.calls,
      ElementsAre("1 Wait", "rows to 2", "2 BeginStep 4", "2 AbandonStep 0",
                  "2 EndBackward", "2 Wait", "rows to 3", "3 BeginStep 4",
                  "3 AbandonStep 0", "3 EndBackward", "3 Wait"));
  log_.calls.clear();
  exchange_->BeginStep({.clock = 5, .sample_count = 1});
  EXPECT_FALSE(exchange_->step_abandoned());
}

// A call between the step's begin and its end finds out.
TEST_F(RoutedExchangeTest, AStepIsHandedOverAsFarAsItIs) {
  log_.refused = "ReportActivity";
  exchange_->BeginStep({.clock = 4, .sample_count = 1});
  exchange_->OnGradientReady(1);
  EXPECT_OK(exchange_->ReportActivity(4, "computing", 1, 2));
  exchange_->OnGradientReady(0);
  exchange_->EndBackward({});
  EXPECT_OK(exchange_->Wait());
  EXPECT_THAT(log_.calls,
              ElementsAre("1 BeginStep 4", "1 gradient 1", "1 ReportActivity",
                          "rows to 2", "2 BeginStep 4", "2 gradient 1",
                          "2 ReportActivity", "2 gradient 0", "2 EndBackward",
                          "2 Wait"));
}

// The later shards know the cuts that are announced.
TEST_F(RoutedExchangeTest, AnOpenCutIsReadAndEndedElsewhere) {
  log_.refused = "PullCut";
  const auto agreed = exchange_->BeginCut({.id = 9, .clocks = {5, 5}});
  ASSERT_OK(agreed.status());
  EXPECT_THAT(*agreed, ElementsAre(7, 7));
  EXPECT_OK(exchange_->PullCut(9, 7));
  EXPECT_OK(exchange_->EndCut(9, 7));
  EXPECT_THAT(log_.calls, ElementsAre("1 BeginCut 5,5", "1 PullCut",
                                      "rows to 2", "2 PullCut", "2 EndCut"));
}

TEST_F(RoutedExchangeTest, ACutThatIsUnderWayGoesOnElsewhere) {
  log_.refused = "BeginCut 5,5";
  log_.refused_again = "BeginCut 5,5";
  log_.on_refused_again = [this] {
    response_.mutable_routing()->set_version(3);
  };
  const auto agreed = exchange_->BeginCut({.id = 9, .clocks = {5, 5}});
  ASSERT_OK(agreed.status());
  EXPECT_THAT(log_.calls,
              ElementsAre("1 BeginCut 5,5", "rows to 2", "2 BeginCut 5,5",
                          "rows to 3", "3 BeginCut 5,5"));
}

TEST_F(RoutedExchangeTest, ACutEndsWhileTheRoutingChanges) {
  log_.refused = "EndCut";
  ASSERT_OK(exchange_->BeginCut({.id = 9, .clocks = {7, 7}}).status());
  log_.calls.clear();
  EXPECT_OK(exchange_->EndCut(9, 7));
  EXPECT_THAT(log_.calls, ElementsAre("1 EndCut", "rows to 2", "2 EndCut"));
}

TEST_F(RoutedExchangeTest, ACancelReachesTheClientOfTheTime) {
  exchange_->Cancel(absl::CancelledError("stopped"));
  EXPECT_EQ(log_.cancelled, absl::CancelledError("stopped"));
  log_.cancelled = absl::OkStatus();
  // A call that is refused later is not made again.
  log_.refused = "Pull 8";
  EXPECT_EQ(exchange_->Pull(8), absl::CancelledError("stopped"));
}

}  // namespace
}  // namespace syncline::worker

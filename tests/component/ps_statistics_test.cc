// Goal: over real gRPC, the ps of rank 0 adds up statistics of a step's batch,
// says who is missing, and refuses what it should. Method: a ps in this process
// and threads that call it with nothing but generated code.

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/rpc/grpc_status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/ps_fixture.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(20);

void FoldStatisticsOf(JobSpec* spec) {
  spec->mutable_training()->set_sync_batch_statistics(true);
}

class PsStatisticsTest : public ::testing::Test {
 protected:
  using Sums = absl::StatusOr<std::vector<double>>;

  FoldStatisticsRequest Request(uint32_t rank, int64_t clock, uint32_t fold,
                                std::vector<double> values) {
    FoldStatisticsRequest request;
    *request.mutable_caller() = PlainWorker(&fixture_, rank).caller();
    request.set_clock(clock);
    request.set_fold(fold);
    request.mutable_values()->Add(values.begin(), values.end());
    request.set_wait_seconds(absl::ToDoubleSeconds(kTimeout));
    return request;
  }
  Sums Call(const FoldStatisticsRequest& request) {
    FoldStatisticsResponse response;
    const grpc::Status status = fixture_.stub(0).FoldStatistics(
        MakeContext(absl::Now() + kTimeout).get(), request, &response);
    if (!status.ok()) return FromGrpcStatus(status);
    return std::vector<double>(response.sums().begin(), response.sums().end());
  }
  bool HasParked(int count) {
    return absl::StrContains(
        metrics_.Render(),
        absl::StrCat("syncline_ps_parked_calls{kind=\"statistics\"} ", count));
  }
  double QuietSeconds() {
    ShardStatus status;
    fixture_.stub(0).GetShardStatus(MakeContext(absl::Now() + kTimeout).get(),
                                    ShardStatusRequest(), &status);
    return status.jobs(0).quiet_seconds();
  }

  MetricsRegistry metrics_;
  PsFixture fixture_{
      {.workers = 2, .metrics = &metrics_, .spec = FoldStatisticsOf}};
};

TEST_F(PsStatisticsTest, AddsUpFoldAfterFold) {
  EXPECT_LT(QuietSeconds(), 0);
  const auto train = [this](uint32_t rank) {
    for (int64_t clock = 0; clock < 3; ++clock) {
      for (uint32_t fold = 0; fold < 4; ++fold) {
        const Sums sums = Call(Request(rank, clock, fold, {1.0 + rank, -0.5}));
        ASSERT_OK(sums.status());
        EXPECT_THAT(*sums, ElementsAre(3, -1));
      }
    }
  };
  std::thread other(train, 1);
  train(0);
  other.join();
  EXPECT_GE(QuietSeconds(), 0);
  EXPECT_THAT(metrics_.Render(),
              HasSubstr("syncline_ps_requests_total{code=\"OK\",rpc=\""
                        "FoldStatistics\"} 24"));
}

TEST_F(PsStatisticsTest, WhoIsAbsentIsAnsweredAndNotWaitedFor) {
  FoldStatisticsRequest leave = Request(1, 0, 0, {});
  leave.set_absent(true);
  leave.set_wait_seconds(0);
  const Sums left = Call(leave);
  ASSERT_OK(left.status());
  EXPECT_THAT(*left, ElementsAre());
  const Sums alone = Call(Request(0, 0, 0, {7}));
  ASSERT_OK(alone.status());
  EXPECT_THAT(*alone, ElementsAre(7));
}

TEST_F(PsStatisticsTest, AnOverdueCallNamesTheMissingWithAddress) {
  FoldStatisticsRequest request = Request(0, 6, 0, {1});
  request.set_wait_seconds(0.2);
  const absl::Status overdue = Call(request).status();
  EXPECT_EQ(overdue.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(
      std::string(overdue.message()),
      AllOf(HasSubstr("job j-0001 on ps:0 at "), HasSubstr("clock 6, fold 0"),
            HasSubstr("missing: worker:1 at 10.0.0.1:1")));
}

TEST_F(PsStatisticsTest, WhoGivesUpLeavesItsPartBehind) {
  const auto context = MakeContext(absl::Now() + kTimeout);
  std::thread waiting([&] {
    FoldStatisticsResponse response;
    EXPECT_EQ(
        fixture_.stub(0)
            .FoldStatistics(context.get(), Request(0, 0, 0, {1}), &response)
            .error_code(),
        grpc::StatusCode::CANCELLED);
  });
  EXPECT_TRUE(Eventually(kTimeout, [&] { return HasParked(1); }));
  context->TryCancel();
  waiting.join();
  EXPECT_TRUE(Eventually(kTimeout, [&] { return HasParked(0); }));
  const Sums sums = Call(Request(1, 0, 0, {2}));
  ASSERT_OK(sums.status());
  EXPECT_THAT(*sums, ElementsAre(3));
  // The repeat.
  EXPECT_THAT(Call(Request(0, 0, 0, {1})).value(), ElementsAre(3));
}

TEST_F(PsStatisticsTest, ClosingTheJobCancelsWhoWaits) {
  std::thread waiting([this] {
    const absl::Status closed = Call(Request(0, 0, 0, {1})).status();
    EXPECT_EQ(closed.code(), absl::StatusCode::kCancelled);
    EXPECT_THAT(std::string(closed.message()), HasSubstr("enough"));
  });
  EXPECT_TRUE(Eventually(kTimeout, [&] { return HasParked(1); }));
  fixture_.server(0).CloseJob("j-0001", "enough");
  waiting.join();
}

TEST_F(PsStatisticsTest, RefusesWhatItShould) {
  const auto refused = [&](auto change) {
    FoldStatisticsRequest request = Request(1, 0, 0, {1});
    change(&request);
    return Call(request).status();
  };
  using Request = FoldStatisticsRequest;
  EXPECT_EQ(refused([](Request* r) {
              r->mutable_caller()->set_routing_version(0);
            }).code(),
            absl::StatusCode::kAborted);
  EXPECT_EQ(refused([](Request* r) {
              r->mutable_caller()->set_incarnation(9);
            }).code(),
            absl::StatusCode::kFailedPrecondition);
  for (const absl::Status& status :
       {refused([](Request* r) { r->mutable_caller()->set_rank(2); }),
        refused([](Request* r) { r->set_clock(-1); }),
        refused([](Request* r) { r->set_wait_seconds(0); }),
        refused([](Request* r) { r->clear_values(); })}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  }
}

absl::Status FoldAt(PsFixture* fixture, uint32_t ps) {
  FoldStatisticsRequest request;
  *request.mutable_caller() = PlainWorker(fixture, 0).caller(ps);
  request.add_values(1);
  request.set_wait_seconds(1);
  FoldStatisticsResponse response;
  return FromGrpcStatus(fixture->stub(ps).FoldStatistics(
      MakeContext(absl::Now() + kTimeout).get(), request, &response));
}

TEST(PsStatisticsOfOthersTest, NobodyElseFolds) {
  PsFixture folds({.ps_count = 2, .spec = FoldStatisticsOf});
  EXPECT_OK(FoldAt(&folds, 0));
  PsFixture plain({});
  for (const absl::Status& status : {FoldAt(&folds, 1), FoldAt(&plain, 0)}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("training.sync_batch_statistics"));
  }
}

TEST(PsStatisticsOfOthersTest, OnlySyncJobsFold) {
  PsFixture fixture({});
  JobAssignment assignment = fixture.assignment();
  assignment.set_job_id("j-0002");
  FoldStatisticsOf(assignment.mutable_spec());
  assignment.mutable_regimes(0)->mutable_consistency()->set_mode(
      ConsistencySpec::ASYNC);
  EXPECT_THAT(
      std::string(fixture.server(0).OpenJob(assignment, 0).message()),
      HasSubstr("ASYNC, but training.sync_batch_statistics is for SYNC"));
}

}  // namespace
}  // namespace syncline

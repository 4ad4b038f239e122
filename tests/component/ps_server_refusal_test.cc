// Goal: a ps refuses calls and jobs that cannot be right, says why, and changes
// nothing. Method: one wrong field at a time, sent by a client made of nothing
// but generated code.

#include <limits>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "common/rpc/grpc_status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/component/ps_server_fixture.h"
#include "tests/testing/assignment_builder.h"
#include "tests/testing/ps_fixture.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;

// Everything but FoldNorm and FoldStatistics, which have tests of their own.
std::vector<std::pair<std::string, absl::Status>> CallEverythingAs(
    const Caller& caller, PsFixture* fixture) {
  ParameterServer::Stub& stub = fixture->stub(0);
  std::vector<std::pair<std::string, absl::Status>> calls;
  const auto call = [&](const std::string& name, auto method, auto request,
                        auto response) {
    const auto context = MakeContext(absl::Now() + kPsTimeout);
    calls.push_back({name, FromGrpcStatus((stub.*method)(context.get(), request,
                                                         &response))});
  };
  PlainWorker chief(fixture, 0);
  InitRequest init;
  *init.mutable_header()->mutable_caller() = caller;
  call("Init", &ParameterServer::Stub::Init, init, InitResponse());
  PushRequest push = chief.MakePush(0, 0, Constant(*fixture, 1), 1);
  *push.mutable_header()->mutable_caller() = caller;
  call("Push", &ParameterServer::Stub::Push, push, PushResponse());
  PullRequest pull = chief.MakePull(0, 0);
  *pull.mutable_header()->mutable_caller() = caller;
  call("Pull", &ParameterServer::Stub::Pull, pull, PullResponse());
  PushPullRequest both;
  *both.mutable_header()->mutable_push() = push.header();
  *both.mutable_header()->mutable_pull() = pull.header();
  both.mutable_header()->mutable_pull()->clear_caller();
  both.set_payload(push.payload());
  call("PushPull", &ParameterServer::Stub::PushPull, both, PullResponse());
  BeginCutRequest begin;
  *begin.mutable_caller() = caller;
  begin.set_cut_id(1);
  begin.add_clocks(1);
  begin.set_hold_seconds(1);
  call("BeginCut", &ParameterServer::Stub::BeginCut, begin, BeginCutResponse());
  EndCutRequest end;
  *end.mutable_caller() = caller;
  end.set_cut_id(1);
  call("EndCut", &ParameterServer::Stub::EndCut, end, EndCutResponse());
  ActivityRequest activity;
  *activity.mutable_caller() = caller;
  activity.set_total(1);
  call("ReportActivity", &ParameterServer::Stub::ReportActivity, activity,
       ActivityResponse());
  ScanTableRequest scan;
  *scan.mutable_header()->mutable_caller() = caller;
  call("ScanTable", &ParameterServer::Stub::ScanTable, scan,
       ScanTableResponse());
  OfferMemoryRequest offer;
  *offer.mutable_caller() = caller;
  call("OfferMemory", &ParameterServer::Stub::OfferMemory, offer,
       OfferMemoryResponse());
  AttachMemoryRequest attach;
  *attach.mutable_caller() = caller;
  attach.set_token("guess");
  call("AttachMemory", &ParameterServer::Stub::AttachMemory, attach,
       AttachMemoryResponse());
  return calls;
}

TEST(PsServerTest, WhoDoesNotKnowTheIncarnationIsRefusedInEveryCall) {
  PsFixture fixture({.workers = 1});
  PlainWorker chief(&fixture, 0);
  ASSERT_OK(chief.Init(Constant(fixture, 1)));
  Caller stranger = chief.caller();
  stranger.set_incarnation(4711);
  for (const auto& [name, status] : CallEverythingAs(stranger, &fixture)) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << name;
    EXPECT_THAT(Message(status), HasSubstr("incarnation 0x")) << name;
  }
  Caller unknown = chief.caller();
  unknown.set_rank(1);
  for (const auto& [name, status] : CallEverythingAs(unknown, &fixture)) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(Message(status), HasSubstr("rank 1 calls")) << name;
  }
  // Nothing has changed.
  ASSERT_OK_AND_ASSIGN(const Flat values, chief.Pull(0));
  EXPECT_EQ(values, Constant(fixture, 1));
}

class RefusalTest : public ::testing::Test {
 protected:
  RefusalTest()
      : fixture_({.ps_count = 2, .workers = 2}), worker_(&fixture_, 0) {
    EXPECT_OK(worker_.Init(Constant(fixture_, 0)));
    push_ = worker_.MakePush(0, 0, Constant(fixture_, 1), 4);
    pull_ = worker_.MakePull(0, 0);
  }
  void ExpectPush(absl::StatusCode code, const std::string& text) {
    const absl::Status status = worker_.Send(0, push_);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(Message(status), HasSubstr(text));
    push_ = worker_.MakePush(0, 0, Constant(fixture_, 1), 4);
  }
  void ExpectPull(absl::StatusCode code, const std::string& text) {
    const absl::Status status = worker_.Send(0, pull_);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(Message(status), HasSubstr(text));
    pull_ = worker_.MakePull(0, 0);
  }
  PushHeader& header() { return *push_.mutable_header(); }

  PsFixture fixture_;
  PlainWorker worker_;
  PushRequest push_;
  PullRequest pull_;
};

TEST_F(RefusalTest, StrangeCallers) {
  header().mutable_caller()->set_job_id("j-0002");
  ExpectPush(absl::StatusCode::kFailedPrecondition, "job j-0002 is not open");
  header().mutable_caller()->set_attempt(2);
  ExpectPush(absl::StatusCode::kFailedPrecondition,
             "the caller is of attempt 2, this is attempt 1");
  header().mutable_caller()->set_job_secret("fedcba9876543210");
  ExpectPush(absl::StatusCode::kPermissionDenied,
             "does not show the secret of attempt 1");
  header().mutable_caller()->clear_job_secret();
  ExpectPush(absl::StatusCode::kPermissionDenied, "does not show the secret");
  header().mutable_caller()->set_routing_version(0);
  ExpectPush(absl::StatusCode::kAborted, "routing version 0, this ps is at 1");
  header().mutable_caller()->set_routing_version(2);
  ExpectPush(absl::StatusCode::kUnavailable,
             "routing version 2, this ps is at 1 and not yet there");
  header().mutable_caller()->set_shard(1);
  ExpectPush(absl::StatusCode::kFailedPrecondition, "shard 1 is not here");
  header().mutable_caller()->set_rank(7);
  ExpectPush(absl::StatusCode::kInvalidArgument, "ranks 0 to 1");
  header().mutable_caller()->set_incarnation(1);
  ExpectPush(absl::StatusCode::kFailedPrecondition,
             "of worker:0 at 10.0.0.0:1 was replaced by 0x2325");
}

TEST_F(RefusalTest, BlocksThatAreNotHere) {
  header().set_blocks(0, 100000);
  ExpectPush(absl::StatusCode::kInvalidArgument, "block 100000 does not exist");
  header().set_blocks(0, fixture_.map().shard_blocks(1)[0]);
  ExpectPush(absl::StatusCode::kInvalidArgument, "belongs to ps rank 1");
  header().mutable_blocks()->SwapElements(0, 1);
  ExpectPush(absl::StatusCode::kInvalidArgument, "must be ascending");
  header().set_blocks(1, header().blocks(0));
  ExpectPush(absl::StatusCode::kInvalidArgument, "must be ascending");
  pull_.mutable_header()->set_blocks(0, 100000);
  ExpectPull(absl::StatusCode::kInvalidArgument, "block 100000 does not exist");
}

TEST_F(RefusalTest, PayloadsThatDoNotFit) {
  push_.mutable_payload()->pop_back();
  ExpectPush(absl::StatusCode::kInvalidArgument, "the payload has");
  push_.mutable_payload()->append("abcd");
  ExpectPush(absl::StatusCode::kInvalidArgument, "the payload has");
  push_.clear_payload();
  ExpectPush(absl::StatusCode::kInvalidArgument, "the payload has 0 bytes");
}

TEST_F(RefusalTest, NumbersThatCannotBe) {
  header().set_clock(-1);
  ExpectPush(absl::StatusCode::kInvalidArgument, "push.clock is -1");
  header().set_sample_count(uint64_t{1} << 60);
  ExpectPush(absl::StatusCode::kInvalidArgument, "push.sample_count");
  header().set_sample_count(0);
  ExpectPush(absl::StatusCode::kInvalidArgument, "without any sample");
  header().set_blocks_in_clock(1);
  ExpectPush(absl::StatusCode::kInvalidArgument, "announced with 1 blocks");
  header().set_blocks_in_clock(100000);
  ExpectPush(absl::StatusCode::kInvalidArgument, "blocks_in_clock is 100000");
  header().set_squared_norm(std::numeric_limits<double>::quiet_NaN());
  ExpectPush(absl::StatusCode::kInvalidArgument, "push.squared_norm is nan");
  pull_.mutable_header()->set_wait_seconds(0);
  ExpectPull(absl::StatusCode::kInvalidArgument, "pull.wait_seconds is 0");
  pull_.mutable_header()->set_wait_seconds(
      std::numeric_limits<double>::infinity());
  ExpectPull(absl::StatusCode::kInvalidArgument, "pull.wait_seconds is inf");
  pull_.mutable_header()->set_cut_id(9);
  ExpectPull(absl::StatusCode::kFailedPrecondition, "cut 9 is not announced");
  // None of it left a trace.
  EXPECT_OK(worker_.Send(0, push_));
}

TEST_F(RefusalTest, CutsThatWouldHoldForTooLong) {
  BeginCutRequest cut;
  *cut.mutable_caller() = worker_.caller();
  cut.set_cut_id(1);
  cut.add_clocks(0);
  cut.add_clocks(0);
  const auto begin = [&](double hold_seconds) {
    cut.set_hold_seconds(hold_seconds);
    BeginCutResponse response;
    return FromGrpcStatus(fixture_.stub(0).BeginCut(
        MakeContext(absl::Now() + kPsTimeout).get(), cut, &response));
  };
  constexpr double kMost = 4 * 24 * 60 * 60;
  for (const double hold :
       {0.0, -1.0, kMost * 1.001, std::numeric_limits<double>::infinity(),
        std::numeric_limits<double>::quiet_NaN()}) {
    const absl::Status refused = begin(hold);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << hold;
    EXPECT_THAT(Message(refused), HasSubstr("hold_seconds of cut 1"));
  }
  EXPECT_OK(begin(kMost));
}

TEST_F(RefusalTest, ActivitiesThatCannotBe) {
  ActivityRequest activity;
  *activity.mutable_caller() = worker_.caller();
  const auto report = [&](int64_t clock, uint64_t done, uint64_t total,
                          const std::string& what) {
    activity.set_clock(clock);
    activity.set_done(done);
    activity.set_total(total);
    activity.set_what(what);
    ActivityResponse response;
    return FromGrpcStatus(fixture_.stub(0).ReportActivity(
        MakeContext(absl::Now() + kPsTimeout).get(), activity, &response));
  };
  EXPECT_OK(report(0, 3, 3, std::string(64, 'x')));
  for (const absl::Status& refused :
       {report(-1, 0, 1, ""), report(0, 0, 0, ""), report(0, 2, 1, ""),
        report(0, 0, 1, std::string(65, 'x'))}) {
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
  }
}

TEST_F(RefusalTest, NormsOnlyAtTheFirstShardAndOnlyTrueOnes) {
  FoldNormRequest request;
  request.set_job_id("j-0001");
  request.set_ps_rank(1);
  request.set_incarnation(501);
  request.set_attempt(kTestPass.attempt);
  request.set_job_secret(kTestPass.secret);
  request.set_routing_version(1);
  const auto ask = [&](uint32_t ps) {
    FoldNormResponse response;
    return FromGrpcStatus(fixture_.stub(ps).FoldNorm(
        MakeContext(absl::Now() + kPsTimeout).get(), request, &response));
  };
  EXPECT_THAT(Message(ask(1)), HasSubstr("shard 0 is not here"));
  EXPECT_THAT(Message(ask(0)), HasSubstr("norms of 0 blocks from ps:1"));
  request.set_incarnation(1);
  EXPECT_EQ(ask(0).code(), absl::StatusCode::kFailedPrecondition);
  request.set_job_secret("fedcba9876543210");
  EXPECT_EQ(ask(0).code(), absl::StatusCode::kPermissionDenied);
}

TEST(PsServerTest, RefusesJobsItCannotRun) {
  PsFixture fixture({});
  JobAssignment assignment = fixture.assignment();
  assignment.set_job_id("j-0002");
  const auto open = [&] {
    return Message(fixture.server(0).OpenJob(assignment, 0));
  };
  assignment.mutable_spec()->mutable_optimizer()->set_kind(OptimizerSpec::LAMB);
  assignment.mutable_regimes(0)->mutable_consistency()->set_mode(
      ConsistencySpec::ASYNC);
  EXPECT_THAT(open(), HasSubstr("regimes[0].consistency.mode: ASYNC, but "
                                "optimizer.kind LAMB is for SYNC"));
  assignment.clear_regimes();
  EXPECT_THAT(open(), HasSubstr("regimes: the assignment has none"));
  assignment = fixture.assignment();
  assignment.set_job_id("j-0002");
  assignment.mutable_parameters(0)->set_dims(0, int64_t{1} << 39);
  EXPECT_THAT(open(), HasSubstr("MiB are available"));
  assignment.mutable_parameters(0)->add_dims(int64_t{1} << 40);
  EXPECT_THAT(open(), HasSubstr("tensor t0: more than"));
  assignment.mutable_parameters(0)->mutable_dims()->RemoveLast();
  assignment.clear_workers();
  EXPECT_THAT(open(), HasSubstr("no worker"));
  EXPECT_THAT(Message(fixture.server(0).OpenJob(fixture.assignment(), 5)),
              HasSubstr("there is no rank 5"));
}

}  // namespace
}  // namespace syncline

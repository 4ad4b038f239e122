// Goal: the service answers every call exactly once and with its cause: calls
// that no job takes, calls without room, calls that are parked and then
// cancelled, overdue or answered after their caller has left. The budget that
// a refused or ended call held is free afterwards.
// Method: the service alone, over real gRPC, with one shard of two workers. The
// test owns the job, the budget and the ticks, so no call waits for a clock.

#include "server/service/parameter_service.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/base/busy.h"
#include "common/base/clock.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.grpc.pb.h"
#include "server/lanes/lanes.h"
#include "tests/testing/assignment_builder.h"
#include "tests/testing/eventually.h"
#include "tests/testing/status_matchers.h"

namespace syncline::ps {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(60);
constexpr uint64_t kBudget = 1 << 20;

// One tensor of four elements, SYNC, SGD at rate 1, two workers.
JobAssignment SmallJob() {
  return AssignmentBuilder(PlainSgdJob(), "j")
      .Parameter("w", {4})
      .Workers(2)
      .Ps(1)
      .Build();
}

std::string Floats(float value) {
  const std::vector<float> values(4, value);
  return std::string(reinterpret_cast<const char*>(values.data()),
                     values.size() * sizeof(float));
}

Caller CallerOf(uint32_t rank) {
  Caller caller;
  caller.set_job_id("j");
  caller.set_rank(rank);
  caller.set_incarnation(kTestWorkerIncarnation + rank);
  caller.set_routing_version(1);
  caller.set_attempt(kTestPass.attempt);
  caller.set_job_secret(kTestPass.secret);
  return caller;
}

PushRequest PushOf(uint32_t rank, int64_t clock, float gradient) {
  PushRequest request;
  PushHeader* const header = request.mutable_header();
  *header->mutable_caller() = CallerOf(rank);
  header->set_clock(clock);
  header->set_sample_count(1);
  header->set_blocks_in_clock(1);
  header->add_blocks(0);
  request.set_payload(Floats(gradient));
  return request;
}

PullRequest PullOf(uint32_t rank, int64_t clock) {
  PullRequest request;
  PullHeader* const header = request.mutable_header();
  *header->mutable_caller() = CallerOf(rank);
  header->set_clock(clock);
  header->add_blocks(0);
  header->set_wait_seconds(absl::ToDoubleSeconds(kTimeout));
  return request;
}

// A Pull that is under way.
struct PendingPull {
  std::unique_ptr<grpc::ClientContext> context =
      MakeContext(MonotonicNow() + kTimeout);
  PullRequest request;
  PullResponse response;
  absl::Status status;
  absl::Notification ended;
};

class ParameterServiceTest : public ::testing::Test {
 protected:
  ParameterServiceTest() {
    grpc::ServerBuilder builder;
    builder.RegisterService(service_.get());
    auto listening = StartServer(&builder, "127.0.0.1:0");
    EXPECT_OK(listening.status());
    server_ = std::move(listening->server);
    address_ = listening->address;
    stub_ = ParameterServer::NewStub(MakeChannel(address_));
    OpenJob();
  }
  ~ParameterServiceTest() override {
    CloseJob();
    server_->Shutdown();
  }

  void OpenJob() {
    const JobAssignment assignment = SmallJob();
    auto job = std::make_shared<JobEntry>();
    auto config = ReadJobConfig(assignment, 0);
    ASSERT_OK(config.status());
    auto tables = EmbeddingTables::Create(*config, lanes_.count(), {}, {});
    ASSERT_OK(tables.status());
    job->config = *config;
    job->norms = std::make_shared<NormAllReduce>(
        assignment, *RoutingTable::Create(assignment), 0, config->label,
        kTimeout);
    job->shard = std::make_shared<JobShard>(
        *config, JobShard::Resources{&lanes_, budget_.get(), buffers_.get()},
        nullptr, *std::move(tables));
    auto access = ReadJobAccess(assignment, 0);
    ASSERT_OK(access.status());
    ASSERT_OK(jobs_.Add(std::make_shared<const JobAccess>(*std::move(access)),
                        {std::move(job)}));
    InitRequest init;
    *init.mutable_header()->mutable_caller() = CallerOf(0);
    init.mutable_header()->add_blocks(0);
    init.set_payload(Floats(1));
    InitResponse response;
    ASSERT_OK(FromGrpcStatus(stub_->Init(Context().get(), init, &response)));
  }
  void CloseJob() {
    const auto shards = jobs_.Remove("j");
    if (!shards.has_value()) return;
    for (const auto& job : *shards) {
      job->norms->Close(absl::CancelledError("over"));
      job->shard->Close(absl::CancelledError("the job was closed"));
    }
    lanes_.Drain();
  }
  JobShard* shard() { return (*jobs_.Find("j", 0))->shard.get(); }

  static std::unique_ptr<grpc::ClientContext> Context() {
    return MakeContext(MonotonicNow() + kTimeout);
  }
  absl::Status Push(const PushRequest& request) {
    PushResponse response;
    return FromGrpcStatus(stub_->Push(Context().get(), request, &response));
  }
  // Starts a pull that must wait, and returns when the shard has parked it.
  std::shared_ptr<PendingPull> ParkPull(uint32_t rank, int64_t clock) {
    auto pull = std::make_shared<PendingPull>();
    pull->request = PullOf(rank, clock);
    stub_->async()->Pull(pull->context.get(), &pull->request, &pull->response,
                         [pull](const grpc::Status& status) {
                           pull->status = FromGrpcStatus(status);
                           pull->ended.Notify();
                         });
    EXPECT_TRUE(Eventually(kTimeout, [&] { return ParkedPulls() == 1; }));
    return pull;
  }
  uint32_t ParkedPulls() { return shard()->Status().parked_pulls(); }
  // gRPC frees what a call held once the call is over on both sides.
  void ExpectBudgetFree() {
    EXPECT_TRUE(Eventually(kTimeout, [&] {
      return budget_->used_bytes() == 0;
    })) << budget_->used_bytes();
  }
  bool HasCounted(const std::string& rpc, const std::string& code, int count) {
    return absl::StrContains(
        registry_.Render(),
        absl::StrCat("syncline_ps_requests_total{code=\"", code, "\",rpc=\"",
                     rpc, "\"} ", count, "\n"));
  }

  MetricsRegistry registry_;
  PsMetrics metrics_{&registry_};
  const std::shared_ptr<InFlightBudget> budget_ =
      std::make_shared<InFlightBudget>(kBudget);
  const std::shared_ptr<BufferPool> buffers_ =
      std::make_shared<BufferPool>(1 << 20);
  SharedRegions shared_{{.enabled = false, .bytes_max = 0, .boot_id = "b"}};
  Lanes lanes_{2};
  JobRegistry jobs_;
  const std::unique_ptr<grpc::Service> service_ =
      MakeParameterService(&jobs_, budget_.get(), &shared_, &metrics_);
  std::unique_ptr<GrpcServer> server_;
  std::string address_;
  std::unique_ptr<ParameterServer::Stub> stub_;
};

// --- Refused -----------------------------------------------------------------

TEST_F(ParameterServiceTest, EveryCallOfAnUnknownJobIsRefused) {
  Caller caller = CallerOf(0);
  caller.set_job_id("other");
  const auto refused = [&](auto method, auto request, auto response) {
    const absl::Status status =
        FromGrpcStatus(((*stub_).*method)(Context().get(), request, &response));
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("job other is not open"));
  };
  const auto with_header = [&](auto request) {
    *request.mutable_header()->mutable_caller() = caller;
    return request;
  };
  const auto with_caller = [&](auto request) {
    *request.mutable_caller() = caller;
    return request;
  };
  using Stub = ParameterServer::Stub;
  refused(&Stub::Init, with_header(InitRequest()), InitResponse());
  refused(&Stub::Push, with_header(PushOf(0, 0, 1)), PushResponse());
  refused(&Stub::Pull, with_header(PullOf(0, 0)), PullResponse());
  refused(&Stub::ScanTable, with_header(ScanTableRequest()),
          ScanTableResponse());
  PushPullRequest both;
  *both.mutable_header()->mutable_push()->mutable_caller() = caller;
  refused(&Stub::PushPull, both, PullResponse());
  refused(&Stub::BeginCut, with_caller(BeginCutRequest()), BeginCutResponse());
  refused(&Stub::EndCut, with_caller(EndCutRequest()), EndCutResponse());
  refused(&Stub::ReportActivity, with_caller(ActivityRequest()),
          ActivityResponse());
  refused(&Stub::FoldStatistics, with_caller(FoldStatisticsRequest()),
          FoldStatisticsResponse());
  refused(&Stub::OfferMemory, with_caller(OfferMemoryRequest()),
          OfferMemoryResponse());
  refused(&Stub::AttachMemory, with_caller(AttachMemoryRequest()),
          AttachMemoryResponse());
  FoldNormRequest norm;
  norm.set_job_id("other");
  refused(&Stub::FoldNorm, norm, FoldNormResponse());
  ShardStatusRequest status;
  status.set_job_id("other");
  refused(&Stub::GetShardStatus, status, ShardStatus());
  EXPECT_TRUE(HasCounted("FoldNorm", "FAILED_PRECONDITION", 1));
  ExpectBudgetFree();
}

TEST_F(ParameterServiceTest, ReductionsRefuseAnOldIncarnation) {
  FoldNormRequest norm;
  norm.set_job_id("j");
  norm.set_incarnation(499);
  norm.set_attempt(kTestPass.attempt);
  norm.set_job_secret(kTestPass.secret);
  norm.set_routing_version(1);
  FoldNormResponse norms;
  EXPECT_EQ(
      FromGrpcStatus(stub_->FoldNorm(Context().get(), norm, &norms)).code(),
      absl::StatusCode::kFailedPrecondition);
  FoldStatisticsRequest statistics;
  *statistics.mutable_caller() = CallerOf(0);
  statistics.mutable_caller()->set_incarnation(99);
  FoldStatisticsResponse sums;
  const absl::Status refused =
      FromGrpcStatus(stub_->FoldStatistics(Context().get(), statistics, &sums));
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("incarnation"));
}

TEST_F(ParameterServiceTest, ACallWithoutRoomIsRefusedAndMayBeRepeated) {
  InFlightBudget::Hold full;
  ASSERT_OK(budget_->Acquire(kBudget, &full));
  const absl::Status refused = Push(PushOf(0, 0, 1));
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(IsBusy(refused)) << refused;
  EXPECT_EQ(shard()->Status().workers(0).closed_clocks(), 0);
  full = InFlightBudget::Hold();
  EXPECT_OK(Push(PushOf(0, 0, 1)));
  EXPECT_EQ(shard()->Status().workers(0).closed_clocks(), 1);
  ExpectBudgetFree();
}

// gRPC refuses the message before the service sees it. The refusal is not
// "busy": a client that repeated the message would never be done.
TEST_F(ParameterServiceTest, AMessageAboveTheLimitIsRefusedForGood) {
  grpc::ChannelArguments unlimited;
  unlimited.SetMaxSendMessageSize(-1);
  const auto stub = ParameterServer::NewStub(grpc::CreateCustomChannel(
      address_, grpc::InsecureChannelCredentials(), unlimited));
  PushRequest push = PushOf(0, 0, 1);
  push.set_payload(std::string(kMessageBytesMax, '\0'));
  PushResponse response;
  const absl::Status refused =
      FromGrpcStatus(stub->Push(Context().get(), push, &response));
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_FALSE(IsBusy(refused));
  EXPECT_FALSE(HasCounted("Push", "RESOURCE_EXHAUSTED", 1));
  ExpectBudgetFree();
}

TEST_F(ParameterServiceTest, AMessageAboveTheBudgetIsRefused) {
  PushRequest push = PushOf(0, 0, 1);
  push.set_payload(std::string(kBudget, '\0'));
  const absl::Status refused = Push(push);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_TRUE(HasCounted("Push", "RESOURCE_EXHAUSTED", 1));
  ExpectBudgetFree();
}

// --- Parked ------------------------------------------------------------------

TEST_F(ParameterServiceTest, AParkedPullEndsWhenItIsOverdue) {
  ASSERT_OK(Push(PushOf(0, 0, 1)));
  const auto pull = ParkPull(0, 1);
  EXPECT_GT(budget_->used_bytes(), 0u);
  shard()->Tick(MonotonicNow());
  EXPECT_FALSE(pull->ended.HasBeenNotified());
  shard()->Tick(MonotonicNow() + kTimeout);
  pull->ended.WaitForNotification();
  EXPECT_EQ(pull->status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(pull->status.message()), HasSubstr("missing: "));
  EXPECT_TRUE(HasCounted("Pull", "DEADLINE_EXCEEDED", 1));
  ExpectBudgetFree();
}

TEST_F(ParameterServiceTest, AParkedPullOfACallerThatLeavesIsCancelled) {
  const auto pull = ParkPull(0, 1);
  pull->context->TryCancel();
  pull->ended.WaitForNotification();
  EXPECT_EQ(pull->status.code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(Eventually(kTimeout, [&] { return ParkedPulls() == 0; }));
  EXPECT_TRUE(
      Eventually(kTimeout, [&] { return HasCounted("Pull", "CANCELLED", 1); }));
  ExpectBudgetFree();
}

// gRPC tells the service about a caller that left on a thread of its own, and
// the answer is on its way at the same time.
TEST_F(ParameterServiceTest, AnAnswerMayMeetACallerThatLeaves) {
  constexpr int kClocks = 50;
  for (int64_t clock = 0; clock < kClocks; ++clock) {
    ASSERT_OK(Push(PushOf(0, clock, 1)));
    const auto pull = ParkPull(0, clock + 1);
    std::thread leave([&] { pull->context->TryCancel(); });
    EXPECT_OK(Push(PushOf(1, clock, 1)));
    leave.join();
    pull->ended.WaitForNotification();
    if (pull->status.ok()) {
      EXPECT_EQ(pull->response.payload(),
                Floats(1 - static_cast<float>(clock + 1)));
    } else {
      EXPECT_EQ(pull->status.code(), absl::StatusCode::kCancelled);
    }
  }
  EXPECT_EQ(ParkedPulls(), 0u);
  ExpectBudgetFree();
}

// The job goes first, then gRPC tells that the caller has left: there is
// nothing left to cancel.
TEST_F(ParameterServiceTest, ACallerMayLeaveAfterTheJobHasGone) {
  const auto pull = ParkPull(0, 1);
  CloseJob();
  pull->context->TryCancel();
  pull->ended.WaitForNotification();
  EXPECT_EQ(pull->status.code(), absl::StatusCode::kCancelled);
  ExpectBudgetFree();
  OpenJob();
  EXPECT_OK(Push(PushOf(0, 0, 1)));
}

}  // namespace
}  // namespace syncline::ps

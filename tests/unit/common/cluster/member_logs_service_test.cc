// Goal: a process gives what it logged for a job to the scheduler, then what it
// logs; readers that are slow, many or wrong hold up nobody who logs. Method:
// the service over gRPC in this process.

#include "common/cluster/member_logs_service.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "common/system/job_logs.h"
#include "common/system/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

constexpr char kTrace[] = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr uint64_t kIncarnation = 77;
constexpr absl::Duration kPatience = absl::Seconds(60);

class MemberLogsServiceTest : public ::testing::Test {
 protected:
  MemberLogsServiceTest() {
    identity_.Add(kIncarnation);
    grpc::ServerBuilder builder;
    builder.RegisterService(&service_);
    auto listening = StartServer(&builder, "127.0.0.1:0");
    EXPECT_TRUE(listening.ok()) << listening.status();
    server_ = *std::move(listening);
    stub_ = MemberLogs::NewStub(MakeChannel(server_.address));
    logs_ = *JobLogs::Open(dir_.File("logs"));
    KeepJobLogs(logs_);
  }
  ~MemberLogsServiceTest() override {
    service_.Stop();
    server_.server->Shutdown(absl::ToChronoTime(absl::Now()));
    KeepJobLogs(nullptr);
  }

  struct Call {
    std::unique_ptr<grpc::ClientContext> context;
    std::unique_ptr<grpc::ClientReader<LogLines>> reader;
  };
  Call Read(const std::string& job_id, bool follow, uint32_t tail = 0,
            uint64_t incarnation = kIncarnation) {
    Call call;
    call.context = MakeContext(MonotonicNow() + kPatience);
    call.context->AddMetadata(kTraceMetadata, kTrace);
    MemberLogRequest request;
    request.set_incarnation(incarnation);
    request.set_job_id(job_id);
    request.set_follow(follow);
    request.set_tail_lines(tail);
    call.reader = stub_->Read(call.context.get(), request);
    return call;
  }
  static std::string All(Call* call, absl::Status* status) {
    std::string all;
    for (LogLines lines; call->reader->Read(&lines);) all.append(lines.text());
    *status = FromGrpcStatus(call->reader->Finish());
    return all;
  }

  TempDir dir_;
  std::shared_ptr<JobLogs> logs_;
  IdentityService identity_;
  MemberLogsService service_{&identity_, /*stall_limit=*/absl::Seconds(1)};
  ListeningServer server_;
  std::unique_ptr<MemberLogs::Stub> stub_;
};

TEST_F(MemberLogsServiceTest, GivesWhatThereIsAndEnds) {
  std::string expected;
  for (int i = 0; i < 20'000; ++i) {
    const std::string line = absl::StrCat("line ", i, "\n");
    logs_->Append("j-0001", kTrace, line);
    expected.append(line);
  }
  Call call = Read("j-0001", /*follow=*/false);
  absl::Status status;
  EXPECT_EQ(All(&call, &status), expected);
  EXPECT_TRUE(status.ok()) << status;
  call = Read("j-0001", /*follow=*/false, /*tail=*/2);
  EXPECT_EQ(All(&call, &status), "line 19998\nline 19999\n");
}

TEST_F(MemberLogsServiceTest, FollowsWhatComes) {
  logs_->Append("j-0001", kTrace, "one\n");
  Call call = Read("j-0001", /*follow=*/true);
  LogLines lines;
  ASSERT_TRUE(call.reader->Read(&lines));
  EXPECT_EQ(lines.text(), "one\n");
  logs_->Append("j-0001", kTrace, "two\n");
  ASSERT_TRUE(call.reader->Read(&lines));
  EXPECT_EQ(lines.text(), "two\n");
  call.context->TryCancel();
}

TEST_F(MemberLogsServiceTest, AnotherProcessOrJobIsRefused) {
  logs_->Append("j-0001", kTrace, "one\n");
  absl::Status status;
  Call call = Read("j-0001", false, 0, /*incarnation=*/5);
  All(&call, &status);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  call = Read("j-0002", false);
  All(&call, &status);
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  call = Read("../j-0001", false);
  All(&call, &status);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
}

TEST_F(MemberLogsServiceTest, TooManyReadersAreRefused) {
  logs_->Append("j-0001", kTrace, "one\n");
  std::vector<Call> calls;
  LogLines lines;
  for (size_t i = 0; i < MemberLogsService::kReadersMax; ++i) {
    calls.push_back(Read("j-0001", /*follow=*/true));
    ASSERT_TRUE(calls.back().reader->Read(&lines)) << i;
  }
  absl::Status status;
  Call refused = Read("j-0001", false);
  All(&refused, &status);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  calls.front().context->TryCancel();
  calls.erase(calls.begin());
  EXPECT_TRUE(Eventually(kPatience, [&] {
    Call again = Read("j-0001", false);
    All(&again, &status);
    return status.ok();
  })) << status;
  for (Call& call : calls) call.context->TryCancel();
}

TEST_F(MemberLogsServiceTest, AReaderThatTakesNothingIsLeft) {
  const std::string line = std::string(10'000, 'x') + "\n";
  logs_->Append("j-0001", kTrace, line);
  Call call = Read("j-0001", /*follow=*/true);
  LogLines lines;
  ASSERT_TRUE(call.reader->Read(&lines));
  // More than the connection's window, and nobody who logs waits for it.
  for (int i = 0; i < 700; ++i) logs_->Append("j-0001", kTrace, line);
  absl::Status status;
  EXPECT_TRUE(Eventually(kPatience, [&] {
    std::vector<Call> calls;
    for (size_t i = 0; i < MemberLogsService::kReadersMax; ++i) {
      calls.push_back(Read("j-0001", /*follow=*/true, /*tail=*/1));
      if (!calls.back().reader->Read(&lines)) break;
    }
    for (Call& other : calls) other.context->TryCancel();
    return calls.size() == MemberLogsService::kReadersMax;
  }));
}

TEST_F(MemberLogsServiceTest, TheEndOfTheProcessEndsAllCalls) {
  logs_->Append("j-0001", kTrace, "one\n");
  Call call = Read("j-0001", /*follow=*/true);
  LogLines lines;
  ASSERT_TRUE(call.reader->Read(&lines));
  service_.Stop();
  absl::Status status;
  All(&call, &status);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  call = Read("j-0001", false);
  All(&call, &status);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

}  // namespace
}  // namespace syncline

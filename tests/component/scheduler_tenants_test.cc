// Goal: jobs of one tenant are to another as if they were not there, by every
// call; a stream ends when its token is revoked. Method: a real scheduler over
// gRPC with a file of tokens, and every method of Jobs by its generated stub.

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/crc32c.h"
#include "common/rpc/user_calls.h"
#include "common/security/user_tokens.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fakes/wait_log.h"
#include "tests/testing/scheduler_fixture.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::kTinyModel;
using ::testing::Not;
using testing::SchedulerFixture;
using testing::TinyJob;

class SchedulerTenantsTest : public SchedulerFixture {
 protected:
  void SetUp() override {
    Write(/*with_zeta=*/true);
    auto tokens = UserTokens::Open(file_);
    ASSERT_OK(tokens.status());
    SetProcessTokens(*std::move(tokens));
    SchedulerFixture::SetUp();
  }
  void TearDown() override {
    SchedulerFixture::TearDown();
    SetProcessTokens(nullptr);
  }

  // Each bearer's token is its name.
  void Write(bool with_zeta) {
    std::vector<TokenEntry> entries = {
        EntryOf("acme", UserRole::kAdmin, "acme")};
    if (with_zeta) {
      entries.push_back(EntryOf("zeta", UserRole::kAdmin, "zeta"));
    }
    WriteWithoutTenants(std::move(entries));
  }
  // `entries`, and those who are of no tenant.
  void WriteWithoutTenants(std::vector<TokenEntry> entries = {}) {
    entries.push_back(EntryOf("olga", UserRole::kOperator, ""));
    entries.push_back(EntryOf("sam", UserRole::kSubmitter, ""));
    ASSERT_OK(WriteFileAtomically(file_, FormatTokens(entries)));
  }
  static TokenEntry EntryOf(const std::string& name, UserRole role,
                            const std::string& tenant) {
    return {name, role, absl::InfiniteFuture(), HashToken(name), tenant};
  }

  static std::unique_ptr<grpc::ClientContext> As(const std::string& who) {
    auto context = MakeContext(absl::Now() + kPatience);
    context->AddMetadata("authorization", absl::StrCat("Bearer ", who));
    return context;
  }

  absl::StatusOr<std::string> SubmitAs(const std::string& who,
                                       const JobSpec& spec,
                                       const std::string& key = "") {
    const auto context = As(who);
    SubmitResponse response;
    const auto writer = jobs_->Submit(context.get(), &response);
    SubmitRequest request;
    *request.mutable_begin()->mutable_spec() = spec;
    request.mutable_begin()->set_client_key(key);
    writer->Write(request);
    const std::string model = kTinyModel;
    request.mutable_model()->set_data(model);
    request.mutable_model()->set_last(true);
    request.mutable_model()->set_crc32c(Crc32c(model));
    writer->Write(request);
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    if (!status.ok()) return FromGrpcStatus(status);
    return response.job_id();
  }

  template <typename Response, typename Request, typename Method>
  absl::Status Call(Method method, const std::string& who, Request request) {
    Response response;
    const auto context = As(who);
    return FromGrpcStatus(
        ((*jobs_).*method)(context.get(), request, &response));
  }
  template <typename Response, typename Request, typename Method>
  absl::Status Read(Method method, const std::string& who, Request request) {
    const auto context = As(who);
    const auto reader = ((*jobs_).*method)(context.get(), request);
    Response response;
    const bool got = reader->Read(&response);
    if (got) {
      context->TryCancel();
      reader->Finish();
      return absl::OkStatus();
    }
    return FromGrpcStatus(reader->Finish());
  }

  // The answer to each method that names a job.
  std::vector<std::pair<std::string, absl::Status>> CallAll(
      const std::string& who, const std::string& job_id) {
    const auto of = [&](auto request) {
      request.set_job_id(job_id);
      return request;
    };
    DownloadRequest download = of(DownloadRequest());
    download.set_name("model.onnx");
    using Stub = Jobs::Stub;
    return {
        {"Get", Call<JobStatus>(&Stub::Get, who, of(GetRequest()))},
        {"GetTables",
         Call<JobTableStatus>(&Stub::GetTables, who, of(GetRequest()))},
        {"Profile",
         Call<ProfileResponse>(&Stub::Profile, who, of(ProfileRequest()))},
        {"ChangeRegime", Call<RegimeTransition>(&Stub::ChangeRegime, who,
                                                of(ChangeRegimeRequest()))},
        {"TakeCheckpoint", Call<CheckpointInfo>(&Stub::TakeCheckpoint, who,
                                                of(TakeCheckpointRequest()))},
        {"Watch", Read<JobStatus>(&Stub::Watch, who, of(WatchRequest()))},
        {"Events", Read<JobEvent>(&Stub::Events, who, of(EventsRequest()))},
        {"Logs", Read<LogLines>(&Stub::Logs, who, of(LogsRequest()))},
        {"Download", Read<FileChunk>(&Stub::Download, who, download)},
        {"Scale", Call<JobStatus>(&Stub::Scale, who, of(ScaleRequest()))},
        {"Cancel", Call<JobStatus>(&Stub::Cancel, who, of(CancelRequest()))},
    };
  }

  std::vector<std::string> ListAs(const std::string& who) {
    ListResponse response;
    const auto context = As(who);
    EXPECT_TRUE(jobs_->List(context.get(), {}, &response).ok());
    std::vector<std::string> ids;
    for (const JobStatus& job : response.jobs()) ids.push_back(job.job_id());
    return ids;
  }

  const std::string file_ = dir_ / "tokens";
};

TEST_F(SchedulerTenantsTest, NoCallReachesAnothersJob) {
  ASSERT_OK_AND_ASSIGN(const std::string job, SubmitAs("acme", TinyJob(1, 1)));
  ASSERT_OK_AND_ASSIGN(const std::string own, SubmitAs("sam", TinyJob(1, 1)));
  for (const auto& [method, status] : CallAll("zeta", job)) {
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound)
        << method << ": " << status;
    EXPECT_EQ(status.message(), absl::StrCat("no job \"", job, "\"")) << method;
  }
  for (const auto& [method, status] : CallAll("sam", job)) {
    EXPECT_TRUE(absl::IsNotFound(status) || absl::IsPermissionDenied(status))
        << method << ": " << status;
  }
  // As if it were not there.
  for (const auto& [method, status] : CallAll("zeta", "j-0099")) {
    if (absl::IsUnimplemented(status)) continue;
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << method;
    EXPECT_EQ(status.message(), "no job \"j-0099\"") << method;
  }
  for (const auto& [method, status] : CallAll("acme", own)) {
    EXPECT_FALSE(status.ok()) << method;
  }
  // The tenant, and whoever sees all.
  for (const char* who : {"acme", "olga"}) {
    EXPECT_OK(Call<JobStatus>(&Jobs::Stub::Get, who, [&] {
      GetRequest request;
      request.set_job_id(job);
      return request;
    }()));
  }
  const std::string audit =
      ReadFile(dir_ / "state/audit.log", 1 << 20).value_or("");
  EXPECT_THAT(audit, HasSubstr(absl::StrCat(
                         "\"action\":\"/syncline.Jobs/Download\",\"job\":\"",
                         job, "\",\"outcome\":\"NOT_FOUND\"")));
}

// A call without a token is refused without the control loop, whose queue is
// bounded.
TEST_F(SchedulerTenantsTest, RefusedCallsDoNotReachTheLoop) {
  ASSERT_OK_AND_ASSIGN(const std::string job, SubmitAs("acme", TinyJob(1, 1)));
  for (const auto& [method, status] : CallAll("nobody", job)) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated)
        << method << ": " << status;
  }
  CancelRequest large;
  large.set_job_id(job);
  large.set_reason(std::string(3 << 20, 'r'));
  EXPECT_TRUE(absl::IsUnauthenticated(
      Call<JobStatus>(&Jobs::Stub::Cancel, "nobody", large)));
}

// Calls that name no job are refused before anything is done, and have the
// address of their peer in the audit log.
TEST_F(SchedulerTenantsTest, RefusedCallsWithoutAJobHaveTheirPeer) {
  AddDaemon(PS, 0);
  SetMemberUseRequest drain;
  drain.mutable_task()->set_type(PS);
  drain.set_use(SetMemberUseRequest::DRAIN);
  drain.set_reason(std::string(3 << 20, 'r'));
  using Stub = Jobs::Stub;
  const auto call_all = [&](const std::string& who) {
    return std::vector<std::pair<std::string, absl::Status>>{
        {"Submit", SubmitAs(who, TinyJob(1, 1)).status()},
        {"List", Call<ListResponse>(&Stub::List, who, ListRequest())},
        {"GetCluster",
         Call<ClusterStatus>(&Stub::GetCluster, who, GetClusterRequest())},
        {"SetMemberUse",
         Call<SetMemberUseResponse>(&Stub::SetMemberUse, who, drain)},
        {"BackupState",
         Read<FileChunk>(&Stub::BackupState, who, BackupStateRequest())},
    };
  };
  for (const auto& [method, status] : call_all("nobody")) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated)
        << method << ": " << status;
    EXPECT_EQ(status.message(), "the token is unknown, or revoked") << method;
  }
  // The role of a submitter is enough for the first three.
  int refused = 0;
  for (const auto& [method, status] : call_all("sam")) {
    if (absl::IsPermissionDenied(status)) ++refused;
  }
  EXPECT_EQ(refused, 2);
  ClusterStatus cluster;
  ASSERT_TRUE(jobs_->GetCluster(As("olga").get(), {}, &cluster).ok());
  ASSERT_EQ(cluster.members_size(), 1);
  EXPECT_NE(cluster.members(0).use(), SetMemberUseRequest::DRAIN);
  EXPECT_EQ(ListAs("olga").size(), 1u);  // sam's

  const std::string audit =
      ReadFile(dir_ / "state/audit.log", 1 << 20).value_or("");
  const auto line = [](const std::string& who, const std::string& method,
                       const std::string& code) {
    return absl::StrCat("\"who\":\"", who,
                        "\",\"peer\":\"ipv[46]:[^\"]+\",\"action\":\"/"
                        "syncline.Jobs/",
                        method, "\",\"job\":\"\",\"outcome\":\"", code, "\"");
  };
  for (const char* method :
       {"Submit", "List", "GetCluster", "SetMemberUse", "BackupState"}) {
    EXPECT_THAT(audit, ::testing::ContainsRegex(
                           line("unknown", method, "UNAUTHENTICATED")));
  }
  for (const char* method : {"SetMemberUse", "BackupState"}) {
    EXPECT_THAT(audit, ::testing::ContainsRegex(
                           line("token:sam", method, "PERMISSION_DENIED")));
  }
}

TEST_F(SchedulerTenantsTest, ListsHaveTheJobsOfOneTenant) {
  ASSERT_OK_AND_ASSIGN(const std::string a, SubmitAs("acme", TinyJob(1, 1)));
  ASSERT_OK_AND_ASSIGN(const std::string z, SubmitAs("zeta", TinyJob(1, 1)));
  ASSERT_OK_AND_ASSIGN(const std::string s, SubmitAs("sam", TinyJob(1, 1)));
  using Ids = std::vector<std::string>;
  EXPECT_EQ(ListAs("acme"), Ids({a}));
  EXPECT_EQ(ListAs("zeta"), Ids({z}));
  EXPECT_EQ(ListAs("sam"), Ids({s}));
  EXPECT_EQ(ListAs("olga"), Ids({s, z, a}));
  const auto pages = scheduler_->Pages();
  const auto page = [&](const std::string& who) {
    const std::string header = absl::StrCat("Bearer ", who);
    return pages.at("/jobs.json")(
        {.authorization = header, .from_loopback = true});
  };
  EXPECT_THAT(page("zeta").body,
              AllOf(HasSubstr(z), Not(HasSubstr(a)), Not(HasSubstr(s))));
  EXPECT_THAT(page("olga").body,
              AllOf(HasSubstr(z), HasSubstr(a), HasSubstr(s)));
}

TEST_F(SchedulerTenantsTest, MembersAreInUseAndNoMore) {
  AddDaemon(PS, 0);
  AddDaemon(WORKER, 0, {.finishes = false});
  ASSERT_OK_AND_ASSIGN(const std::string job, SubmitAs("acme", TinyJob(1, 1)));
  const auto job_of_ps = [&](const std::string& who) {
    ClusterStatus cluster;
    const auto context = As(who);
    EXPECT_TRUE(jobs_->GetCluster(context.get(), {}, &cluster).ok());
    return cluster.members(0).job_id();
  };
  EXPECT_EQ(job_of_ps("acme"), job);
  EXPECT_EQ(job_of_ps("olga"), job);
  EXPECT_EQ(job_of_ps("zeta"), "(in use)");
}

TEST_F(SchedulerTenantsTest, WhatIsOfTheClusterIsNotForTenants) {
  for (const char* who : {"acme", "zeta"}) {
    const absl::Status drained = Call<SetMemberUseResponse>(
        &Jobs::Stub::SetMemberUse, who, SetMemberUseRequest());
    EXPECT_EQ(drained.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_THAT(std::string(drained.message()), HasSubstr("not for tenants"));
    EXPECT_EQ(
        Read<FileChunk>(&Jobs::Stub::BackupState, who, BackupStateRequest())
            .code(),
        absl::StatusCode::kPermissionDenied);
  }
}

TEST_F(SchedulerTenantsTest, AKeyOfAnotherTenantIsAnotherKey) {
  ASSERT_OK_AND_ASSIGN(const std::string a,
                       SubmitAs("acme", TinyJob(1, 1), "key"));
  ASSERT_OK_AND_ASSIGN(const std::string z,
                       SubmitAs("zeta", TinyJob(2, 1), "key"));
  EXPECT_NE(a, z);
  ASSERT_OK_AND_ASSIGN(const std::string again,
                       SubmitAs("acme", TinyJob(1, 1), "key"));
  EXPECT_EQ(again, a);
  const auto other = SubmitAs("acme", TinyJob(2, 1), "key");
  EXPECT_EQ(other.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(other.status().message()),
              HasSubstr("client key \"key\" is that of"));
}

TEST_F(SchedulerTenantsTest, AnothersCheckpointIsNoStart) {
  JobSpec spec = TinyJob(1, 1);
  spec.mutable_start()->set_checkpoint("/ps/j-0001/10");
  spec.mutable_start()->set_clock(10);
  spec.mutable_start()->set_shards(1);
  for (const char* who : {"zeta", "sam"}) {
    const auto refused = SubmitAs(who, spec);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.status().message()),
                HasSubstr("start.checkpoint: /ps/j-0001/10 is no checkpoint"));
  }
  EXPECT_OK(SubmitAs("olga", spec).status());
}

// A tenant's checkpoints are not for others when the tenant's token is gone.
TEST_F(SchedulerTenantsTest, ATenantsCheckpointOutlivesItsLastToken) {
  ASSERT_OK(SubmitAs("acme", TinyJob(1, 1)).status());
  WriteWithoutTenants();
  JobSpec spec = TinyJob(1, 1);
  spec.mutable_start()->set_checkpoint("/c/acme/j-0001/10");
  spec.mutable_start()->set_clock(10);
  spec.mutable_start()->set_shards(1);
  const auto refused = SubmitAs("sam", spec);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(refused.status().message()),
      HasSubstr("start.checkpoint: /c/acme/j-0001/10 is no checkpoint"));
}

// Neither within a moment after the revocation, nor in the middle of a message.
// Two bearers of one tenant have four calls together.
TEST_F(SchedulerTenantsTest, ATenantsBearersShareTheirReadingsOfLogs) {
  WriteWithoutTenants({EntryOf("acme", UserRole::kAdmin, "acme"),
                       EntryOf("anna", UserRole::kViewer, "acme"),
                       EntryOf("zeta", UserRole::kAdmin, "zeta")});
  ASSERT_OK_AND_ASSIGN(const std::string job, SubmitAs("acme", TinyJob(1, 1)));
  LogsRequest request;
  request.set_job_id(job);
  request.set_follow(true);  // of a job that waits: no line comes
  WaitLog<absl::Status> ended;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::thread> readers;
  for (const char* who : {"acme", "anna", "acme", "anna", "acme"}) {
    contexts.push_back(As(who));
    readers.emplace_back([&, context = contexts.back().get()] {
      const auto reader = jobs_->Logs(context, request);
      LogLines lines;
      while (reader->Read(&lines)) {
      }
      ended.Add(FromGrpcStatus(reader->Finish()));
    });
  }
  const auto refused = ended.Await(1);
  for (const auto& context : contexts) context->TryCancel();
  for (std::thread& reader : readers) reader.join();
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].code(), absl::StatusCode::kResourceExhausted)
      << refused[0];
  EXPECT_THAT(std::string(refused[0].message()),
              HasSubstr("tenant:acme reads 4 logs already"));
}

TEST_F(SchedulerTenantsTest, AWatchEndsWhenItsTokenIsRevoked) {
  ASSERT_OK_AND_ASSIGN(const std::string job, SubmitAs("zeta", TinyJob(1, 1)));
  const auto context = As("zeta");
  WatchRequest request;
  request.set_job_id(job);
  const auto reader = jobs_->Watch(context.get(), request);
  JobStatus status;
  ASSERT_TRUE(reader->Read(&status));
  Write(/*with_zeta=*/false);
  while (reader->Read(&status)) {
  }
  const absl::Status end = FromGrpcStatus(reader->Finish());
  EXPECT_EQ(end.code(), absl::StatusCode::kUnauthenticated) << end;
  EXPECT_THAT(std::string(end.message()), HasSubstr("revoked"));
}

TEST_F(SchedulerTenantsTest, AWatchEndsWhenItsTokenIsOfAnotherTenant) {
  ASSERT_OK_AND_ASSIGN(const std::string job, SubmitAs("zeta", TinyJob(1, 1)));
  const auto context = As("zeta");
  WatchRequest request;
  request.set_job_id(job);
  const auto reader = jobs_->Watch(context.get(), request);
  JobStatus status;
  ASSERT_TRUE(reader->Read(&status));
  WriteWithoutTenants({EntryOf("zeta", UserRole::kAdmin, "acme")});
  while (reader->Read(&status)) {
  }
  const absl::Status end = FromGrpcStatus(reader->Finish());
  EXPECT_EQ(end.code(), absl::StatusCode::kNotFound) << end;
  EXPECT_EQ(end.message(), absl::StrCat("no job \"", job, "\""));
}

TEST_F(SchedulerTenantsTest, AStreamIsCutOffWhenItsTokensRoleIsLowered) {
  const auto context = As("zeta");
  SubmitResponse response;
  const auto writer = jobs_->Submit(context.get(), &response);
  SubmitRequest request;
  *request.mutable_begin()->mutable_spec() = TinyJob(1, 1);
  ASSERT_TRUE(writer->Write(request));
  WriteWithoutTenants({EntryOf("zeta", UserRole::kViewer, "zeta")});
  const absl::Status end = FromGrpcStatus(writer->Finish());
  // A busy scheduler may begin with the call when the role is lowered already.
  EXPECT_THAT(end.code(), AnyOf(absl::StatusCode::kCancelled,
                                absl::StatusCode::kPermissionDenied))
      << end;
  EXPECT_THAT(ListAs("olga"), ::testing::IsEmpty());
}

// A download whose reader does not read has no handler that looks.
TEST_F(SchedulerTenantsTest, AStreamThatStandsStillIsCutOff) {
  const auto context = As("zeta");
  SubmitResponse response;
  const auto writer = jobs_->Submit(context.get(), &response);
  SubmitRequest request;
  *request.mutable_begin()->mutable_spec() = TinyJob(1, 1);
  ASSERT_TRUE(writer->Write(request));
  Write(/*with_zeta=*/false);
  const absl::Status end = FromGrpcStatus(writer->Finish());
  // A busy scheduler may begin with the call when the token is gone already.
  EXPECT_THAT(end.code(), AnyOf(absl::StatusCode::kCancelled,
                                absl::StatusCode::kUnauthenticated))
      << end;
  EXPECT_THAT(ListAs("olga"), ::testing::IsEmpty());
}

}  // namespace
}  // namespace syncline

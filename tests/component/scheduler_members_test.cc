// Goal: daemons are members while they answer, under the task and at the
// address that are their own, and their secrets stay theirs. Method: a real
// scheduler over gRPC (scheduler_fixture.h), daemons with scripted answers, and
// streams written by hand.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/version.h"
#include "common/cluster/identity_service.h"
#include "common/cluster/scheduler_session.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/service/scheduler.h"
#include "tests/testing/fakes/relay.h"
#include "tests/testing/scheduler_fixture.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using testing::FakeDaemon;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::SchedulerFixture;
using testing::Script;
using testing::TinyJob;

class SchedulerMembersTest : public SchedulerFixture {};

// A scheduler that asks each member for its incarnation at its address.
class SchedulerAddressTest : public SchedulerFixture {
 protected:
  void SetUp() override {
    SchedulerFixture::SetUp();
    StopScheduler();
    options_.confirmer = nullptr;  // over gRPC
    StartScheduler(server_.address);
    grpc::ServerBuilder builder;
    builder.RegisterService(&identity_);
    auto listening = StartServer(&builder, "127.0.0.1:0");
    ASSERT_TRUE(listening.ok()) << listening.status();
    daemon_ = *std::move(listening);
  }
  void TearDown() override {
    SchedulerFixture::TearDown();
    daemon_.server->Shutdown(absl::ToChronoTime(absl::Now()));
  }

  std::unique_ptr<FakeDaemon> DaemonAt(const std::string& address) {
    auto daemon =
        std::make_unique<FakeDaemon>(server_.address, PS, 0, Script(), address);
    daemon->AwaitRegistered();
    return daemon;
  }
  std::string JobAwaited(const std::function<bool(const std::string&)>& is) {
    const absl::Time deadline = absl::Now() + kPatience;
    ClusterStatus cluster;
    do {
      jobs_->GetCluster(MakeContext(deadline).get(), {}, &cluster);
    } while (absl::Now() < deadline &&
             (cluster.members_size() != 1 || !is(cluster.members(0).job_id())));
    return cluster.members_size() == 1 ? cluster.members(0).job_id() : "none";
  }
  std::string TroubleOf(const std::string& address) {
    const auto daemon = DaemonAt(address);
    return JobAwaited([](const std::string& job) {
      return !job.empty() && job.find("being asked") == std::string::npos;
    });
  }

  IdentityService identity_;
  ListeningServer daemon_;
};

TEST_F(SchedulerAddressTest, AMemberThatAnswersAtItsAddressIsFree) {
  const auto daemon = DaemonAt(daemon_.address);
  identity_.Add(daemon->incarnation());
  EXPECT_EQ(JobAwaited([](const std::string& job) { return job.empty(); }), "");
}

TEST_F(SchedulerAddressTest, AnAddressThatIsNotItsOwnIsNotBelieved) {
  EXPECT_THAT(
      TroubleOf(daemon_.address),
      AllOf(HasSubstr("another process answers at"), HasSubstr("--advertise")));
}

TEST_F(SchedulerAddressTest, AnAddressThatIsNoDaemonIsNotBelieved) {
  EXPECT_THAT(TroubleOf(server_.address),  // without Identity
              HasSubstr("no Syncline daemon"));
}

TEST_F(SchedulerAddressTest, AnAddressWhereNobodyIsIsNotBelieved) {
  EXPECT_THAT(TroubleOf("127.0.0.1:1"), HasSubstr("nothing answers"));
}

// A closed port tells a killed process from a network that is cut.
TEST_F(SchedulerAddressTest, APortThatIsClosedIsToldFromNoAnswer) {
  std::string address;
  {
    grpc::ServerBuilder builder;
    IdentityService identity;
    builder.RegisterService(&identity);
    auto listening = StartServer(&builder, "127.0.0.1:0");
    ASSERT_TRUE(listening.ok()) << listening.status();
    address = listening->address;
    listening->server->Shutdown(absl::ToChronoTime(absl::Now()));
  }
  WaitLog<absl::Status> answers;
  {
    const auto confirmer = scheduler::AddressConfirmer::OverGrpc();
    confirmer->Confirm(
        address, 1, [&](const absl::Status& answer) { answers.Add(answer); });
    ASSERT_EQ(answers.Await(1).size(), 1);
  }
  EXPECT_EQ(answers.Await(1)[0].code(), absl::StatusCode::kNotFound)
      << answers.Await(1)[0];
}

TEST_F(SchedulerMembersTest, ATaskThatIsTakenIsRefusedWithItsHolder) {
  AddDaemon(WORKER, 0);
  FakeDaemon second(server_.address, WORKER, 0);
  const auto rejected = second.rejected.Await(1);
  ASSERT_EQ(rejected.size(), 1);
  EXPECT_EQ(rejected[0].code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(rejected[0].message(),
              HasSubstr("worker 0 at 10.0.0.1:7000 (incarnation 0x"));
}

TEST_F(SchedulerMembersTest, ASilentDaemonLosesItsLease) {
  // A stream that registers and then says nothing.
  const auto stub = Daemons::NewStub(MakeChannel(server_.address));
  const auto context = MakeContext(absl::Now() + kPatience);
  const auto stream = stub->Session(context.get());
  DaemonMessage hello;
  Member* member = hello.mutable_register_()->mutable_member();
  member->mutable_task()->set_type(PS);
  member->set_address("10.0.0.9:1");
  member->set_incarnation(99);
  member->set_version(kVersion);
  stream->Write(hello);
  SchedulerMessage reply;
  ASSERT_TRUE(stream->Read(&reply));
  EXPECT_EQ(reply.registered().lease_seconds(), 2);
  AwaitFree(1);
  EXPECT_FALSE(stream->Read(&reply));  // until the scheduler ends it
  const absl::Status status = FromGrpcStatus(stream->Finish());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("lease expired: silent for 2."));
  AwaitFree(0);
}

TEST_F(SchedulerMembersTest, WhoSaysNothingIsGivenUp) {
  StopScheduler();
  options_.idle_limit = absl::Milliseconds(500);
  StartScheduler(server_.address);
  // A user's upload that stalls, and a stream that does not register.
  const auto context = MakeContext(absl::Now() + kPatience);
  SubmitResponse response;
  const auto writer = jobs_->Submit(context.get(), &response);
  SubmitRequest request;
  *request.mutable_begin()->mutable_spec() = TinyJob(1, 1);
  ASSERT_TRUE(writer->Write(request));
  const auto stub = Daemons::NewStub(MakeChannel(server_.address));
  const auto silent = MakeContext(absl::Now() + kPatience);
  const auto stream = stub->Session(silent.get());
  const auto upload_context = MakeContext(absl::Now() + kPatience);
  UploadResponse stored;
  const auto upload = stub->UploadArtifact(upload_context.get(), &stored);

  const absl::Status stalled = FromGrpcStatus(writer->Finish());
  EXPECT_EQ(stalled.code(), absl::StatusCode::kDeadlineExceeded) << stalled;
  EXPECT_THAT(stalled.message(), HasSubstr("stalled"));
  EXPECT_TRUE(std::filesystem::is_empty(dir_ / "state/incoming"));
  SchedulerMessage reply;
  EXPECT_FALSE(stream->Read(&reply));
  const absl::Status unknown = FromGrpcStatus(stream->Finish());
  EXPECT_EQ(unknown.code(), absl::StatusCode::kDeadlineExceeded) << unknown;
  EXPECT_THAT(unknown.message(), HasSubstr("no Register came within 500ms"));
  EXPECT_EQ(upload->Finish().error_code(), grpc::DEADLINE_EXCEEDED);
  // The scheduler serves other members, once they have the usual time.
  StopScheduler();
  options_.idle_limit = scheduler::Scheduler::Options().idle_limit;
  StartScheduler(server_.address);
  AddDaemon(WORKER, 0);
  EXPECT_TRUE(Submit(TinyJob(1, 1)).ok());
}

// A connection that breaks is no dead process.
TEST_F(SchedulerMembersTest, AConnectionThatBreaksCostsNoJob) {
  Relay relay(server_.address);
  FakeDaemon* const ps = AddDaemon(PS, 0);
  FakeDaemon worker(relay.address(), WORKER, 0, {.finishes = false});
  worker.AwaitRegistered();
  const std::string job_id = MustSubmit(TinyJob(1, 1));
  worker.AwaitRun();
  AwaitState(job_id, RUNNING);
  const std::string file = dir_ / "metrics.json";
  ASSERT_TRUE(WriteFileAtomically(file, "{}").ok());
  for (size_t registrations = 2; registrations < 5; ++registrations) {
    relay.Break();
    ASSERT_EQ(worker.registered.Await(registrations).size(), registrations);
    // Uploads prove the new stream.
    const absl::Status stored =
        UploadArtifact(server_.address, worker.Upload(job_id, "metrics.json"),
                       file, absl::Now() + kPatience);
    EXPECT_TRUE(stored.ok()) << stored;
  }
  // A report that is made while there is no stream arrives.
  relay.Break();
  worker.SendDone(job_id, /*released=*/false);
  AwaitState(job_id, SUCCEEDED);
  EXPECT_EQ(ps->registered.Await(1).size(), 1);
}

TEST_F(SchedulerMembersTest, AMemberKilledWithoutAStreamIsLostByItsName) {
  AddDaemon(PS, 0);
  Relay relay(server_.address);
  auto worker = std::make_unique<FakeDaemon>(relay.address(), WORKER, 0,
                                             Script{.finishes = false});
  worker->AwaitRegistered();
  const std::string job_id = MustSubmit(TinyJob(1, 1));
  AwaitState(job_id, RUNNING);
  relay.Stall(true);  // it cannot come back
  relay.Break();
  confirmer_->OnKilled(worker->incarnation());
  EXPECT_THAT(
      LastReason(AwaitState(job_id, FAILED)),
      AllOf(HasSubstr("worker 0 at 10.0.0.1:7000"), HasSubstr("was lost: ")));
}

// Secrets and incarnations prove membership: no answer or page may show one.
TEST_F(SchedulerMembersTest, NoIncarnationOrSecretGetsOut) {
  FakeDaemon* ps = AddDaemon(PS, 0);
  FakeDaemon* worker = AddDaemon(WORKER, 0, {.finishes = false});
  AddDaemon(EVALUATOR, 0, {.finishes = false});
  FakeDaemon twin(server_.address, PS, 0);
  std::vector<std::string> shown;
  const auto show = [&](const google::protobuf::Message& message) {
    shown.push_back(message.SerializeAsString());
    shown.push_back(message.DebugString());
  };
  for (const absl::Status& why : twin.rejected.Await(1)) {
    shown.push_back(why.ToString());
  }
  JobSpec spec = TinyJob(1, 1);
  *spec.mutable_data()->mutable_test() = spec.data().train();
  const std::string job_id = MustSubmit(spec);
  show(AwaitState(job_id, RUNNING));
  UploadBegin begin = worker->Upload(job_id, "trained.onnx");
  begin.clear_session_secret();
  shown.push_back(UploadArtifact(server_.address, begin, "/dev/null",
                                 absl::Now() + kPatience)
                      .ToString());
  const auto secrets = {worker->Upload("", "").session_secret(),
                        ps->Upload("", "").session_secret()};
  const std::vector<uint64_t> incarnations = {ps->incarnation(),
                                              worker->incarnation()};
  const auto ask = [&] {
    ClusterStatus cluster;
    ListResponse list;
    jobs_->GetCluster(MakeContext(absl::Now() + kPatience).get(), {}, &cluster);
    jobs_->List(MakeContext(absl::Now() + kPatience).get(), {}, &list);
    EXPECT_GT(cluster.members_size(), 0);
    EXPECT_EQ(list.jobs_size(), 1);
    show(cluster);
    show(list);
    show(Get(job_id).value());
    for (const auto& [path, page] : scheduler_->Pages()) {
      shown.push_back(page({}).body);
    }
  };
  ask();
  Kill(ps);
  const JobStatus failed = AwaitState(job_id, FAILED);
  EXPECT_THAT(LastReason(failed), HasSubstr("incarnation 0x"));
  show(failed);
  ask();
  for (const std::string& text : shown) {
    for (const uint64_t incarnation : incarnations) {
      const std::string bytes(reinterpret_cast<const char*>(&incarnation),
                              sizeof(incarnation));
      EXPECT_EQ(text.find(bytes), std::string::npos) << text;
      EXPECT_THAT(text, Not(HasSubstr(absl::StrCat(incarnation))));
      EXPECT_THAT(text, Not(HasSubstr(absl::StrCat(absl::Hex(incarnation)))));
    }
    for (const std::string& secret : secrets) {
      EXPECT_EQ(text.find(secret), std::string::npos) << text;
    }
  }
}

// Both members are fakes, which nobody finds at their addresses.
TEST_F(SchedulerMembersTest, LogsNameTheMembersThatCannotBeReached) {
  FakeDaemon worker(server_.address, WORKER, 0, {.finishes = false},
                    "127.0.0.1:1");
  FakeDaemon ps(server_.address, PS, 0, {}, "127.0.0.1:2");
  worker.AwaitRegistered();
  ps.AwaitRegistered();
  const std::string job_id = MustSubmit(TinyJob(1, 1));
  worker.AwaitRun();
  const auto read = [&](const LogsRequest& request, std::string* all) {
    const auto context = MakeContext(absl::Now() + kPatience);
    const auto reader = jobs_->Logs(context.get(), request);
    for (LogLines lines; reader->Read(&lines);) all->append(lines.text());
    return FromGrpcStatus(reader->Finish());
  };
  LogsRequest request;
  request.set_job_id(job_id);
  std::string all;
  const absl::Status status = read(request, &all);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(all, AllOf(HasSubstr("its log cannot be read"),
                         HasSubstr("127.0.0.1:1: "), HasSubstr("127.0.0.1:2: "),
                         HasSubstr(" trace=")));
  request.mutable_task()->set_type(PS);
  all.clear();
  EXPECT_TRUE(read(request, &all).ok());
  EXPECT_THAT(all, Not(HasSubstr("127.0.0.1:1: ")));
  request.mutable_task()->set_index(7);
  const absl::Status unknown = read(request, &all);
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound) << unknown;
  EXPECT_THAT(std::string(unknown.message()),
              HasSubstr("has no ps:7; it has worker:0, ps:0"));
  request.set_job_id("j-0099");
  EXPECT_EQ(read(request, &all).code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace syncline

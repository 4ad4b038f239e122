// Goal: what the daemons share works as a whole: registration, readiness,
// health, the end by signal, by the scheduler's word, and by refusal.
// Method: a daemon without a role, and a scripted scheduler, both in this
// process on free ports; the scripts follow the protocol's order, so nothing is
// timed.

#include "common/daemon/daemon.h"

#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/host_port.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/user_calls.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "proto/scheduler.grpc.pb.h"
#include "tests/testing/eventually.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Stream = grpc::ServerReaderWriter<SchedulerMessage, DaemonMessage>;

SchedulerMessage StopOf(const std::string& job_id) {
  SchedulerMessage stop;
  stop.mutable_stop()->set_job_id(job_id);
  return stop;
}

SchedulerMessage PrepareOf(const std::string& job_id) {
  SchedulerMessage prepare;
  prepare.mutable_prepare()->mutable_assignment()->set_job_id(job_id);
  return prepare;
}

SchedulerMessage ShutdownWith(int exit_code) {
  SchedulerMessage shutdown;
  shutdown.mutable_shutdown()->set_exit_code(exit_code);
  shutdown.mutable_shutdown()->set_reason("the test is over");
  return shutdown;
}

constexpr int kServing = 1;
constexpr int kNotServing = 2;

// The health that grpc-health-probe would read; negative: the call failed. The
// packages have no stub for it. HealthCheckRequest's only field is a string,
// its response's an enum; an Artifact and a Task of ours have the same first
// field.
int HealthOf(const std::string& address, const std::string& service) {
  grpc::TemplatedGenericStub<Artifact, Task> stub(MakeChannel(address));
  const auto context = MakeContext(absl::Now() + absl::Seconds(20));
  Artifact request;
  request.set_name(service);
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareUnaryCall(
      context.get(), "/grpc.health.v1.Health/Check", request, &queue);
  call->StartCall();
  Task response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  return status.ok() ? static_cast<int>(response.type()) : -1;
}

// Takes every daemon; what it says besides is the test's.
class ScriptedScheduler final : public Daemons::Service {
 public:
  std::function<absl::Status(const Register&)> on_register =
      [](const Register&) { return absl::OkStatus(); };
  // Registration included, after it was answered.
  std::function<void(const DaemonMessage&, Stream*)> on_message =
      [](const DaemonMessage&, Stream*) {};

  bool ends_with_scheduler = false;

  ScriptedScheduler() {
    grpc::ServerBuilder builder;
    builder.RegisterService(this);
    auto listening = StartServer(&builder, "127.0.0.1:0");
    EXPECT_TRUE(listening.ok()) << listening.status();
    listening_ = *std::move(listening);
  }
  ~ScriptedScheduler() override {
    listening_.server->Shutdown(std::chrono::system_clock::now());
  }
  const std::string& address() const { return listening_.address; }

  grpc::Status Session(grpc::ServerContext*, Stream* stream) override {
    DaemonMessage message;
    while (stream->Read(&message)) {
      if (message.has_register_()) {
        const absl::Status taken = on_register(message.register_());
        if (!taken.ok()) return ToGrpcStatus(taken);
        SchedulerMessage answer;
        *answer.mutable_registered()->mutable_task() =
            message.register_().member().task();
        answer.mutable_registered()->set_ends_with_scheduler(
            ends_with_scheduler);
        stream->Write(answer);
      }
      on_message(message, stream);
    }
    return grpc::Status::OK;
  }

 private:
  ListeningServer listening_;
};

class DaemonTest : public ::testing::Test {
 protected:
  DaemonTest() {
    // Before the first thread: a signal to this process must find no thread
    // that has it open.
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    scheduler_ = std::make_unique<ScriptedScheduler>();
    options_.kind = DaemonKind::kPs;
    options_.program = "syncline-ps";
    options_.task = {TaskKind::kPs, 1};
    options_.scheduler_address = scheduler_->address();
    options_.listen = "127.0.0.1:0";
    options_.http = "127.0.0.1:0";
    options_.log_level = LogLevel::kError;
    options_.port_file = temp_.File("port");
  }

  // A daemon that listens.
  std::unique_ptr<Daemon> Listening(
      std::function<absl::Status()> readiness = nullptr) {
    auto daemon = Daemon::Create(options_);
    EXPECT_TRUE(daemon.ok()) << daemon.status();
    link_ = (*daemon)->AddMember();
    if (readiness) (*daemon)->AddReadiness(std::move(readiness));
    const absl::Status listens =
        (*daemon)->Listen({"syncline.ParameterServer"});
    EXPECT_TRUE(listens.ok()) << listens;
    return *std::move(daemon);
  }
  // Joins, as a role that releases a job when it is told to stop.
  void Join(Daemon* daemon) {
    daemon->Join(link_, options_.task, /*auto_index=*/false, /*incarnation=*/7,
                 [this](const SchedulerMessage& command) {
                   if (!command.has_stop()) return;
                   DaemonMessage done;
                   done.mutable_done()->set_job_id(command.stop().job_id());
                   done.mutable_done()->set_released(true);
                   link_->Send(done);
                 });
  }

  const TempDir temp_;
  DaemonOptions options_;
  std::unique_ptr<ScriptedScheduler> scheduler_;
  MemberLink* link_ = nullptr;
};

TEST_F(DaemonTest, RegistersAsItselfAndEndsWithTheSchedulersCode) {
  Register seen;
  scheduler_->on_message = [&](const DaemonMessage& message, Stream* stream) {
    if (!message.has_register_()) return;
    seen = message.register_();
    stream->Write(ShutdownWith(138));
  };
  const auto daemon = Listening();
  EXPECT_FALSE(link_->Ready().ok());
  Join(daemon.get());
  EXPECT_EQ(daemon->AwaitExit(), 138);
  EXPECT_EQ(daemon->exit_text(), "the test is over");
  EXPECT_TRUE(link_->Ready().ok());
  daemon->Leave();
  EXPECT_EQ(seen.member().task().type(), PS);
  EXPECT_EQ(seen.member().task().index(), 1u);
  EXPECT_EQ(seen.member().address(), daemon->address());
  EXPECT_EQ(seen.member().incarnation(), 7u);
  EXPECT_EQ(seen.member().pid(), getpid());
  EXPECT_FALSE(seen.member().http_address().empty());
  const std::string port_file = *ReadFile(options_.port_file, 100);
  EXPECT_EQ(port_file, daemon->address() + "\n");
}

// Between its start and the moment it asks to be told.
TEST_F(DaemonTest, WhoseParentHasEndedAlreadyEnds) {
  options_.exit_with_parent = getpid();  // its parent is another process
  const auto daemon = Listening();
  EXPECT_EQ(daemon->AwaitExit(), 0);
  EXPECT_EQ(daemon->exit_text(), "the parent has ended");
}

TEST_F(DaemonTest, ASignalWhileIdleIsSuccess) {
  scheduler_->on_message = [](const DaemonMessage& message, Stream*) {
    if (message.has_register_()) kill(getpid(), SIGTERM);
  };
  const auto daemon = Listening();
  Join(daemon.get());
  EXPECT_EQ(daemon->AwaitExit(), 0);
}

TEST_F(DaemonTest, ASignalDuringAJobFailsTheJobWithTheReason) {
  JobDone failure;
  JobDone release;
  scheduler_->on_message = [&](const DaemonMessage& message, Stream* stream) {
    if (message.has_register_()) {
      stream->Write(PrepareOf("j-0001"));
    } else if (message.has_prepared()) {
      kill(getpid(), SIGTERM);
    } else if (message.has_done() && !message.done().released()) {
      failure = message.done();
      stream->Write(StopOf("j-0001"));
    } else if (message.has_done()) {
      release = message.done();
    }
  };
  const auto daemon = Listening();
  daemon->Join(link_, options_.task, false, 7,
               [this](const SchedulerMessage& command) {
                 DaemonMessage answer;
                 if (command.has_prepare()) {
                   answer.mutable_prepared()->set_job_id("j-0001");
                 } else {
                   answer.mutable_done()->set_job_id("j-0001");
                   answer.mutable_done()->set_released(true);
                 }
                 link_->Send(answer);
               });
  EXPECT_EQ(daemon->AwaitExit(), 143);
  daemon->Leave();
  scheduler_.reset();  // its thread has ended
  EXPECT_EQ(failure.job_id(), "j-0001");
  EXPECT_EQ(failure.code(), 10);  // ABORTED
  EXPECT_EQ(failure.message(), "it was told to stop (SIGTERM)");
  EXPECT_EQ(link_->running_job(), "");
}

TEST_F(DaemonTest, ARefusalEndsTheProcessWithOneMessage) {
  scheduler_->on_register = [](const Register&) {
    return absl::InvalidArgumentError("version 9 is not 0.1");
  };
  const auto daemon = Listening();
  ::testing::internal::CaptureStderr();
  Join(daemon.get());
  EXPECT_EQ(daemon->AwaitExit(), 1);
  daemon->Leave();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("syncline-ps: version 9 is not 0.1\n"));
}

TEST_F(DaemonTest, WhoEndsWithItsSchedulerIsWorthARetry) {
  options_.one_job_orphan_timeout = absl::Seconds(1);
  scheduler_->ends_with_scheduler = true;
  const auto daemon = Listening();
  Join(daemon.get());
  EXPECT_TRUE(
      Eventually(absl::Seconds(20), [&] { return link_->Ready().ok(); }));
  scheduler_.reset();
  EXPECT_EQ(daemon->AwaitExit(), 138);
}

TEST_F(DaemonTest, WithoutMembersItIsReadyAtOnce) {
  options_.kind = DaemonKind::kScheduler;
  options_.hosts_scheduler = true;
  auto daemon = Daemon::Create(options_);
  ASSERT_TRUE(daemon.ok());
  ASSERT_TRUE((*daemon)->Listen({"syncline.Jobs"}).ok());
  EXPECT_EQ((*daemon)->scheduler_address(), (*daemon)->address());
  EXPECT_EQ(HealthOf((*daemon)->address(), ""), kServing);
  EXPECT_EQ(HealthOf((*daemon)->address(), "syncline.Jobs"), kServing);
}

TEST_F(DaemonTest, AFileThatCannotBeUsedIsInTheMetrics) {
  options_.kind = DaemonKind::kScheduler;
  options_.hosts_scheduler = true;
  options_.token_file = temp_.Write("tokens", "# nobody\n");
  {
    const auto daemon = Daemon::Create(options_);
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    const auto metrics = [&] { return (*daemon)->metrics()->Render(); };
    const std::string series = "syncline_unusable_files{file=\"tokens\"} ";
    EXPECT_THAT(metrics(), HasSubstr(series + "0\n"));
    ASSERT_OK(WriteFileAtomically(options_.token_file, "what is this\n"));
    EXPECT_THAT(metrics(), HasSubstr(series + "1\n"));
    ASSERT_OK(WriteFileAtomically(options_.token_file, "# nobody\n"));
    EXPECT_THAT(metrics(), HasSubstr(series + "0\n"));
    // It was given no other file.
    EXPECT_THAT(metrics(), Not(HasSubstr("file=\"keys\"")));
    EXPECT_THAT(metrics(), Not(HasSubstr("file=\"revocations\"")));
  }
  SetProcessTokens(nullptr);
}

TEST_F(DaemonTest, AMemberThatIsNotRegisteredIsLiveButNotReady) {
  const auto daemon = Listening();
  EXPECT_EQ(HealthOf(daemon->address(), ""), kServing);
  EXPECT_EQ(HealthOf(daemon->address(), "syncline.ParameterServer"),
            kNotServing);
}

// A check of readiness announces no change, so health must not depend on it.
TEST_F(DaemonTest, HealthIsThatOfTheMembersWhateverElseIsNotReady) {
  const auto daemon =
      Listening([] { return absl::UnavailableError("disk full"); });
  Join(daemon.get());
  EXPECT_TRUE(Eventually(absl::Seconds(20), [&] {
    return HealthOf(daemon->address(), "syncline.ParameterServer") == kServing;
  }));
}

TEST_F(DaemonTest, OneThatHasLostItsSchedulerIsNotReadyAndSaysWhy) {
  const auto daemon = Listening();
  Join(daemon.get());
  const auto health = [&] {
    return HealthOf(daemon->address(), "syncline.ParameterServer");
  };
  EXPECT_TRUE(
      Eventually(absl::Seconds(20), [&] { return link_->Ready().ok(); }));
  EXPECT_TRUE(
      Eventually(absl::Seconds(20), [&] { return health() == kServing; }));
  const std::string scheduler = scheduler_->address();
  scheduler_.reset();
  EXPECT_TRUE(
      Eventually(absl::Seconds(20), [&] { return !link_->Ready().ok(); }));
  EXPECT_THAT(std::string(link_->Ready().message()),
              HasSubstr(absl::StrCat("not registered with the scheduler at ",
                                     scheduler, ": ")));
  EXPECT_TRUE(
      Eventually(absl::Seconds(20), [&] { return health() == kNotServing; }));
  EXPECT_EQ(HealthOf(daemon->address(), ""), kServing);  // alive all the same
}

TEST_F(DaemonTest, ConfirmsItsMembersAndNobodyElse) {
  const auto daemon = Listening();
  const auto stub = Identity::NewStub(MakeChannel(daemon->address()));
  const auto confirm = [&](uint64_t incarnation) {
    const auto context = MakeContext(absl::Now() + absl::Seconds(20));
    ConfirmRequest request;
    request.set_incarnation(incarnation);
    ConfirmResponse response;
    return stub->Confirm(context.get(), request, &response).error_code();
  };
  EXPECT_EQ(confirm(7), grpc::StatusCode::FAILED_PRECONDITION);  // not yet
  Join(daemon.get());
  EXPECT_EQ(confirm(7), grpc::StatusCode::OK);
  EXPECT_EQ(confirm(8), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(confirm(0), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(DaemonTest, APortInUseIsNamed) {
  options_.listen = scheduler_->address();
  auto daemon = Daemon::Create(options_);
  ASSERT_TRUE(daemon.ok());
  const absl::Status status = (*daemon)->Listen({});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat("cannot listen on ", options_.listen,
                                     ": Address already in use")));
}

// Its roles are gone by the time that the daemon is.
TEST_F(DaemonTest, WhatCannotListenAsAWholeServesNothing) {
  options_.port_file = "/nowhere/port";
  auto daemon = Daemon::Create(options_);
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  EXPECT_FALSE((*daemon)->Listen({"syncline.ParameterServer"}).ok());
  EXPECT_LT(HealthOf((*daemon)->address(), ""), 0);
}

TEST_F(DaemonTest, ATemporaryWorkDirIsRemovedAtTheEnd) {
  auto daemon = Daemon::Create(options_);
  ASSERT_TRUE(daemon.ok());
  const std::string dir = *(*daemon)->WorkDir();
  ASSERT_TRUE(WriteFileAtomically(dir + "/x", "x").ok());
  daemon->reset();
  EXPECT_EQ(FileSize(dir + "/x").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace syncline

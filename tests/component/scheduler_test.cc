// Goal: the scheduler as its users and its daemons see it, over gRPC. Method: a
// real scheduler on a free port with a state directory of its own, daemons that
// are sessions with scripted answers, and a client of the Jobs service.

#include "scheduler/scheduler.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "common/base/crc32c.h"
#include "common/base/file.h"
#include "common/base/incarnation.h"
#include "common/base/random.h"
#include "common/base/version.h"
#include "common/model/model.h"
#include "common/rpc/file_chunks.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/identity_service.h"
#include "common/rpc/scheduler_session.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "proto/scheduler.grpc.pb.h"
#include "scheduler/transfer_queue.h"
#include "tests/testing/wait_log.h"

namespace syncline {
namespace {

using ::google::protobuf::TextFormat;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kModel[] = R"(<ir_version: 8, opset_import: ["" : 13]>
g (float[N, 4] x) => (float[N, 1] y)
<float[4, 1] w = {1, 2, 3, 4}, float[1] b = {5}>
{
  y = Gemm (x, w, b)
})";

JobSpec Spec(uint32_t workers, uint32_t ps) {
  JobSpec spec;
  EXPECT_TRUE(TextFormat::ParseFromString(R"(
    name: "tiny"
    model { path: "tiny.onnxtxt" initialize { pattern: "*" scheme: ZEROS } }
    data {
      train { libsvm { path: "t" dimension: 4 } }
      feeds { input: "x" field: "features" }
    }
    loss { kind: SIGMOID_CROSS_ENTROPY }
    optimizer { kind: SGD }
    learning_rate { base: 0.1 }
  )",
                                          &spec));
  spec.mutable_resources()->set_workers(workers);
  spec.mutable_resources()->set_ps(ps);
  return spec;
}

// What a daemon does with a job.
struct Script {
  std::vector<std::string> problems = {};  // of preparing
  bool prepares = true;                    // answers PrepareJob
  bool finishes = true;                    // a worker answers RunJob
  int64_t clock = 5;                       // reported when told to run
};

// A daemon without anything behind its session.
class FakeDaemon {
 public:
  FakeDaemon(const std::string& scheduler, TaskType type, uint32_t index,
             Script script = {}, const std::string& address = "")
      : script_(std::move(script)) {
    SchedulerSession::Options options;
    options.scheduler_address = scheduler;
    options.self.mutable_task()->set_type(type);
    options.self.mutable_task()->set_index(index);
    options.self.set_address(address.empty()
                                 ? absl::StrCat("10.0.0.", index + 1, ":7000")
                                 : address);
    options.self.set_incarnation(EntropySeed());
    options.self.set_version(kVersion);
    options.task_taken_timeout = absl::Milliseconds(500);
    incarnation_ = options.self.incarnation();
    MutexLock lock(&mu_);
    session_ = SchedulerSession::Start(
        options,
        {.on_command = [this](const auto& command) { OnCommand(command); },
         .on_registered = [this](const auto& r) { registered.Add(r); },
         .on_rejected = [this](const auto& s) { rejected.Add(s); }});
  }
  // Dies without a word.
  ~FakeDaemon() {
    std::unique_ptr<SchedulerSession> session;
    {
      MutexLock lock(&mu_);
      session = std::move(session_);
    }
  }

  void Send(DaemonMessage message) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    if (session_ != nullptr) session_->Send(std::move(message));
  }
  void SendDone(const std::string& job_id, bool released) {
    DaemonMessage message;
    message.mutable_done()->set_job_id(job_id);
    message.mutable_done()->set_released(released);
    Send(std::move(message));
  }
  void AwaitRegistered() { ASSERT_EQ(registered.Await(1).size(), 1); }
  // The job that was stopped last; waits for `count` of them.
  std::vector<StopJob> AwaitStops(size_t count) {
    const auto all = commands.AwaitThat(
        [&](const auto& seen) { return Stops(seen).size() >= count; });
    return Stops(all);
  }
  void AwaitRun() {
    commands.AwaitThat([](const auto& seen) {
      for (const auto& command : seen) {
        if (command.has_run()) return true;
      }
      return false;
    });
  }
  uint64_t incarnation() const { return incarnation_; }
  // How it begins to store a file of a job.
  UploadBegin Upload(const std::string& job_id, const std::string& name) {
    UploadBegin begin;
    begin.set_job_id(job_id);
    begin.set_name(name);
    begin.set_incarnation(incarnation_);
    begin.set_session_secret(registered.Await(1).back().session_secret());
    return begin;
  }

  WaitLog<SchedulerMessage> commands;
  WaitLog<Registered> registered;
  WaitLog<absl::Status> rejected;

 private:
  static std::vector<StopJob> Stops(const std::vector<SchedulerMessage>& all) {
    std::vector<StopJob> stops;
    for (const SchedulerMessage& command : all) {
      if (command.has_stop()) stops.push_back(command.stop());
    }
    return stops;
  }

  void OnCommand(const SchedulerMessage& command) {
    if (command.has_prepare() && script_.prepares) {
      DaemonMessage message;
      JobPrepared* prepared = message.mutable_prepared();
      prepared->set_job_id(command.prepare().assignment().job_id());
      for (const std::string& problem : script_.problems) {
        prepared->add_problems(problem);
      }
      Send(std::move(message));
    } else if (command.has_run()) {
      DaemonMessage message;
      message.mutable_report()->set_job_id(command.run().job_id());
      WorkerProgress* progress = message.mutable_report()->mutable_progress();
      progress->set_clock(script_.clock);
      progress->set_clocks_total(10);
      progress->set_clocks_per_epoch(10);
      progress->set_loss(0.5);
      progress->set_samples_per_second(100);
      Send(std::move(message));
      if (script_.finishes) SendDone(command.run().job_id(), false);
    } else if (command.has_stop()) {
      SendDone(command.stop().job_id(), true);
    }
    commands.Add(command);
  }

  const Script script_;
  uint64_t incarnation_ = 0;
  Mutex mu_;
  std::unique_ptr<SchedulerSession> session_ ABSL_GUARDED_BY(mu_);
};

// Takes everybody at his word: the daemons here have no address.
class TrustingConfirmer final : public AddressConfirmer {
 public:
  void Confirm(const std::string&, uint64_t,
               std::function<void(absl::Status)> done) override {
    done(absl::OkStatus());
  }
};

class SchedulerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.confirmer = std::make_shared<TrustingConfirmer>();
    dir_ = std::filesystem::path(::testing::TempDir()) /
           absl::StrCat("scheduler_", absl::Hex(EntropySeed()));
    std::filesystem::create_directory(dir_);
    options_.state_dir = dir_ / "state";
    options_.lease = absl::Seconds(2);
    options_.heartbeat = absl::Milliseconds(200);
    StartScheduler("127.0.0.1:0");
  }
  void TearDown() override {
    daemons_.clear();
    StopScheduler();
    std::filesystem::remove_all(dir_);
  }

  void StartScheduler(const std::string& listen) {
    auto scheduler = Scheduler::Create(options_);
    ASSERT_TRUE(scheduler.ok()) << scheduler.status();
    scheduler_ = std::move(*scheduler);
    grpc::ServerBuilder builder;
    scheduler_->RegisterServices(&builder);
    auto server = StartServer(&builder, listen);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
    scheduler_->SetAddress(server_.address);
    jobs_ = Jobs::NewStub(MakeChannel(server_.address));
  }
  void StopScheduler() {
    scheduler_->Drain(absl::Now() + kPatience);
    server_.server->Shutdown(absl::ToChronoTime(absl::Now()));
    server_.server.reset();
    scheduler_.reset();
  }
  void RestartScheduler() {
    StopScheduler();
    StartScheduler(server_.address);
  }

  FakeDaemon* AddDaemon(TaskType type, uint32_t index, Script script = {}) {
    daemons_.push_back(std::make_unique<FakeDaemon>(server_.address, type,
                                                    index, std::move(script)));
    daemons_.back()->AwaitRegistered();
    return daemons_.back().get();
  }
  // The daemon's process is killed.
  void Kill(FakeDaemon* daemon) {
    std::erase_if(daemons_, [&](const auto& d) { return d.get() == daemon; });
  }

  absl::StatusOr<std::string> Submit(const JobSpec& spec,
                                     const std::string& model = kModel) {
    const auto context = MakeContext(absl::Now() + kPatience);
    SubmitResponse response;
    const auto writer = jobs_->Submit(context.get(), &response);
    SubmitRequest request;
    *request.mutable_begin()->mutable_spec() = spec;
    writer->Write(request);
    request.mutable_model()->set_data(model);
    request.mutable_model()->set_last(true);
    request.mutable_model()->set_crc32c(Crc32c(model));
    writer->Write(request);
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    if (!status.ok()) return FromGrpcStatus(status);
    return response.job_id();
  }
  std::string MustSubmit(const JobSpec& spec) {
    auto job_id = Submit(spec);
    EXPECT_TRUE(job_id.ok()) << job_id.status();
    return job_id.value_or("");
  }
  absl::StatusOr<JobStatus> Get(const std::string& job_id) {
    const auto context = MakeContext(absl::Now() + kPatience);
    GetRequest request;
    request.set_job_id(job_id);
    JobStatus status;
    const grpc::Status result = jobs_->Get(context.get(), request, &status);
    if (!result.ok()) return FromGrpcStatus(result);
    return status;
  }
  absl::Status Cancel(const std::string& job_id) {
    const auto context = MakeContext(absl::Now() + kPatience);
    CancelRequest request;
    request.set_job_id(job_id);
    request.set_reason("not needed");
    JobStatus status;
    return FromGrpcStatus(jobs_->Cancel(context.get(), request, &status));
  }
  // Watches until `done`; all statuses that were seen.
  std::vector<JobStatus> WatchUntil(
      const std::string& job_id,
      const std::function<bool(const JobStatus&)>& done) {
    const auto context = MakeContext(absl::Now() + kPatience);
    WatchRequest request;
    request.set_job_id(job_id);
    const auto reader = jobs_->Watch(context.get(), request);
    std::vector<JobStatus> seen;
    for (JobStatus status; reader->Read(&status);) {
      seen.push_back(status);
      if (done(status)) break;
    }
    context->TryCancel();
    reader->Finish();
    EXPECT_FALSE(seen.empty());
    if (seen.empty()) seen.emplace_back();
    EXPECT_TRUE(done(seen.back())) << seen.back().DebugString();
    return seen;
  }
  JobStatus AwaitState(const std::string& job_id, JobState state) {
    return WatchUntil(
               job_id,
               [=](const JobStatus& status) { return status.state() == state; })
        .back();
  }
  // Waits until this many members are free.
  void AwaitFree(int count) {
    const absl::Time deadline = absl::Now() + kPatience;
    int free = -1;
    while (absl::Now() < deadline && free != count) {
      free = 0;
      const auto context = MakeContext(deadline);
      ClusterStatus cluster;
      jobs_->GetCluster(context.get(), {}, &cluster);
      for (const auto& entry : cluster.members()) {
        if (entry.job_id().empty()) ++free;
      }
    }
    EXPECT_EQ(free, count);
  }
  static std::string LastReason(const JobStatus& status) {
    return status.transitions(status.transitions_size() - 1).reason();
  }

  std::filesystem::path dir_;
  Scheduler::Options options_;
  std::unique_ptr<Scheduler> scheduler_;
  ListeningServer server_;
  std::unique_ptr<Jobs::Stub> jobs_;
  std::vector<std::unique_ptr<FakeDaemon>> daemons_;
};

TEST_F(SchedulerTest, AJobRunsAndSucceeds) {
  FakeDaemon* ps = AddDaemon(PS, 0);
  AddDaemon(WORKER, 0);
  FakeDaemon* chief = AddDaemon(CHIEF, 0);
  const std::string job_id = MustSubmit(Spec(2, 1));
  EXPECT_EQ(job_id, "j-0001");
  const JobStatus status = AwaitState(job_id, SUCCEEDED);
  EXPECT_EQ(status.exit_code(), 0);
  std::vector<JobState> states;
  for (const auto& transition : status.transitions()) {
    states.push_back(transition.state());
  }
  EXPECT_THAT(states, ElementsAre(QUEUED, PREPARING, RUNNING, SUCCEEDED));
  // The chief has rank 0, whatever the order of registration.
  EXPECT_EQ(status.workers(0).member().task().type(), CHIEF);
  EXPECT_EQ(status.workers(1).member().task().type(), WORKER);
  EXPECT_EQ(status.progress().clock(), 5);
  EXPECT_EQ(status.progress().loss(), 0.5);
  EXPECT_EQ(status.progress().samples_per_second(), 200);

  const auto commands = chief->commands.Await(3);
  ASSERT_EQ(commands.size(), 3);
  const JobAssignment& assignment = commands[0].prepare().assignment();
  EXPECT_EQ(assignment.job_id(), job_id);
  EXPECT_EQ(assignment.workers_size(), 2);
  EXPECT_EQ(assignment.ps_size(), 1);
  EXPECT_EQ(assignment.parameters_size(), 2);
  EXPECT_EQ(assignment.parameters(0).name(), "w");
  EXPECT_EQ(assignment.spec().training().batch_size(), 32);  // the default
  EXPECT_EQ(assignment.model_artifact(), "model.onnx");
  EXPECT_TRUE(commands[1].has_run());
  EXPECT_TRUE(commands[2].has_stop());
  ASSERT_EQ(ps->AwaitStops(1).size(), 1);
  AwaitFree(3);
}

TEST_F(SchedulerTest, TheModelCanBeFetchedByDaemons) {
  const std::string job_id = MustSubmit(Spec(1, 1));
  const absl::Status status =
      FetchArtifact(server_.address, job_id, "model.onnx", dir_ / "model",
                    absl::Now() + kPatience);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(*ReadFile(dir_ / "model", 1 << 20), kModel);
}

TEST_F(SchedulerTest, BadJobsAreRefusedWithAllProblemsAtOnce) {
  JobSpec spec = Spec(1, 1);
  spec.mutable_learning_rate()->set_base(-1);
  spec.set_strategy(ALL_REDUCE);
  const absl::Status status = Submit(spec, "this is no model").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("learning_rate.base"), HasSubstr("strategy"),
                    HasSubstr("tiny.onnxtxt")));
  JobSpec misfit = Spec(1, 1);
  misfit.mutable_data()->mutable_feeds(0)->set_input("nobody");
  const absl::Status no_input = Submit(misfit).status();
  EXPECT_EQ(no_input.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(no_input.message(), HasSubstr("nobody"));
  // Nothing is left of them.
  EXPECT_TRUE(std::filesystem::is_empty(dir_ / "state/jobs"));
  EXPECT_EQ(Get("j-0001").status().code(), absl::StatusCode::kNotFound);
}

// ONNX lets any bytes be a name; a record with such a name could be written but
// not be read again.
TEST_F(SchedulerTest, AParameterWhoseNameIsNotTextIsRefused) {
  std::string text = absl::StrReplaceAll(
      kModel, {{"[4, 1] w =", "[4, 1] wxy ="}, {"(x, w, b)", "(x, wxy, b)"}});
  const auto model = Model::Parse(text, "tiny");
  ASSERT_TRUE(model.ok()) << model.status();
  const std::string binary = absl::StrReplaceAll(
      (*model)->WithWeights({}).value(), {{"wxy", "w\xffy"}});
  const absl::Status status = Submit(Spec(1, 1), binary).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("w\\xffy' is not UTF-8"));
  RestartScheduler();
}

TEST_F(SchedulerTest, UploadsThatBreakOffAreRefused) {
  const auto context = MakeContext(absl::Now() + kPatience);
  SubmitResponse response;
  const auto writer = jobs_->Submit(context.get(), &response);
  SubmitRequest request;
  *request.mutable_begin()->mutable_spec() = Spec(1, 1);
  writer->Write(request);
  request.mutable_model()->set_data("half");
  writer->Write(request);
  writer->WritesDone();
  EXPECT_EQ(writer->Finish().error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_TRUE(std::filesystem::is_empty(dir_ / "state/incoming"));
}

TEST_F(SchedulerTest, ProblemsOfPreparingFailTheJobAndFreeAll) {
  AddDaemon(PS, 0);
  AddDaemon(WORKER, 0, {.problems = {"data.train: t: no such file", "more"}});
  AddDaemon(WORKER, 1, {.problems = {"data.train: t: no such file"}});
  const JobStatus status = AwaitState(MustSubmit(Spec(2, 1)), FAILED);
  EXPECT_EQ(status.exit_code(), 1);
  EXPECT_EQ(LastReason(status),
            "worker 0 at 10.0.0.1:7000: data.train: t: no such file\n"
            "worker 0 at 10.0.0.1:7000: more\n"
            "worker 1 at 10.0.0.2:7000: data.train: t: no such file");
  AwaitFree(3);
}

TEST_F(SchedulerTest, ALostDaemonFailsItsJobByNameAndFreesTheOthers) {
  FakeDaemon* ps = AddDaemon(PS, 0);
  AddDaemon(PS, 1);
  FakeDaemon* worker = AddDaemon(WORKER, 0, {.finishes = false, .clock = 231});
  const std::string job_id = MustSubmit(Spec(1, 1));
  WatchUntil(job_id, [](const JobStatus& status) {
    return status.progress().clock() == 231;
  });
  const std::string incarnation = IncarnationText(ps->incarnation());
  const absl::Time killed = absl::Now();
  Kill(ps);
  const JobStatus status = AwaitState(job_id, FAILED);
  EXPECT_LT(absl::Now() - killed, absl::Seconds(10));
  EXPECT_EQ(LastReason(status),
            absl::StrCat("ps 0 at 10.0.0.1:7000 (incarnation ", incarnation,
                         ") was lost: stream closed; last clock 231"));
  EXPECT_EQ(status.exit_code(), 138);
  EXPECT_THAT(worker->AwaitStops(1)[0].reason(), HasSubstr("ps 0"));
  AwaitFree(2);
  // The cluster takes the next job.
  const std::string next = MustSubmit(Spec(1, 1));
  AwaitState(next, RUNNING);
}

TEST_F(SchedulerTest, JobsAreCancelledInEachState) {
  const std::string queued = MustSubmit(Spec(1, 1));
  EXPECT_TRUE(Cancel(queued).ok());
  EXPECT_EQ(LastReason(AwaitState(queued, CANCELLED)), "not needed");
  EXPECT_EQ(Cancel(queued).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Cancel("j-4711").code(), absl::StatusCode::kNotFound);

  AddDaemon(PS, 0);
  FakeDaemon* slow = AddDaemon(WORKER, 0, {.prepares = false});
  const std::string preparing = MustSubmit(Spec(1, 1));
  AwaitState(preparing, PREPARING);
  EXPECT_TRUE(Cancel(preparing).ok());
  AwaitState(preparing, CANCELLED);
  AwaitFree(2);
  Kill(slow);
  AwaitFree(1);

  AddDaemon(WORKER, 1, {.finishes = false});
  const std::string running = MustSubmit(Spec(1, 1));
  AwaitState(running, RUNNING);
  EXPECT_TRUE(Cancel(running).ok());
  AwaitState(running, CANCELLED);
  AwaitFree(2);
}

TEST_F(SchedulerTest, JobsRunInTheOrderOfTheirSubmission) {
  const std::string first = MustSubmit(Spec(2, 1));
  const std::string second = MustSubmit(Spec(1, 1));
  AddDaemon(PS, 0);
  AddDaemon(WORKER, 0);
  // The second one would fit, but does not overtake: more may be on their way.
  const JobStatus waiting = Get(first).value();
  EXPECT_EQ(waiting.state(), QUEUED);
  EXPECT_THAT(waiting.waiting_for(),
              AllOf(HasSubstr("needs 2 workers and 1 ps; free: 1 worker, 1 ps"),
                    HasSubstr("more than this cluster has (1 worker, 1 ps)"),
                    HasSubstr("resources.workers")));
  const JobStatus behind = Get(second).value();
  EXPECT_EQ(behind.state(), QUEUED);
  EXPECT_EQ(behind.queue_position(), 1);
  AddDaemon(WORKER, 1);
  const JobStatus a = AwaitState(first, SUCCEEDED);
  const JobStatus b = AwaitState(second, SUCCEEDED);
  const auto& start_a = a.transitions(1).time();
  const auto& start_b = b.transitions(1).time();
  EXPECT_LE(std::make_pair(start_a.seconds(), start_a.nanos()),
            std::make_pair(start_b.seconds(), start_b.nanos()));
}

TEST_F(SchedulerTest, ARestartedSchedulerKnowsEveryJob) {
  AddDaemon(PS, 0);
  AddDaemon(WORKER, 0);
  const std::string done = MustSubmit(Spec(1, 1));
  AwaitState(done, SUCCEEDED);
  FakeDaemon* endless = AddDaemon(WORKER, 1, {.finishes = false});
  const std::string running = MustSubmit(Spec(2, 1));
  AwaitState(running, RUNNING);
  const std::string queued = MustSubmit(Spec(3, 1));

  RestartScheduler();
  EXPECT_EQ(Get(done)->state(), SUCCEEDED);
  const JobStatus failed = Get(running).value();
  EXPECT_EQ(failed.state(), FAILED);
  EXPECT_THAT(LastReason(failed), HasSubstr("scheduler was restarted"));
  EXPECT_EQ(failed.exit_code(), 138);
  // The daemons come back, one of them still at work: it is told to stop.
  EXPECT_EQ(endless->registered.Await(2).size(), 2);
  AddDaemon(WORKER, 2);
  AwaitState(queued, RUNNING);
  EXPECT_EQ(Get(queued)->spec().name(), "tiny");
  EXPECT_EQ(MustSubmit(Spec(1, 1)), "j-0004");
}

TEST_F(SchedulerTest, AClientsKeyOutlivesTheScheduler) {
  const auto submit = [&](const std::string& key) {
    const auto submission = scheduler_->Submit(Spec(1, 1), kModel, key);
    EXPECT_TRUE(submission.ok()) << submission.status();
    return *submission;
  };
  const std::string first = submit("nightly").job_id;
  RestartScheduler();
  EXPECT_EQ(submit("nightly").job_id, first);
  EXPECT_TRUE(submit("nightly").repeated);
  EXPECT_NE(submit("weekly").job_id, first);
}

TEST_F(SchedulerTest, FilesOutliveTheRecordsOfTheirJobs) {
  const std::string lost = MustSubmit(Spec(1, 1));
  const std::filesystem::path model = dir_ / "state/jobs" / lost / "model.onnx";
  StopScheduler();
  std::filesystem::remove_all(dir_ / "state/db");
  StartScheduler(server_.address);
  EXPECT_FALSE(Get(lost).ok());
  EXPECT_TRUE(std::filesystem::exists(model));
  // Nor does another job get its number and replace them.
  EXPECT_NE(MustSubmit(Spec(1, 1)), lost);
  RestartScheduler();
  EXPECT_EQ(*ReadFile(model, 1 << 20), kModel);
}

TEST_F(SchedulerTest, FilesOfAnySizeComeBack) {
  AddDaemon(PS, 0);
  FakeDaemon* worker = AddDaemon(WORKER, 0, {.finishes = false});
  const std::string job_id = MustSubmit(Spec(1, 1));
  AwaitState(job_id, RUNNING);
  std::string content(50 << 20, '\0');
  Random random(1);
  for (size_t i = 0; i < content.size(); i += 4096) {
    content[i] = static_cast<char>(random.Next());
  }
  ASSERT_TRUE(WriteFileAtomically(dir_ / "big", content).ok());
  const absl::Time deadline = absl::Now() + kPatience;
  const auto upload = [&](const UploadBegin& begin) {
    return UploadArtifact(server_.address, begin, dir_ / "big", deadline);
  };
  EXPECT_EQ(upload(worker->Upload(job_id, "../../etc/passwd")).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(upload(worker->Upload(job_id, "model.onnx")).code(),
            absl::StatusCode::kInvalidArgument);
  const absl::Status stored = upload(worker->Upload(job_id, "trained.onnx"));
  ASSERT_TRUE(stored.ok()) << stored;
  worker->SendDone(job_id, false);
  const JobStatus status = AwaitState(job_id, SUCCEEDED);
  ASSERT_EQ(status.artifacts_size(), 2);
  EXPECT_EQ(status.artifacts(1).size_bytes(), content.size());
  EXPECT_EQ(status.artifacts(1).crc32c(), Crc32c(content));

  const auto context = MakeContext(deadline);
  DownloadRequest request;
  request.set_job_id(job_id);
  request.set_name("trained.onnx");
  const auto reader = jobs_->Download(context.get(), request);
  std::string received;
  for (FileChunk chunk; reader->Read(&chunk);) {
    EXPECT_LE(chunk.data().size(), kFileChunkBytesMax);
    received += chunk.data();
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_TRUE(received == content);

  request.set_name("nothing");
  FileChunk chunk;
  const auto missing_context = MakeContext(deadline);
  const auto missing = jobs_->Download(missing_context.get(), request);
  EXPECT_FALSE(missing->Read(&chunk));
  const absl::Status why = FromGrpcStatus(missing->Finish());
  EXPECT_EQ(why.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(why.message(), HasSubstr("model.onnx, trained.onnx"));
}

TEST_F(SchedulerTest, AnUploadNamesTheSecretOfItsStream) {
  AddDaemon(PS, 0);
  FakeDaemon* worker = AddDaemon(WORKER, 0, {.finishes = false});
  FakeDaemon* other = AddDaemon(WORKER, 1);
  const std::string job_id = MustSubmit(Spec(1, 1));
  AwaitState(job_id, RUNNING);
  ASSERT_TRUE(WriteFileAtomically(dir_ / "file", "content").ok());
  const auto upload = [&](const UploadBegin& begin) {
    return UploadArtifact(server_.address, begin, dir_ / "file",
                          absl::Now() + kPatience);
  };
  const UploadBegin right = worker->Upload(job_id, "trained.onnx");
  EXPECT_EQ(right.session_secret().size(), 16);
  for (const std::string& secret :
       {std::string(), std::string(16, '\0'),
        other->Upload(job_id, "").session_secret()}) {
    UploadBegin wrong = right;
    wrong.set_session_secret(secret);
    const absl::Status refused = upload(wrong);
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(refused.message(), HasSubstr("secret"));
  }
  UploadBegin stranger = right;
  stranger.set_incarnation(1);
  EXPECT_EQ(upload(stranger).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(upload(right).ok());
}

// What proves membership must not be among what is shown.
TEST_F(SchedulerTest, NoIncarnationOrSecretGetsOut) {
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
  JobSpec spec = Spec(1, 1);
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
      shown.push_back(page("").body);
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

TEST_F(SchedulerTest, ASpoiledFileIsNotSent) {
  const std::string job_id = MustSubmit(Spec(1, 1));
  const std::string path = dir_ / "state/jobs" / job_id / "model.onnx";
  std::string content = *ReadFile(path, 1 << 20);
  content[10] ^= 1;
  ASSERT_TRUE(WriteFileAtomically(path, content).ok());
  EXPECT_EQ(FetchArtifact(server_.address, job_id, "model.onnx", dir_ / "model",
                          absl::Now() + kPatience)
                .code(),
            absl::StatusCode::kDataLoss);
}

TEST_F(SchedulerTest, OldFilesAreDeletedAndTheJobIsKept) {
  StopScheduler();
  options_.keep = absl::Milliseconds(1);
  StartScheduler(server_.address);
  const std::string job_id = MustSubmit(Spec(1, 1));
  ASSERT_TRUE(Cancel(job_id).ok());
  RestartScheduler();  // which looks at once
  const std::filesystem::path files = dir_ / "state/jobs" / job_id;
  const absl::Time deadline = absl::Now() + kPatience;
  while (std::filesystem::exists(files) && absl::Now() < deadline) {
    EXPECT_TRUE(Get(job_id).ok());
  }
  EXPECT_FALSE(std::filesystem::exists(files));
  EXPECT_EQ(Get(job_id)->artifacts_size(), 0);
  EXPECT_EQ(Get(job_id)->state(), CANCELLED);
  EXPECT_THAT(FetchArtifact(server_.address, job_id, "model.onnx",
                            dir_ / "model", deadline)
                  .message(),
              HasSubstr("deleted"));
  // One that dies before it has deleted them leaves that to the next.
  StopScheduler();
  ASSERT_TRUE(MakeDirs(files).ok());
  StartScheduler(server_.address);
  EXPECT_FALSE(std::filesystem::exists(files));
}

TEST_F(SchedulerTest, WhoSaysNothingIsGivenUp) {
  StopScheduler();
  options_.idle_limit = absl::Milliseconds(500);
  StartScheduler(server_.address);
  // A user's upload that stalls, and a stream that does not register.
  const auto context = MakeContext(absl::Now() + kPatience);
  SubmitResponse response;
  const auto writer = jobs_->Submit(context.get(), &response);
  SubmitRequest request;
  *request.mutable_begin()->mutable_spec() = Spec(1, 1);
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
  // It is there for others, once they have the usual time.
  StopScheduler();
  options_.idle_limit = Scheduler::Options().idle_limit;
  StartScheduler(server_.address);
  AddDaemon(WORKER, 0);
  EXPECT_TRUE(Submit(Spec(1, 1)).ok());
}

// What the scheduler says of the only member.
class SchedulerAddressTest : public SchedulerTest {
 protected:
  void SetUp() override {
    SchedulerTest::SetUp();
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
    SchedulerTest::TearDown();
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

TEST_F(SchedulerTest, ATaskThatIsTakenIsRefusedWithItsHolder) {
  AddDaemon(WORKER, 0);
  FakeDaemon second(server_.address, WORKER, 0);
  const auto rejected = second.rejected.Await(1);
  ASSERT_EQ(rejected.size(), 1);
  EXPECT_EQ(rejected[0].code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(rejected[0].message(),
              HasSubstr("worker 0 at 10.0.0.1:7000 (incarnation 0x"));
}

TEST_F(SchedulerTest, ASilentDaemonLosesItsLease) {
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

TEST_F(SchedulerTest, InProcessSubmitWaitAndShutdown) {
  AddDaemon(PS, 0);
  FakeDaemon* worker = AddDaemon(WORKER, 0);
  const auto submitted = scheduler_->Submit(Spec(1, 1), kModel, "");
  ASSERT_TRUE(submitted.ok()) << submitted.status();
  const auto status =
      scheduler_->WaitFor(submitted->job_id, absl::Now() + kPatience);
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->state(), SUCCEEDED);
  const std::string queued = scheduler_->Submit(Spec(9, 1), kModel, "")->job_id;
  // Not over by the deadline: its latest status, if there was time for one.
  const auto waiting =
      scheduler_->WaitFor(queued, absl::Now() + absl::Milliseconds(100));
  if (waiting.ok()) {
    EXPECT_EQ(waiting->state(), QUEUED);
  } else {
    EXPECT_EQ(waiting.status().code(), absl::StatusCode::kDeadlineExceeded);
  }
  EXPECT_EQ(scheduler_->Submit(Spec(1, 1), "nonsense", "").status().code(),
            absl::StatusCode::kInvalidArgument);

  scheduler_->ShutdownCluster(3, "done", /*members=*/0, absl::Now());
  const auto commands = worker->commands.AwaitThat([](const auto& seen) {
    return !seen.empty() && seen.back().has_shutdown();
  });
  EXPECT_EQ(commands.back().shutdown().exit_code(), 3);
  EXPECT_EQ(Submit(Spec(1, 1)).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(SchedulerTest, DrainEndsStreamsAndWatches) {
  AddDaemon(WORKER, 0);
  const std::string job_id = MustSubmit(Spec(1, 1));
  const auto context = MakeContext(absl::Now() + kPatience);
  WatchRequest request;
  request.set_job_id(job_id);
  const auto reader = jobs_->Watch(context.get(), request);
  JobStatus status;
  ASSERT_TRUE(reader->Read(&status));
  scheduler_->Drain(absl::Now() + kPatience);
  while (reader->Read(&status)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::UNAVAILABLE);
  EXPECT_EQ(Submit(Spec(1, 1)).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(SchedulerTest, PagesShowJobsAndEscapeThem) {
  AddDaemon(PS, 0);
  AddDaemon(WORKER, 0, {.problems = {"<script>alert(1)</script>"}});
  AwaitState(MustSubmit(Spec(1, 1)), FAILED);
  const auto pages = scheduler_->Pages();
  const HttpServer::Response page = pages.at("/")("");
  EXPECT_EQ(page.code, 200);
  EXPECT_THAT(page.body,
              AllOf(HasSubstr("j-0001"), HasSubstr("&lt;script&gt;"),
                    Not(HasSubstr("<script")), HasSubstr(server_.address)));
  const HttpServer::Response json = pages.at("/jobs.json")("");
  EXPECT_EQ(json.content_type, "application/json");
  EXPECT_THAT(json.body, HasSubstr("\"job_id\":\"j-0001\""));
  // Of a spec it has the name alone, and no zeros that nobody wrote.
  EXPECT_THAT(json.body, HasSubstr("\"spec\":{\"name\":\"tiny\"}"));
}

// Jobs that ended with a long reason, more of them than a message takes.
TEST_F(SchedulerTest, AListOfLongJobsComesInPages) {
  constexpr int kJobs = 270;
  CancelRequest cancel;
  cancel.set_reason(std::string(16 << 10, 'x'));
  for (int i = 0; i < kJobs; ++i) {
    const auto job = scheduler_->Submit(Spec(1, 1), kModel, /*client_key=*/"");
    ASSERT_TRUE(job.ok()) << job.status();
    cancel.set_job_id(job->job_id);
    JobStatus status;
    const auto context = MakeContext(absl::Now() + kPatience);
    ASSERT_TRUE(jobs_->Cancel(context.get(), cancel, &status).ok());
  }
  ListRequest request;
  request.set_limit(1000);
  std::vector<std::string> listed;
  int pages = 0;
  do {
    ListResponse page;
    const auto context = MakeContext(absl::Now() + kPatience);
    const grpc::Status status = jobs_->List(context.get(), request, &page);
    ASSERT_TRUE(status.ok()) << status.error_message();
    for (const JobStatus& job : page.jobs()) listed.push_back(job.job_id());
    request.set_page_token(page.next_page_token());
    ++pages;
    // A job that comes meanwhile moves no page.
    if (pages == 1) MustSubmit(Spec(1, 1));
  } while (!request.page_token().empty() && pages < kJobs);
  EXPECT_EQ(pages, 2);
  ASSERT_EQ(listed.size(), kJobs);
  EXPECT_EQ(listed.front(), "j-0270");
  EXPECT_EQ(listed.back(), "j-0001");

  request.set_page_token("nonsense");
  ListResponse none;
  const auto context = MakeContext(absl::Now() + kPatience);
  const absl::Status refused =
      FromGrpcStatus(jobs_->List(context.get(), request, &none));
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("page_token: \"nonsense\""));
  // The page of the HTTP server likewise.
  const auto json = scheduler_->Pages().at("/jobs.json");
  EXPECT_THAT(json("").body, HasSubstr("\"next_page_token\":\"j-0172\""));
  EXPECT_THAT(json("page_token=j-0002").body, HasSubstr("j-0001"));
  EXPECT_EQ(json("page_token=x").code, 400);
}

TEST_F(SchedulerTest, AJobThatFitsIntoNoMessageIsRefusedWithTheNumber) {
  JobSpec spec = Spec(1, 1);
  spec.mutable_data()->mutable_train()->mutable_libsvm()->set_path(
      std::string(3'500'000, 't'));
  const absl::Status refused = Submit(spec).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("3500000"));
  EXPECT_TRUE(std::filesystem::is_empty(dir_ / "state/jobs"));
}

TEST_F(SchedulerTest, ABadChunkIsNoticedBeforeTheEnd) {
  const auto context = MakeContext(absl::Now() + kPatience);
  SubmitResponse response;
  const auto writer = jobs_->Submit(context.get(), &response);
  SubmitRequest request;
  *request.mutable_begin()->mutable_spec() = Spec(1, 1);
  writer->Write(request);
  request.mutable_model()->set_data("first");
  request.mutable_model()->set_crc32c(Crc32c("another"));
  writer->Write(request);
  // Not the last chunk, and the call is answered all the same.
  const absl::Status refused = FromGrpcStatus(writer->Finish());
  EXPECT_EQ(refused.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(refused.message(), HasSubstr("checksum mismatch after 5 bytes"));
  EXPECT_TRUE(std::filesystem::is_empty(dir_ / "state/incoming"));
}

// More uploads than are read at a time, all of which stall: the next one waits
// for its turn, and gets it when one of them ends.
TEST_F(SchedulerTest, StalledUploadsAreFewInHandAndOthersGetTheirTurn) {
  const TransferQueue::Options limits;
  struct Stalled {
    std::unique_ptr<grpc::ClientContext> context;
    SubmitResponse response;
    std::unique_ptr<grpc::ClientWriter<SubmitRequest>> writer;
  };
  std::vector<Stalled> stalled(limits.reading_per_client_max);
  SubmitRequest request;
  *request.mutable_begin()->mutable_spec() = Spec(1, 1);
  for (Stalled& one : stalled) {
    one.context = MakeContext(absl::Now() + 2 * kPatience);
    one.writer = jobs_->Submit(one.context.get(), &one.response);
    ASSERT_TRUE(one.writer->Write(request));
  }
  // All of them have their turn: their files are there.
  const absl::Time deadline = absl::Now() + kPatience;
  const auto incoming = [&] {
    return static_cast<size_t>(std::distance(
        std::filesystem::directory_iterator(dir_ / "state/incoming"), {}));
  };
  while (incoming() < stalled.size() && absl::Now() < deadline) {
  }
  ASSERT_EQ(incoming(), stalled.size());
  // One more is not read yet, so it has no file.
  Stalled next;
  next.context = MakeContext(absl::Now() + 2 * kPatience);
  next.writer = jobs_->Submit(next.context.get(), &next.response);
  ASSERT_TRUE(next.writer->Write(request));
  request.mutable_model()->set_data(kModel);
  request.mutable_model()->set_last(true);
  request.mutable_model()->set_crc32c(Crc32c(kModel));
  next.writer->Write(request);
  next.writer->WritesDone();
  EXPECT_EQ(incoming(), stalled.size());
  stalled.front().context->TryCancel();
  const grpc::Status done = next.writer->Finish();
  EXPECT_TRUE(done.ok()) << done.error_message();
  for (Stalled& one : stalled) {
    one.context->TryCancel();
    one.writer->Finish();
  }
}

TEST_F(SchedulerTest, ReadyIsSaidOnlyWhileItIsTrue) {
  EXPECT_TRUE(scheduler_->Ready().ok()) << scheduler_->Ready();
  std::filesystem::rename(dir_ / "state/incoming", dir_ / "state/away");
  const absl::Status gone = scheduler_->Ready();
  EXPECT_FALSE(gone.ok());
  EXPECT_THAT(gone.message(), HasSubstr("state/incoming"));
  // Submitting says the same instead of failing half-way.
  EXPECT_FALSE(Submit(Spec(1, 1)).ok());
  std::filesystem::rename(dir_ / "state/away", dir_ / "state/incoming");
  EXPECT_TRUE(scheduler_->Ready().ok()) << scheduler_->Ready();
  scheduler_->Drain(absl::Now() + kPatience);
  EXPECT_EQ(scheduler_->Ready().code(), absl::StatusCode::kUnavailable);
}

TEST_F(SchedulerTest, TheStateBelongsToOneScheduler) {
  const auto second = Scheduler::Create(options_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(second.status().message(),
              AllOf(HasSubstr(options_.state_dir), HasSubstr("in use")));
}

}  // namespace
}  // namespace syncline

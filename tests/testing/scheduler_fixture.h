#ifndef SYNCLINE_TESTS_TESTING_SCHEDULER_FIXTURE_H_
#define SYNCLINE_TESTS_TESTING_SCHEDULER_FIXTURE_H_

// A real scheduler on a free port, over gRPC, with daemons that are sessions
// with scripted answers.

#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/crc32c.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "common/base/version.h"
#include "common/cluster/scheduler_session.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "gtest/gtest.h"
#include "proto/scheduler.grpc.pb.h"
#include "scheduler/service/scheduler.h"
#include "tests/testing/fakes/wait_log.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/temp_dir.h"

namespace syncline::testing {

// A job of one small layer, and its model.
inline constexpr char kTinyModel[] = R"(<ir_version: 8, opset_import: ["" : 13]>
g (float[N, 4] x) => (float[N, 1] y)
<float[4, 1] w = {1, 2, 3, 4}, float[1] b = {5}>
{
  y = Gemm (x, w, b)
})";

inline JobSpec TinyJob(uint32_t workers, uint32_t ps) {
  JobSpec spec = JobFromText(kSmallJob, R"(
    name: "tiny"
    model { path: "tiny.onnxtxt" initialize { pattern: "*" scheme: ZEROS } }
    loss { kind: SIGMOID_CROSS_ENTROPY }
  )");
  spec.mutable_resources()->set_workers(workers);
  spec.mutable_resources()->set_ps(ps);
  return spec;
}

// How a FakeDaemon takes part in a job.
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
    for (const SchedulerMessage& command : commands.Await(0)) {
      const JobAssignment& job = command.prepare().assignment();
      if (job.job_id() != job_id) continue;
      begin.set_attempt(job.attempt());
      begin.set_job_secret(job.job_secret());
    }
    return begin;
  }

  // How it asks for a file of a job that it works for.
  DownloadRequest Download(const std::string& job_id, const std::string& name) {
    const UploadBegin pass = Upload(job_id, name);
    DownloadRequest download;
    download.set_job_id(job_id);
    download.set_name(name);
    download.set_attempt(pass.attempt());
    download.set_job_secret(pass.job_secret());
    return download;
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

// Confirms every address, but those of processes that were killed: a FakeDaemon
// answers at none.
class TrustingConfirmer final : public scheduler::AddressConfirmer {
 public:
  void Confirm(const std::string&, uint64_t incarnation,
               std::function<void(absl::Status)> done) override {
    bool killed = false;
    {
      MutexLock lock(&mu_);
      killed = killed_.contains(incarnation);
    }
    done(killed ? absl::NotFoundError("connection refused") : absl::OkStatus());
  }
  void OnKilled(uint64_t incarnation) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    killed_.insert(incarnation);
  }

 private:
  Mutex mu_;
  std::set<uint64_t> killed_ ABSL_GUARDED_BY(mu_);
};

// A scheduler with its state in a directory of its own, daemons and a client of
// the Jobs service.
class SchedulerFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.confirmer = confirmer_;
    options_.state_dir = dir_ / "state";
    options_.lease = absl::Seconds(2);
    options_.heartbeat = absl::Milliseconds(200);
    StartScheduler("127.0.0.1:0");
  }
  void TearDown() override {
    daemons_.clear();
    StopScheduler();
  }

  void StartScheduler(const std::string& listen) {
    auto scheduler = scheduler::Scheduler::Create(options_);
    ASSERT_TRUE(scheduler.ok()) << scheduler.status();
    scheduler_ = std::move(*scheduler);
    grpc::ServerBuilder builder;
    scheduler_->RegisterServices(&builder);
    auto server = StartServer(&builder, listen);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
    scheduler_->SetAddress(server_.address, /*http_address=*/"");
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
    confirmer_->OnKilled(daemon->incarnation());
    std::erase_if(daemons_, [&](const auto& d) { return d.get() == daemon; });
  }

  absl::StatusOr<std::string> Submit(const JobSpec& spec,
                                     const std::string& model = kTinyModel) {
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

  const std::shared_ptr<TrustingConfirmer> confirmer_ =
      std::make_shared<TrustingConfirmer>();
  const TempDir temp_;
  const std::filesystem::path dir_ = temp_.path();
  scheduler::Scheduler::Options options_;
  std::unique_ptr<scheduler::Scheduler> scheduler_;
  ListeningServer server_;
  std::unique_ptr<Jobs::Stub> jobs_;
  std::vector<std::unique_ptr<FakeDaemon>> daemons_;
};

}  // namespace syncline::testing

#endif  // SYNCLINE_TESTS_TESTING_SCHEDULER_FIXTURE_H_

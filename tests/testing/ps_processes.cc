#include "tests/testing/ps_processes.h"

#include <unistd.h>

#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/rpc/grpc_channel.h"
#include "proto/scheduler.grpc.pb.h"
#include "tests/testing/assignment_builder.h"
#include "tests/testing/process_memory.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

constexpr absl::Duration kStartTimeout = absl::Seconds(60);

}  // namespace

// Collects `ps` registrations, then sends the job to all of them.
class PsProcesses::FakeScheduler final : public Daemons::Service {
 public:
  FakeScheduler(JobAssignment job, uint32_t ps)
      : job_(std::move(job)), ps_(ps) {}

  grpc::Status Session(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<SchedulerMessage, DaemonMessage>* stream)
      override {
    DaemonMessage message;
    if (!stream->Read(&message) || !message.has_register_()) {
      return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no register");
    }
    const uint32_t rank = Register(message.register_().member());
    SchedulerMessage registered;
    registered.mutable_registered()->mutable_task()->set_type(PS);
    registered.mutable_registered()->mutable_task()->set_index(rank);
    registered.mutable_registered()->set_heartbeat_seconds(1);
    registered.mutable_registered()->set_lease_seconds(3600);
    stream->Write(registered);
    SchedulerMessage prepare;
    if (!AwaitAll(prepare.mutable_prepare()->mutable_assignment())) {
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "some are missing");
    }
    stream->Write(prepare);
    while (stream->Read(&message)) {
      if (message.has_prepared()) Prepared(message.prepared());
    }
    return grpc::Status::OK;
  }

  absl::StatusOr<JobAssignment> AwaitPrepared() {
    const absl::Time deadline = absl::Now() + kStartTimeout;
    MutexLock lock(&mu_);
    while (prepared_ < ps_ && absl::Now() < deadline) {
      changed_.WaitUntil(&mu_, deadline);
    }
    if (!problems_.empty()) return absl::InvalidArgumentError(problems_);
    if (prepared_ == ps_) return job_;
    return absl::DeadlineExceededError(
        absl::StrCat(job_.ps_size(), " of ", ps_, " ps registered, ", prepared_,
                     " have opened the job"));
  }

 private:
  uint32_t Register(const Member& member) {
    MutexLock lock(&mu_);
    const uint32_t rank = static_cast<uint32_t>(job_.ps_size());
    Participant* ps = job_.add_ps();
    ps->set_rank(rank);
    *ps->mutable_member() = member;
    ps->mutable_member()->mutable_task()->set_type(PS);
    ps->mutable_member()->mutable_task()->set_index(rank);
    changed_.SignalAll();
    return rank;
  }
  bool AwaitAll(JobAssignment* job) {
    const absl::Time deadline = absl::Now() + kStartTimeout;
    MutexLock lock(&mu_);
    while (static_cast<uint32_t>(job_.ps_size()) < ps_ &&
           absl::Now() < deadline) {
      changed_.WaitUntil(&mu_, deadline);
    }
    *job = job_;
    return static_cast<uint32_t>(job_.ps_size()) == ps_;
  }
  void Prepared(const JobPrepared& prepared) {
    MutexLock lock(&mu_);
    for (const std::string& problem : prepared.problems()) {
      absl::StrAppend(&problems_, problem, "\n");
    }
    ++prepared_;
    changed_.SignalAll();
  }

  Mutex mu_;
  CondVar changed_;
  JobAssignment job_ ABSL_GUARDED_BY(mu_);
  const uint32_t ps_;
  uint32_t prepared_ ABSL_GUARDED_BY(mu_) = 0;
  std::string problems_ ABSL_GUARDED_BY(mu_);
};

absl::StatusOr<std::unique_ptr<PsProcesses>> PsProcesses::Start(
    const Options& options) {
  std::unique_ptr<PsProcesses> started(new PsProcesses());
  started->scheduler_ =
      std::make_unique<FakeScheduler>(options.assignment, options.ps);
  grpc::ServerBuilder builder;
  builder.RegisterService(started->scheduler_.get());
  SYNCLINE_ASSIGN_OR_RETURN(ListeningServer listening,
                            StartServer(&builder, "127.0.0.1:0"));
  started->server_ = std::move(listening.server);
  for (uint32_t rank = 0; rank < options.ps; ++rank) {
    ChildProcess::Options process;
    process.argv = {absl::StrCat(BinaryDir(), "/syncline-ps"),
                    absl::StrCat("--exit-with-parent=", getpid()),
                    "--task=ps",
                    "--listen=127.0.0.1:0",
                    "--http=off",
                    absl::StrCat("--scheduler=", listening.address)};
    process.argv.insert(process.argv.end(), options.flags.begin(),
                        options.flags.end());
    process.output_file = started->dir_.File(absl::StrCat("ps", rank, ".log"));
    SYNCLINE_ASSIGN_OR_RETURN(auto child, ChildProcess::Spawn(process));
    started->processes_.push_back(std::move(child));
  }
  absl::StatusOr<JobAssignment> opened = started->scheduler_->AwaitPrepared();
  if (!opened.ok()) {
    return Annotate(opened.status(), started->LastLogLine(0));
  }
  started->assignment_ = *std::move(opened);
  return started;
}

PsProcesses::~PsProcesses() {
  processes_.clear();
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
}

uint64_t PsProcesses::MemoryBytes(uint32_t rank,
                                  const std::string& field) const {
  // The fake scheduler's ranks are in the order of registration; so are pids.
  const int64_t pid = assignment_.ps(static_cast<int>(rank)).member().pid();
  return ProcessMemoryBytes(static_cast<int>(pid), field);
}

std::string PsProcesses::LastLogLine(uint32_t rank) const {
  std::ifstream in(processes_[rank]->output_file());
  std::string last;
  for (std::string line; std::getline(in, line);) last = line;
  return last;
}

JobAssignment TableJob(const JobSpec& spec, const std::vector<uint32_t>& dims,
                       uint32_t workers, uint32_t ps) {
  AssignmentBuilder job(spec);
  job.Parameter("bias", {1});
  for (int i = 0; i < spec.tables_size(); ++i) {
    job.Table(spec.tables(i).name(), dims[i], ps);
  }
  return job.Workers(workers).Build();
}

}  // namespace syncline

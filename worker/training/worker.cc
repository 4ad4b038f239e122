#include "worker/training/worker.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/job/stop_reasons.h"
#include "common/system/file.h"
#include "common/system/job_logs.h"
#include "common/system/log.h"
#include "common/system/thread_name.h"
#include "kernels/device/device.h"
#include "worker/data/kept_data.h"
#include "worker/export/artifact_transfer.h"
#include "worker/export/kept_results.h"
#include "worker/job/worker_metrics.h"
#include "worker/training/job_run.h"

namespace syncline::worker {
namespace {

// The data of a job are kept so long for its next attempt, which mostly begins
// within seconds; other processes of the host may need the memory.
constexpr absl::Duration kDataKeptFor = absl::Seconds(15);

// True if the job that is stopped is to begin again.
bool GoesOn(const StopJob& stop) {
  return absl::StartsWith(stop.reason(), kJobGoesBack);
}

// Of a job that nothing is left of here: it has failed, was done, or was never
// known. The code says that this is no success: a scheduler that has not asked
// for the stop, because it was out of reach, would take it for one.
DaemonMessage Released(const StopJob& stop) {
  DaemonMessage message;
  JobDone* const done = message.mutable_done();
  done->set_job_id(stop.job_id());
  done->set_attempt(stop.attempt());
  done->set_code(static_cast<int>(absl::StatusCode::kAborted));
  done->set_message("stopped: nothing of the job is left here");
  done->set_released(true);
  return message;
}

DaemonMessage Refused(const JobAssignment& assignment,
                      const std::string& problem) {
  DaemonMessage message;
  message.mutable_prepared()->set_job_id(assignment.job_id());
  message.mutable_prepared()->set_attempt(assignment.attempt());
  message.mutable_prepared()->add_problems(problem);
  return message;
}

// One thread executes one job after the other; commands only leave notes for
// it.
class JobWorker final : public Worker {
 public:
  JobWorker(const Options& options, std::function<void(DaemonMessage)> send)
      : run_options_({.data_root = options.data_root,
                      .work_dir = options.work_dir,
                      .results_root = options.results_root,
                      .store_limit = options.store_limit,
                      .threads = options.threads,
                      .gpu = options.gpu,
                      .why_no_gpu = options.why_no_gpu,
                      .product_tuning = options.product_tuning,
                      .incarnation = options.incarnation,
                      .shared_memory = options.shared_memory,
                      .kept_data = &kept_data_,
                      .join_peers = options.join_peers,
                      .on_failed = [this] { CheckGpu(); },
                      .on_gpu_worked = [this] { gpu_has_worked_ = true; }}),
        artifacts_(options.artifacts),
        metrics_(options.metrics),
        on_gpu_lost_(options.on_gpu_lost),
        send_(std::move(send)) {
    thread_ = std::thread([this] { Loop(); });
  }

  ~JobWorker() override {
    std::shared_ptr<JobRun> job;
    {
      MutexLock lock(&mu_);
      closing_ = true;
      job = job_;
      changed_.SignalAll();
    }
    if (job != nullptr) job->RequestStop("the worker is closing");
    thread_.join();
  }

  void OnCommand(const SchedulerMessage& command) override {
    switch (command.command_case()) {
      case SchedulerMessage::kPrepare:
        return OnPrepare(command.prepare().assignment());
      case SchedulerMessage::kRun:
        if (const auto job = FindJob(command.run().job_id());
            job != nullptr && job->attempt() == command.run().attempt()) {
          job->RequestRun(command.run());
        }
        return;
      case SchedulerMessage::kProfile:
        if (const auto job = FindJob(command.profile().job_id())) {
          job->RequestProfile(command.profile());
        }
        return;
      case SchedulerMessage::kChangeRegime:
        if (const auto job = FindJob(command.change_regime().job_id());
            job != nullptr &&
            job->attempt() == command.change_regime().attempt()) {
          job->RequestRegime(command.change_regime());
        }
        return;
      case SchedulerMessage::kWriteCheckpoint:
        if (const auto job = FindJob(command.write_checkpoint().job_id());
            job != nullptr &&
            job->attempt() == command.write_checkpoint().attempt()) {
          job->RequestCheckpoint();
        }
        return;
      case SchedulerMessage::kEvaluate:
        if (const auto job = FindJob(command.evaluate().job_id());
            job != nullptr && job->attempt() == command.evaluate().attempt()) {
          job->RequestEvaluation(command.evaluate());
        }
        return;
      case SchedulerMessage::kStop:
        return OnStop(command.stop());
      default:
        return;
    }
  }

 private:
  void OnPrepare(const JobAssignment& assignment) ABSL_LOCKS_EXCLUDED(mu_) {
    SetJobTrace(assignment.job_id(), assignment.trace_id());
    std::shared_ptr<JobRun> busy;
    {
      MutexLock lock(&mu_);
      if (job_ == nullptr || job_->ended()) {
        job_ = std::make_shared<JobRun>(assignment, run_options_,
                                        artifacts_.get(), &metrics_, send_);
        changed_.SignalAll();
        return;
      }
      busy = job_;
    }
    // A repeated command, or a scheduler that knows less than we do.
    if (busy->job_id() == assignment.job_id() &&
        busy->attempt() == assignment.attempt()) {
      return;
    }
    send_(Refused(assignment,
                  absl::StrCat("this worker is busy with attempt ",
                               busy->attempt(), " of job ", busy->job_id())));
  }

  void OnStop(const StopJob& stop) ABSL_LOCKS_EXCLUDED(mu_) {
    const std::shared_ptr<JobRun> job = FindJob(stop.job_id());
    const bool is_of_stop =
        job != nullptr &&
        (stop.attempt() == 0 || stop.attempt() == job->attempt());
    if (!is_of_stop || !job->RequestStop(stop.reason())) send_(Released(stop));
    if (!GoesOn(stop)) kept_data_.Forget(stop.job_id());
  }

  std::shared_ptr<JobRun> FindJob(const std::string& job_id)
      ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    return job_ != nullptr && job_->job_id() == job_id ? job_ : nullptr;
  }

  void Loop() ABSL_LOCKS_EXCLUDED(mu_) {
    SetThreadName("train");
    while (const std::shared_ptr<JobRun> job = AwaitJob()) {
      job->Execute();
      CheckGpu();
      MutexLock lock(&mu_);
      // The next one may have come right after the last word of this one.
      if (job_ == job) job_.reset();
    }
  }

  // Before a job that failed is released, so that a process that ends for this
  // reason is given no other one; and after each job.
  void CheckGpu() {
    if (run_options_.gpu == nullptr || gpu_is_lost_) return;
    const absl::Status health = run_options_.gpu->health();
    if (health.ok()) return;
    gpu_is_lost_ = true;
    LogError("the GPU has failed").Status(health);
    if (on_gpu_lost_) on_gpu_lost_(health, gpu_has_worked_);
  }

  // Null: closing.
  std::shared_ptr<JobRun> AwaitJob() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    while (job_ == nullptr && !closing_) {
      const bool woken =
          changed_.WaitUntil(&mu_, MonotonicNow() + kDataKeptFor);
      if (woken || job_ != nullptr) continue;
      mu_.Unlock();  // large data take a while to free
      kept_data_.ForgetAll();
      mu_.Lock();
    }
    return closing_ ? nullptr : job_;
  }

  KeptData kept_data_;
  const JobRun::Options run_options_;
  const std::shared_ptr<ArtifactTransfer> artifacts_;
  WorkerMetrics metrics_;
  const std::function<void(const absl::Status&, bool)> on_gpu_lost_;
  std::atomic<bool> gpu_has_worked_ = false;
  bool gpu_is_lost_ = false;  // as on_gpu_lost_ was told; the thread's
  const std::function<void(DaemonMessage)> send_;

  Mutex mu_;
  CondVar changed_;
  std::shared_ptr<JobRun> job_ ABSL_GUARDED_BY(mu_);
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Worker>> Worker::Create(
    const Options& options, std::function<void(DaemonMessage)> send) {
  SYNCLINE_RETURN_IF_ERROR(MakeDirs(options.work_dir));
  if (!options.results_root.empty()) RemoveOldResults(options.results_root);
  Options complete = options;
  if (complete.threads <= 0) {
    complete.threads =
        std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  }
  if (complete.artifacts == nullptr) {
    complete.artifacts = SchedulerArtifacts(
        options.scheduler_address, options.incarnation, options.session_secret);
  }
  return std::make_unique<JobWorker>(complete, std::move(send));
}

}  // namespace syncline::worker

#ifndef SYNCLINE_WORKER_TRAINING_JOB_RUN_H_
#define SYNCLINE_WORKER_TRAINING_JOB_RUN_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/cancellation.h"
#include "common/base/mutex.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"
#include "worker/export/artifact_transfer.h"
#include "worker/export/result_upload.h"
#include "worker/job/job_exchange.h"
#include "worker/job/prepared_job.h"
#include "worker/job/product_choice.h"
#include "worker/job/worker_metrics.h"
#include "worker/training/checkpoint_evaluation.h"
#include "worker/training/evaluation_loop.h"
#include "worker/training/job_reporter.h"
#include "worker/training/trainer.h"

namespace syncline::worker {

class ResultExport;

// One job on one worker or evaluator, from PrepareJob until nothing of it is
// left:
//
//   fetch, prepare -> JobPrepared -> (RunJob) -> train, upload -> JobDone
//
// where the job's evaluator evaluates instead of training,
// and, wherever it is when StopJob comes, -> release -> JobDone{released}.
// Execute takes one thread; the requests come from any.
class JobRun {
 public:
  struct Options {
    DataRoot data_root;
    std::string work_dir;
    // For results that the scheduler could not store; outlives the process.
    std::string results_root;
    absl::Duration store_limit = absl::Minutes(30);  // ResultUpload's
    int threads = 1;
    Device* gpu = nullptr;  // PrepareOptions
    std::string why_no_gpu;
    ProductTuning product_tuning = {};
    uint64_t incarnation = 0;
    bool shared_memory = true;  // with a ps on this host
    // Outlives the run; may be null.
    KeptData* kept_data = nullptr;
    // JobProcess's; may be null.
    JoinPeers join_peers = nullptr;
    // The job has failed here, and the scheduler has been told; it does not
    // count this worker as free yet. From the executing thread; may be null.
    std::function<void()> on_failed;
    // The GPU has made a step or an evaluation of the job, now or before. From
    // any thread; may be null.
    std::function<void()> on_gpu_worked;
  };
  // The objects that are pointed to must outlive this one. `send` is
  // thread-safe and does not block.
  JobRun(const JobAssignment& assignment, const Options& options,
         ArtifactTransfer* artifacts, WorkerMetrics* metrics,
         std::function<void(DaemonMessage)> send);

  const std::string& job_id() const { return assignment_.job_id(); }
  uint32_t attempt() const { return assignment_.attempt(); }

  void RequestRun(const RunJob& command) ABSL_LOCKS_EXCLUDED(mu_);
  // Of its next steps, also where it does not run yet. An evaluator has none.
  void RequestProfile(const ProfileSteps& request) ABSL_LOCKS_EXCLUDED(mu_);
  // The chief's.
  void RequestRegime(const ChangeRegime& request) ABSL_LOCKS_EXCLUDED(mu_);
  // The chief's: one more checkpoint, also where it does not run yet.
  void RequestCheckpoint() ABSL_LOCKS_EXCLUDED(mu_);
  // The evaluator's, of a job whose checkpoints are evaluated.
  void RequestEvaluation(const EvaluateCheckpoint& request)
      ABSL_LOCKS_EXCLUDED(mu_);
  // False: it has ended already, and will not answer.
  bool RequestStop(const std::string& reason) ABSL_LOCKS_EXCLUDED(mu_);

  // All of it; returns when nothing is left: no thread, no call, no memory, no
  // file but results that could not be stored.
  void Execute();
  bool ended() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // `gone` becomes true when nothing uses the executor any more.
  struct Gone {
    Mutex mu;
    CondVar changed;
    bool gone ABSL_GUARDED_BY(mu) = false;
  };

  // Empty: ready to run.
  std::vector<std::string> Prepare();
  // Before the executor is made: algorithms of matrix products that an earlier
  // attempt has chosen are the chief's.
  absl::Status BeginProducts() ABSL_LOCKS_EXCLUDED(mu_);
  // The chief's, before the job runs: chooses the algorithms of matrix products
  // for all workers, and stores them with the job.
  absl::Status ChooseProducts() ABSL_LOCKS_EXCLUDED(mu_);
  // The others', and a chief's whose choice was not stored, before the first
  // step: as the job has it.
  absl::Status FollowStored() ABSL_LOCKS_EXCLUDED(mu_);
  // Empty: the job has none, as where its chief has no GPU, or it is not to be
  // had, which the log says. Errors: Cancelled: the job is stopped.
  absl::StatusOr<std::string> FetchProducts() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status FollowProducts(const std::string& text);
  bool is_chief() const;
  // Tells the scheduler that the job cannot run here.
  void Refuse(const std::vector<std::string>& problems,
              const std::vector<FoundCheckpoint>& found);
  // Why the GPU that the job computes on does so no more, as the reason of a
  // failure for `why`: Aborted, since the process is lost to the job, and
  // another attempt may go on. Else `why`.
  absl::Status WithLostGpu(const absl::Status& why) const;
  void TellGpuWorked() const;
  absl::Status LoadModel(std::string* bytes);
  // Tries again while the scheduler is out of reach.
  absl::Status FetchFile(const std::string& artifact, const std::string& file)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status WhileUnreachable(absl::FunctionRef<absl::Status()> transfer)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Has the executor's parameters begin with StartSpec.weights.
  void ReadStartWeights(std::vector<std::string>* problems)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Says what is being read, and ends it when the job is stopped.
  absl::Status OnRead(const std::string& path, size_t bytes);
  void WarnOfLargeSteps() const;
  // False: stopped before.
  bool AwaitRun() ABSL_LOCKS_EXCLUDED(mu_);
  bool stop_requested() const ABSL_LOCKS_EXCLUDED(mu_);
  // Says which results stay on this host, and where, if any do.
  void TellKeptResults();
  // Reports success, or answers the stop that came, if one did. A stop that
  // comes later is not taken.
  void End(bool succeeded) ABSL_LOCKS_EXCLUDED(mu_);
  // Logs the tensors that are trained, those that are not, and the reasons.
  void LogWeights() const;
  absl::Status TrainAndUpload() ABSL_LOCKS_EXCLUDED(mu_);
  // The training has ended with `error`, and is to go on from a checkpoint.
  bool GoesBack(const absl::Status& error) const ABSL_LOCKS_EXCLUDED(mu_);
  // job_run_evaluations.cc.
  absl::Status EvaluateAndUpload() ABSL_LOCKS_EXCLUDED(mu_);
  CheckpointEvaluation::Options CheckpointEvaluationOptions(
      ResultExport* exported);
  // Those of this job, from their files, as the scheduler says.
  absl::Status EvaluateCheckpointsAndUpload(const Epochs& epochs)
      ABSL_LOCKS_EXCLUDED(mu_);
  // The one that the job starts from, and nothing else (EvaluateSpec.only).
  absl::Status EvaluateStartAndUpload() ABSL_LOCKS_EXCLUDED(mu_);
  // Uploads the job's log. Tries again for some seconds while the scheduler
  // does not know this process, whose stream has just ended.
  absl::Status UploadLog(const std::string& name, const std::string& text)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Uploads a log or a profile, in one attempt: the job can do without them.
  absl::Status UploadText(const std::string& name, const std::string& content,
                          absl::Duration timeout, Cancellation* cancellation);
  // Arranges for executor_gone_ to tell when the executor has no user left.
  void WatchExecutor();
  // Frees model, data and, as soon as gRPC has freed its slices, parameters.
  void ReleaseMemory();

  void UploadProfile(const std::string& name, const StepProfile& profile);
  // The values of this job in the process's metrics.
  WorkerMetrics::Job MetricsJob() const;
  // The way of this rank to the parameters.
  absl::StatusOr<JobExchange> MakeExchange() const;

  const JobAssignment assignment_;
  const Options options_;
  const std::string dir_;
  ArtifactTransfer* const artifacts_;
  WorkerMetrics* const metrics_;
  const JobReporter reporter_;

  Cancellation cancellation_;  // of transfers that a stop ends
  ResultUpload results_;       // the executing thread's, but for Stop
  ProductChoice products_;     // the executing thread's
  // The job's algorithms of products when this attempt began; likewise.
  std::string kept_products_;
  // The chief's own choice was not stored.
  bool follows_stored_products_ = false;

  // The executing thread's.
  std::unique_ptr<PreparedJob> job_;
  std::shared_ptr<Gone> executor_gone_;
  std::string read_path_;
  uint64_t read_bytes_ = 0;    // of it
  uint32_t model_crc32c_ = 0;  // of its file
  absl::Time read_told_at_ = absl::InfinitePast();
  std::string early_end_;   // Trainer's
  bool is_on_gpu_ = false;  // PreparedJob's

  mutable Mutex mu_;
  CondVar changed_;
  std::optional<RunJob> run_ ABSL_GUARDED_BY(mu_);
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::string stop_reason_ ABSL_GUARDED_BY(mu_);
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  // Of before there was a trainer.
  std::vector<ProfileSteps> profiles_wanted_ ABSL_GUARDED_BY(mu_);
  std::optional<ChangeRegime> regime_wanted_ ABSL_GUARDED_BY(mu_);
  bool checkpoint_wanted_ ABSL_GUARDED_BY(mu_) = false;  // likewise
  Trainer* trainer_ ABSL_GUARDED_BY(mu_) =
      nullptr;  // while it trains or exports
  EvaluationLoop* evaluation_ ABSL_GUARDED_BY(mu_) = nullptr;  // likewise
  CheckpointEvaluation* checkpoint_evaluation_ ABSL_GUARDED_BY(mu_) =
      nullptr;  // likewise
  // Of before there was one.
  std::optional<EvaluateCheckpoint> evaluation_wanted_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_TRAINING_JOB_RUN_H_

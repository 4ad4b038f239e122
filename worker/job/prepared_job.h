#ifndef SYNCLINE_WORKER_JOB_PREPARED_JOB_H_
#define SYNCLINE_WORKER_JOB_PREPARED_JOB_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/job/evaluate_validator.h"
#include "common/job/strategy_change.h"
#include "common/model/training_graph.h"
#include "common/regime/regime_schedule.h"
#include "common/system/memory_claim.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"
#include "worker/compute/executor.h"
#include "worker/compute/late_gradient.h"
#include "worker/compute/local_updater.h"
#include "worker/data/dataset.h"
#include "worker/data/kept_data.h"
#include "worker/data/reading/data_root.h"
#include "worker/data/reading/read_watch.h"
#include "worker/embedding/checkpoint_rows.h"
#include "worker/embedding/job_rows.h"
#include "worker/exchange/gradient_compressor.h"
#include "worker/exchange/transfer_counts.h"

namespace syncline::worker {

// Everything one rank needs to train a job, or to evaluate it as the job's
// evaluator, loaded and checked.
struct PreparedJob {
  // An evaluator's has batches of two samples at most: it trains on none.
  JobAssignment assignment;
  uint32_t rank = 0;
  // As this rank knows them: those of the assignment, and what was added since.
  // The training thread's.
  RegimeSchedule regimes;
  std::shared_ptr<const Model> model;
  TrainingGraph training;
  // Shared with slices on their way through gRPC, which point into its memory.
  std::shared_ptr<Executor> executor;
  int threads = 1;  // that it computes with
  // "cuda:0, NVIDIA H200", or "cpu, 8 threads": what it computes on, for
  // people.
  std::string device_text;
  bool is_on_gpu = false;
  // The rank's residuals and momentum at the checkpoint that the attempt starts
  // from; the first compressor takes them. Null: none.
  std::shared_ptr<KeptGradients> kept;
  // Null if the job has no tables.
  std::shared_ptr<JobRows> rows;
  // Of a rank that evaluates checkpoints of a job with tables; no keys yet.
  // Else null.
  std::unique_ptr<CheckpointRows> checkpoint_rows;
  // Of a rank that trains in LOCAL: its steps within a round, on the executor's
  // parameters and gradients, and what is pushed of them. Else null.
  std::shared_ptr<LocalUpdater> local;
  // Of a rank whose late gradients are pushed at the open clock. Else null.
  std::shared_ptr<LateGradient> late;
  // Of the rank's steps, for its progress.
  std::shared_ptr<TransferCounts> counts = std::make_shared<TransferCounts>();
  std::shared_ptr<const Dataset> train;  // null: the evaluator's
  // If the job has one: the evaluator's, or the chief's where there is none.
  std::shared_ptr<const Dataset> test;
  DataFingerprint data;  // of those that are there
  // JobPrepared.found, with a problem.
  std::vector<FoundCheckpoint> found;

  // Keeps the memory that gRPC's slices point into. The executor goes last.
  std::shared_ptr<const void> memory() const {
    return std::make_shared<
        std::tuple<std::shared_ptr<Executor>, std::shared_ptr<JobRows>,
                   std::shared_ptr<LocalUpdater>>>(executor, rows, local);
  }
  bool is_chief() const { return rank == 0; }
  bool has_evaluator() const { return assignment.has_evaluator(); }
  // It has an evaluator that reads the job's state at cuts, and not its
  // checkpoints from their files.
  bool evaluator_reads_cuts() const {
    return has_evaluator() && !EvaluatesCheckpoints(spec());
  }
  bool is_evaluator() const {
    return has_evaluator() &&
           rank == static_cast<uint32_t>(assignment.workers_size());
  }
  // It reads checkpoints from their files.
  bool evaluates_checkpoints() const {
    return OnlyEvaluates(spec()) ||
           (is_evaluator() && EvaluatesCheckpoints(spec()));
  }
  // Else it evaluates alone, and has no training data.
  bool trains() const { return !is_evaluator() && !OnlyEvaluates(spec()); }
  // This rank's process.
  const Member& member() const {
    return is_evaluator() ? assignment.evaluator().member()
                          : assignment.workers(static_cast<int>(rank)).member();
  }
  const JobSpec& spec() const { return assignment.spec(); }
  // "worker:2", as the job knows this rank.
  std::string task_name() const;
};

struct PrepareOptions {
  DataRoot data_root;    // where the files of the data are
  std::string work_dir;  // for data that is not kept in memory
  int threads = 1;       // where the job does not say
  // The GPU of this worker; outlives the job. Null: it has none, for this
  // reason.
  Device* gpu = nullptr;
  std::string why_no_gpu;
  // Gradients may be shared with a ps on this host.
  bool shared_memory = false;
  // Data of the attempt before are taken from it, and what is read is kept in
  // it; null: nothing is kept.
  KeptData* kept_data = nullptr;
  // Sees what is read while data is loaded; an error ends that. May be null.
  ReadWatch::OnRead on_read = nullptr;
  // An error ends the taking of memory. May be null.
  GoOnCheck go_on = nullptr;
};

// The device that a job's executor computes on; null: this machine's
// processors. Errors: FailedPrecondition, in words for a job's problems: the
// job wants a GPU and there is none, or the GPU has failed.
absl::StatusOr<Device*> ChooseDevice(ResourcesSpec::Device wanted,
                                     const PrepareOptions& options);

// True if steps reduce the statistics of their batches over all workers.
bool FoldsStatistics(const JobSpec& spec);

// The options of a job's executor on a worker, except threads and shared
// gradients, which are the daemon's. REQUIRES: `spec` has its defaults.
Executor::Options ExecutorOptionsOf(const JobSpec& spec, bool evaluates);

// A job as its evaluator prepares it, which does not train: with the smallest
// batches.
JobSpec EvaluatorSpec(JobSpec spec);

// The tensors that the ps share, in the order of the parameters.
std::vector<TensorSize> TensorSizesOf(const TrainingGraph& training);

// Parses `model_bytes` and frees them, resolves the job's spec against the
// model, loads the data and plans memory. Blocks for as long as loading takes.
// Appends one line per problem to *problems, all that can be found; without any
// the job is complete, and its model has given up the values of parameters
// (they are the executor's) and of tables (the ps make rows).
std::unique_ptr<PreparedJob> PrepareJob(const JobAssignment& assignment,
                                        uint32_t rank, std::string model_bytes,
                                        const PrepareOptions& options,
                                        std::vector<std::string>* problems);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_JOB_PREPARED_JOB_H_

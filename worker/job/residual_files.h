#ifndef SYNCLINE_WORKER_JOB_RESIDUAL_FILES_H_
#define SYNCLINE_WORKER_JOB_RESIDUAL_FILES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/residual_check.h"
#include "common/system/disk_thread.h"
#include "common/system/memory_claim.h"
#include "common/system/thread_pool.h"
#include "worker/exchange/gradient_compressor.h"
#include "worker/exchange/residual_saver.h"

namespace syncline::worker {

// Writes what a rank's compressor keeps from step to step beside the
// checkpoints of its job, so that a job that goes on from one has the bits of
// one that was not interrupted. The manifest does not name these files: a
// checkpoint is whole without them, and who reads it begins anew, and says so,
// where one is not there.
//
// The file is a state of common/state: its header has the job, the rank, the
// cut and the kind of compression; a block is a tensor, its `updates` the
// samples of what is kept, array 0 the residual and array 1 the momentum.
//
// One thread, but for the writer's own. A disk that fails, or hangs, costs the
// file and never the job.
class ResidualWriter final : public ResidualSaver {
 public:
  struct Options {
    std::string job_id;
    std::string folder;  // of the job's checkpoints
    uint32_t rank = 0;
    uint32_t ranks = 1;
    // How long the writer waits for the checkpoint's folder, which those make
    // who write its state.
    absl::Duration folder_wait_max = absl::Seconds(10);
  };
  explicit ResidualWriter(Options options);
  // Waits for a file that is being written, for as long as a checkpoint's disk
  // is waited for (kCheckpointDiskWaitMax).
  ~ResidualWriter() override;

  // Writes the file on another thread. Left out, with a warning, while an
  // earlier one is written.
  void Save(uint64_t cut_id, int64_t clock,
            const GradientCompressor& compressor) override
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Task {
    uint64_t cut_id = 0;
    std::string path;  // of the checkpoint's folder
    GradientCompression::Kind kind = GradientCompression::Kind::kNone;
    KeptGradients kept;
  };
  void Write(const Task& task) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status WriteFile(const Task& task) ABSL_LOCKS_EXCLUDED(mu_);
  // Errors: NotFound: it has not come.
  absl::Status AwaitFolder(const std::string& path) ABSL_LOCKS_EXCLUDED(mu_);
  // Of the checkpoint before, if that has not become one.
  void RemoveUncommitted();

  const Options options_;
  const std::string file_;      // its name
  std::string last_path_;       // the writer's: of the file that it wrote last
  std::shared_ptr<Task> task_;  // kept for its memory
  Mutex mu_;
  CondVar closing_ ABSL_GUARDED_BY(mu_);
  bool is_busy_ ABSL_GUARDED_BY(mu_) = false;
  bool is_closing_ ABSL_GUARDED_BY(mu_) = false;
  DiskThread disk_;    // the writer's
  ThreadPool writer_;  // last: it uses the rest
};

// The residuals and momentum of rank `rank` of `ranks` in the checkpoint in the
// folder `path`. `elements`: by tensor, 0: nothing is kept of it. `kind`: the
// job's now; `has_momentum`: it has momentum, too. Blocks as long as the disk
// does; one that makes a call for `wait_max`, if that is given, is left behind:
// Unavailable.
// Errors: NotFound: the file is not there; DataLoss: damaged, or of another
// checkpoint; FailedPrecondition: of another kind, or number of ranks;
// InvalidArgument: of another model; others by errno; those of `go_on`, which
// may be null.
absl::StatusOr<std::shared_ptr<KeptGradients>> ReadResiduals(
    const std::string& path, const CheckpointManifest& manifest, uint32_t rank,
    uint32_t ranks, GradientCompression::Kind kind, bool has_momentum,
    absl::Span<const uint64_t> elements, const GoOnCheck& go_on,
    std::optional<absl::Duration> wait_max = std::nullopt);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_JOB_RESIDUAL_FILES_H_

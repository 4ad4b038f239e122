#ifndef SYNCLINE_WORKER_PEERS_PEER_CHECKPOINTS_H_
#define SYNCLINE_WORKER_PEERS_PEER_CHECKPOINTS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/checkpoint/checkpoint_commit.h"
#include "common/checkpoint/manifest.h"
#include "common/system/disk_thread.h"
#include "common/system/memory_claim.h"
#include "common/system/thread_pool.h"
#include "common/update/dense_updater.h"
#include "common/update/snapshot_blocks.h"
#include "kernels/optimizer/optimizer.h"
#include "proto/shard_state.pb.h"
#include "worker/exchange/checkpoint_writing.h"

namespace syncline::worker {

// One rank's part of the checkpoints of a job without ps: the state of the
// blocks that it owns, whoever else has it. A thread of its own writes the part
// while the rank trains; a block that is about to change and is not written yet
// is copied first. A disk that fails fails the checkpoint and never the job.
//
//   Begin        between two steps: the state is that of the cut
//   BeforeWrite  before each change of a block's state
//   the writer   the file of this rank, synced; then `done`
//
// Begin and BeforeWrite: one thread at a time. The rest is thread-safe.
class PeerCheckpoints {
 public:
  struct Options {
    std::string label;  // for messages
    std::string job_id;
    std::string folder;  // of the job's checkpoints; all ranks see the same
    uint32_t rank = 0;
    uint32_t ranks = 1;
    // Of rank 0 among the parts of a checkpoint: those before it are of the ps
    // (HYBRID).
    uint32_t first_part = 0;
    int64_t start_clock = 0;  // of the job's attempt
    uint32_t keep_last = 2;
    uint64_t keep_every = 0;
    std::optional<uint64_t> copy_bytes = {};  // as CheckpointSpec's
    // How long a change may wait for the disk before the part is given up.
    absl::Duration push_wait_max = absl::Seconds(60);
    // How long a rank that has made its last step waits for its part.
    absl::Duration last_part_wait_max = absl::Hours(1);

    // A rank's number among the parts, and how many these are.
    uint32_t PartOf(uint32_t of) const { return first_part + of; }
    uint32_t parts() const { return first_part + ranks; }
  };
  struct OwnBlock {
    uint32_t id = 0;     // global
    uint32_t local = 0;  // in the updater
  };
  using Part = CheckpointWriting::Part;
  using Done = absl::AnyInvocable<void(absl::StatusOr<Part> part)>;

  // `updater` outlives this.
  PeerCheckpoints(Options options, const DenseUpdater* updater,
                  std::vector<OwnBlock> blocks);
  ~PeerCheckpoints();  // Close
  // Bytes for the copies of blocks of `counts` elements.
  static uint64_t CopyBytes(const OptimizerParams& optimizer,
                            absl::Span<const size_t> counts,
                            std::optional<uint64_t> copy_bytes);
  // Takes the memory of the copies. Errors: TouchMemory's.
  absl::Status MakeResident(const GoOnCheck& go_on);

  // The state now is that of the cut. `header` lacks what this knows: format,
  // shard, cut and blocks. `done` runs once, on the writer's thread, or here if
  // there is nothing to write. A part that is still being written is given up:
  // its checkpoint was.
  void Begin(uint64_t cut_id, int64_t clock, ShardStateHeader header, Done done)
      ABSL_LOCKS_EXCLUDED(mu_);
  void BeforeWrite(uint32_t local) { snapshot_.BeforeWrite(local); }
  // Of the part that is being written.
  uint64_t written_blocks() const { return written_blocks_.load(); }
  uint64_t block_count() const { return blocks_.size(); }

  // Gives up the part that is being written, if one is: no change waits for it.
  void GiveUp(const absl::Status& why) { snapshot_.Abort(why); }
  // Nobody waits for the disk any more: it hangs. Nothing is written after it.
  void LeaveDisk(const absl::Status& why) {
    disk_.LeaveAt(MonotonicNow(), why);
  }
  // Gives up what is written, and waits for the writer; a disk that hangs is
  // left behind after some seconds. Idempotent.
  void Close(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);

  const Options& options() const { return options_; }

 private:
  struct Task {
    uint64_t cut_id = 0;
    uint64_t snapshot = 0;  // SnapshotBlocks::Begin's
    std::string path;       // of the checkpoint's folder
    ShardStateHeader header;
    Done done;
  };
  void Write(Task* task);
  absl::StatusOr<Part> WriteFile(const Task& task);
  absl::Status WriteState(const Task& task, const std::string& path,
                          Part* part);
  absl::Status GoOn(const Task& task) const ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  const DenseUpdater& updater_;
  const std::vector<OwnBlock> blocks_;
  std::vector<uint32_t> locals_;  // of blocks_
  std::vector<uint32_t> id_of_;   // by local index
  std::atomic<uint64_t> written_blocks_{0};
  SnapshotBlocks snapshot_;
  mutable Mutex mu_;
  uint64_t current_ ABSL_GUARDED_BY(mu_) = 0;  // cut; 0: none
  absl::Status closed_ ABSL_GUARDED_BY(mu_);
  DiskThread disk_;    // the writer's
  ThreadPool writer_;  // last: it uses the rest
};

// A checkpoint whose parts are written by the ranks, as the chief has it.
// Thread-safe.
class PartsOfRanks {
 public:
  explicit PartsOfRanks(uint32_t ranks) : parts_(ranks) {}
  // Once for each rank; what comes later is left out.
  void Set(uint32_t rank, absl::StatusOr<CheckpointWriting::Part> part)
      ABSL_LOCKS_EXCLUDED(mu_);
  // When all have come. Errors: the first rank's that has one;
  // DeadlineExceeded; Cancelled.
  absl::StatusOr<std::vector<CheckpointWriting::Part>> Await(
      absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);
  void Cancel() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<std::optional<absl::StatusOr<CheckpointWriting::Part>>> parts_
      ABSL_GUARDED_BY(mu_);
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
};

// CheckpointWriting of the chief of a job without ps. It outlives the exchange
// that made it.
class PeerCheckpointWriting final : public CheckpointWriting {
 public:
  PeerCheckpointWriting(uint64_t cut_id, const PeerCheckpoints::Options& of,
                        std::vector<uint32_t> block_shards,
                        std::shared_ptr<PartsOfRanks> parts);

  uint64_t cut_id() const override { return cut_id_; }
  std::vector<uint32_t> block_shards() const override { return block_shards_; }
  absl::StatusOr<std::vector<Part>> AwaitParts() override;
  absl::StatusOr<Whole> Commit(const std::string& manifest) override;
  void Cancel() override;

 private:
  const uint64_t cut_id_;
  const CheckpointCommit commit_;
  const std::vector<uint32_t> block_shards_;
  const std::shared_ptr<PartsOfRanks> parts_;
  DiskThread disk_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_PEERS_PEER_CHECKPOINTS_H_

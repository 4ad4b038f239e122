#ifndef SYNCLINE_SERVER_CHECKPOINT_SHARD_CHECKPOINTS_H_
#define SYNCLINE_SERVER_CHECKPOINT_SHARD_CHECKPOINTS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/checkpoint/checkpoint_chain.h"
#include "common/checkpoint/manifest.h"
#include "common/system/disk_thread.h"
#include "common/system/memory_claim.h"
#include "common/system/thread_pool.h"
#include "common/update/snapshot_blocks.h"
#include "proto/parameter_server.pb.h"
#include "server/checkpoint/uncommitted_parts.h"
#include "server/lanes/lanes.h"
#include "server/shard/job_config.h"
#include "server/shard/lane_executor.h"
#include "server/shard/shard_exporter.h"
#include "server/shard/snapshot_taker.h"

namespace syncline::ps {

// The checkpoints of one shard: its part of each is written by a thread of its
// own while the lanes go on with what comes after the cut.
//
//   the cut is passed  OnCutPassed   a snapshot begins; the writer makes the
//                                    folder and the file
//   on each lane       OnSnapshot    marks its dense blocks, which are copied
//                                    when they are next written; waits until
//                                    its rows of tables are in the file
//   Await              answered when the file is synced, or has failed
//   Commit             the manifest; then what is not to be kept is deleted
//
// There is one snapshot at a time. A cut that is announced while one is awaited
// is refused for now. One that nobody has asked for may be of a cut that was
// withdrawn: a later one takes its place. A disk that fails or is full fails
// the snapshot and never the job.
//
// Thread-safe. Lock order: JobShard's lock, mu_, that of SnapshotBlocks.
class ShardCheckpoints final : public SnapshotTaker {
 public:
  struct Options {
    // Of the job's checkpoints: one for each is made in it.
    std::string folder;
    // All shards write to the same folder.
    bool is_shared = false;
    uint32_t shards = 1;
    int64_t start_clock = 0;  // of the job's attempt
    uint32_t keep_last = 2;
    uint64_t keep_every = 0;
    uint32_t full_tables_every = 1;           // as CheckpointSpec's
    std::optional<uint64_t> copy_bytes = {};  // as CheckpointSpec's
    // How long a push or a lane may wait for the disk before the snapshot is
    // given up.
    absl::Duration push_wait_max = absl::Seconds(20);
    // How long lanes may take to come to the cut.
    absl::Duration lane_wait_max = absl::Minutes(10);
  };
  struct Counts {
    uint64_t written = 0;
    uint64_t failed = 0;
    uint64_t bytes = 0;  // of those that were written
    absl::Duration took;
    SnapshotBlocks::Counts blocks;
    absl::Duration table_waits;  // of lanes, for their rows to be written
  };
  // The shard of which these are. All outlive Close.
  struct Shard {
    const JobConfig* config = nullptr;
    const ShardLayout* layout = nullptr;
    LaneExecutor* executor = nullptr;
    const Lanes* lanes = nullptr;
  };
  // JobShard::CheckAnnounced.
  using Announced = std::function<absl::Status(uint64_t cut_id)>;
  using Written =
      absl::AnyInvocable<void(absl::StatusOr<AwaitCheckpointResponse> written)>;
  using Committed = absl::AnyInvocable<void(
      absl::StatusOr<CommitCheckpointResponse> committed)>;

  ShardCheckpoints(const Options& options, const Shard& shard,
                   Announced announced);
  ~ShardCheckpoints() override;  // Close
  // Takes the memory of the copies. Errors: CheckMemoryFor's.
  absl::Status MakeResident(const GoOnCheck& go_on);

  // `done` runs when the part of this cut's checkpoint is on disk or has
  // failed, on any thread, once; errors as of AwaitCheckpoint in
  // proto/parameter_server.proto. Returns a token for Cancel.
  uint64_t Await(uint64_t cut_id, absl::Time deadline, Written done)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Cancel(uint64_t token) ABSL_LOCKS_EXCLUDED(mu_);
  // The first call with a manifest writes it, a repeat deletes what is not to
  // be kept. Errors: as of CommitCheckpoint. `done` runs on the writer's
  // thread.
  void Commit(std::string manifest, Committed done);
  // Ends what is overdue.
  void Tick(absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);
  // Gives up what is written and answers who waits with `why`. Idempotent.
  void BeginClose(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);
  // BeginClose, and waits for the writer; a disk that hangs is left behind some
  // seconds after the begin. Nothing of the shard is looked at afterwards.
  // Idempotent.
  void Close(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);

  // Since the first one.
  Counts counts() const ABSL_LOCKS_EXCLUDED(mu_);
  // Since the last call.
  Counts TakeNewCounts() ABSL_LOCKS_EXCLUDED(mu_);

  // SnapshotTaker.
  absl::Status CheckAnnouncement(uint64_t cut_id, CutUse use) override;
  void OnCutPassed(uint64_t cut_id, CutUse use,
                   absl::Span<const int64_t> clocks,
                   const ControllerState& state, int64_t total_clocks) override;
  void OnSnapshot(uint64_t cut_id, absl::Span<const int64_t> clocks,
                  int lane) override;
  void OnSnapshotDone(uint64_t /*cut_id*/) override {}
  void OnWrite(BlockIndex block) override { blocks_.BeforeWrite(block); }

 private:
  // One snapshot and its file.
  struct Snapshot {
    uint64_t cut_id = 0;
    CheckpointName name;
    uint64_t blocks = 0;  // SnapshotBlocks::Begin's
    ControllerState state;
    int64_t total_clocks = 0;
    absl::Time began;
    // InfiniteFuture: somebody waits for it. InfinitePast: nobody has asked for
    // it. Else somebody did, and may ask again until then.
    absl::Time awaited_until = absl::InfinitePast();
    bool is_written = false;  // the writer has begun
    // Not OK: it is given up.
    absl::Status status;
    // Of tables, by lane.
    std::vector<bool> lane_came;
    std::vector<bool> lane_done;
    int in_lane = -1;  // whose rows the writer reads
    absl::Time left_lane = absl::InfinitePast();
  };
  struct Waiter {
    uint64_t token = 0;
    uint64_t cut_id = 0;
    absl::Time deadline;
    Written done;
  };
  struct Result {
    uint64_t cut_id = 0;
    absl::StatusOr<AwaitCheckpointResponse> written;
  };

  // On the writer's thread; what may hang is the disk's.
  void Write(const std::shared_ptr<Snapshot>& snapshot);
  void RemoveUncommitted();
  // This shard's files of a checkpoint, and its folder if it is empty then.
  void RemoveFiles(const std::string& path);
  // The chain of a checkpoint that begins, its older files linked into `path`.
  CheckpointChain::Plan PlanChain(bool is_committed, const std::string& path,
                                  const std::string& file);
  // Whether the last file that was written is of a checkpoint that exists.
  bool IsCommitted();
  absl::StatusOr<AwaitCheckpointResponse> WriteFile(Snapshot* snapshot);
  absl::Status WriteTables(Snapshot* snapshot, ShardExporter* exporter);
  absl::Status WriteBlocks(const Snapshot& snapshot, ShardExporter* exporter);
  // The next lane whose rows are to be written; it stands still until
  // LeaveLane. An error gives the snapshot up.
  absl::StatusOr<int> EnterLane(Snapshot* snapshot) ABSL_LOCKS_EXCLUDED(mu_);
  void LeaveLane(Snapshot* snapshot, int lane, const absl::Status& written)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<CommitCheckpointResponse> CommitNow(
      const std::string& manifest);

  absl::Status StatusOf(const Snapshot& snapshot) const
      ABSL_LOCKS_EXCLUDED(mu_);
  // After a waiter of the current snapshot has gone: if it was the last,
  // another one may come until `back_by`.
  void EndAwaiting(absl::Time back_by) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void GiveUp(Snapshot* snapshot, const absl::Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Counts CountsLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  const Result* FindResult(uint64_t cut_id) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  const std::string label_;
  const Shard shard_;  // not after Close
  const Announced announced_;
  std::vector<std::vector<BlockIndex>> lane_blocks_;  // by lane
  SnapshotBlocks blocks_;

  UncommittedParts uncommitted_;  // the writer's
  CheckpointChain chain_;
  bool told_unlinked_ = false;  // why a checkpoint has all rows
  mutable Mutex mu_;
  CondVar lane_moved_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<Snapshot> current_ ABSL_GUARDED_BY(mu_);  // null: none
  std::deque<Result> results_ ABSL_GUARDED_BY(mu_);         // the latest ones
  std::vector<Waiter> waiters_ ABSL_GUARDED_BY(mu_);
  uint64_t next_token_ ABSL_GUARDED_BY(mu_) = 1;
  absl::Status closed_ ABSL_GUARDED_BY(mu_);
  bool has_ended_ ABSL_GUARDED_BY(mu_) = false;  // the writer
  Counts counts_ ABSL_GUARDED_BY(mu_);
  Counts told_ ABSL_GUARDED_BY(mu_);
  DiskThread disk_;    // the writer's
  ThreadPool writer_;  // last: it uses the rest
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_CHECKPOINT_SHARD_CHECKPOINTS_H_

#ifndef SYNCLINE_COMMON_UPDATE_SNAPSHOT_BLOCKS_H_
#define SYNCLINE_COMMON_UPDATE_SNAPSHOT_BLOCKS_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/aligned_buffer.h"
#include "common/base/mutex.h"
#include "common/update/copy_reserve.h"
#include "common/update/dense_updater.h"

namespace syncline {

// The dense blocks of a shard, or some of them, as of one moment, while they go
// on changing. A lane is the thread that changes them. It copies a block that
// it is about to change and that the writer does not have yet (copy on write);
// the writer takes the others where they are.
//
//   lanes:   Mark, at the moment; then BeforeWrite before each change
//   writer:  Next, Done; until Next has given every block
//
// Invariants:
//   1. A block is pending from Mark until its state of that moment is in a
//      copy, or was handed to the writer.
//   2. Who reads a block's memory, lane or writer, has set it to kTaking first.
//      A lane that wants to change it waits; that is the time of a memcpy.
//   3. state_[b] is kIdle or kCopied only after the bytes were read, with
//      release; BeforeWrite loads it with acquire.
//
// Thread-safe.
class SnapshotBlocks {
 public:
  struct Options {
    std::string label;  // for messages
    // How many blocks each snapshot has: those that are marked. Unset: all.
    std::optional<uint32_t> blocks = {};
    // How long a lane waits for a place in the reserve. Then the snapshot is
    // given up, and the lane goes on.
    absl::Duration wait_max = absl::Seconds(60);
  };
  struct Counts {
    uint64_t copies = 0;  // made by lanes
    uint64_t waits = 0;   // of lanes, for a place or for the writer
    absl::Duration waited;
  };

  // `dense` outlives it.
  SnapshotBlocks(const Options& options, const DenseUpdater* dense,
                 CopyReserve reserve);

  absl::Status MakeResident(const GoOnCheck& go_on);

  // A snapshot begins: no block is marked, and the one before is given up.
  // Returns its number, for Next.
  uint64_t Begin() ABSL_LOCKS_EXCLUDED(mu_);
  // The snapshot is given up: nobody waits for it, and Next returns `why`.
  // Without effect if it has ended.
  void Abort(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);

  // The blocks are to be taken as they are now. On their lane.
  void Mark(absl::Span<const uint32_t> blocks) ABSL_LOCKS_EXCLUDED(mu_);
  // Before the block changes; on its lane.
  void BeforeWrite(uint32_t block) ABSL_LOCKS_EXCLUDED(mu_) {
    const uint8_t state = state_[block].load(std::memory_order_acquire);
    if (state == kPending || state == kTaking) Save(block);
  }

  // A block as of the moment.
  struct Taken {
    uint32_t block = 0;
    int64_t updates = 0;
    const float* state = nullptr;  // arrays, one after the other
    float* place = nullptr;        // of the reserve, or null
  };
  // A block of `snapshot` (Begin's) that was not given yet, once there is one;
  // none: all were. Waits until `deadline`. On the writer's thread, which calls
  // Done before the next one. Errors: Abort's; Cancelled: another snapshot has
  // begun; DeadlineExceeded.
  absl::StatusOr<std::optional<Taken>> Next(uint64_t snapshot,
                                            absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Done(const Taken& taken) ABSL_LOCKS_EXCLUDED(mu_);

  Counts counts() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  enum State : uint8_t { kIdle, kPending, kTaking, kCopied };

  size_t floats_of(uint32_t block) const;
  void Copy(uint32_t block, float* out) const;
  void Save(uint32_t block) ABSL_LOCKS_EXCLUDED(mu_);
  // A place for a pending block. Null: it is not pending (any more).
  float* AwaitPlace(uint32_t block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  float* TakePlace(uint32_t block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AbortLocked(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Set(uint32_t block, State state) {
    state_[block].store(state, std::memory_order_release);
  }
  State Get(uint32_t block) const {
    return static_cast<State>(state_[block].load(std::memory_order_acquire));
  }
  // A pending block for the writer, if there is one.
  std::optional<uint32_t> PopPending() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  const DenseUpdater* const dense_;
  const uint32_t blocks_;  // of a snapshot
  AlignedFloats staging_;  // the writer's
  // By block; changed under mu_.
  const std::unique_ptr<std::atomic<uint8_t>[]> state_;

  mutable Mutex mu_;
  CondVar changed_ ABSL_GUARDED_BY(mu_);
  CopyReserve reserve_ ABSL_GUARDED_BY(mu_);
  uint64_t generation_ ABSL_GUARDED_BY(mu_) = 0;  // of snapshots
  absl::Status why_ ABSL_GUARDED_BY(mu_);         // not OK: given up
  uint32_t given_ ABSL_GUARDED_BY(mu_) = 0;
  // Blocks that were marked, in order; some are not pending any more.
  std::deque<uint32_t> pending_ ABSL_GUARDED_BY(mu_);
  // The same, for which a lane waits.
  std::deque<uint32_t> urgent_ ABSL_GUARDED_BY(mu_);
  std::deque<Taken> copied_ ABSL_GUARDED_BY(mu_);
  float* writer_place_ ABSL_GUARDED_BY(mu_) = nullptr;  // of what it has
  Counts counts_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_UPDATE_SNAPSHOT_BLOCKS_H_

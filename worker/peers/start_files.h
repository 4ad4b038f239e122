#ifndef SYNCLINE_WORKER_PEERS_START_FILES_H_
#define SYNCLINE_WORKER_PEERS_START_FILES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/state/block_state.h"
#include "common/system/disk_thread.h"
#include "common/system/memory_claim.h"
#include "common/wire/block_map.h"
#include "kernels/optimizer/optimizer.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/shard_state.pb.h"

namespace syncline::worker {

// The files of the checkpoint that the attempt of a job begins with whose
// workers reduce among themselves: whoever wrote them, ranks or ps, and
// whatever their number. Every rank reads all that have blocks, because each
// needs all values; rows of tables are the ps' business. Immutable;
// thread-safe.
//
// Errors of all, with the checkpoint's path, and as `common/checkpoint/
// checkpoint_start.h` says: DataLoss: damaged; NotFound and others by errno: a
// file cannot be seen here; FailedPrecondition: it is another checkpoint;
// InvalidArgument: of another model or optimizer, or of workers that were at
// different clocks.
class StartFiles {
 public:
  // The counts of the job up to the checkpoint.
  struct Counts {
    uint64_t skipped_clocks = 0;
    int64_t skipped_through = 0;
    uint64_t non_finite = 0;  // gradients, of all ranks
  };
  using Visit = absl::FunctionRef<void(const BlockStateReader::Piece& piece)>;

  // Reads the manifest and looks for the files. REQUIRES: the assignment has
  // start_from. `label`: for messages. Blocks as long as the disk does, but a
  // disk that hangs (StartDiskWaitMax) is left behind: Unavailable. `go_on` is
  // asked meanwhile; its error ends the waiting; may be null.
  static absl::StatusOr<std::shared_ptr<const StartFiles>> Open(
      const JobAssignment& assignment, absl::string_view label,
      const GoOnCheck& go_on = nullptr);

  // Reads every byte of them. `visit` is given all pieces of all blocks of
  // `map`, each block once; values alone if the job takes no more
  // (values_only()). After an error some of them. `go_on` is asked every few
  // MiB; its error ends the reading; may be null. Adds to *read the bytes that
  // it has read so far, on the caller's thread; may be null.
  absl::StatusOr<Counts> Read(const BlockMap& map,
                              const OptimizerParams& optimizer,
                              const GoOnCheck& go_on, Visit visit,
                              uint64_t* read = nullptr) const;

  // The optimizer's state, and the counts, begin anew.
  bool values_only() const { return values_only_; }
  const CheckpointManifest& manifest() const { return manifest_; }
  // The first clock that the attempt trains.
  int64_t clock() const { return assignment_.start_clock(); }
  uint32_t manifest_crc32c() const {
    return assignment_.start_from().manifest_crc32c();
  }
  // Of all files that are read.
  uint64_t bytes() const;

 private:
  // Open, without the watch over the disk. Adds to *calls what it makes of it.
  static absl::StatusOr<std::shared_ptr<const StartFiles>> Find(
      const JobAssignment& assignment, const std::string& label,
      DiskCalls* calls);
  StartFiles(const JobAssignment& assignment, absl::string_view label,
             CheckpointManifest manifest, std::vector<bool> needed);
  absl::StatusOr<Counts> ReadFiles(const BlockMap& map,
                                   const OptimizerParams& optimizer,
                                   const GoOnCheck& go_on, Visit visit,
                                   uint64_t* read) const;
  absl::Status CheckHeader(const std::string& file, uint32_t shard,
                           const ShardStateHeader& header,
                           const OptimizerParams& optimizer) const;
  std::string PathOf(const CheckpointManifest::Shard& shard) const;

  const JobAssignment assignment_;  // of which the start is read
  const std::string label_;
  const CheckpointManifest manifest_;
  const std::vector<bool> needed_;  // by shard: its file has blocks
  const bool values_only_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_PEERS_START_FILES_H_

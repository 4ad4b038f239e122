#ifndef SYNCLINE_WORKER_EXCHANGE_CHECKPOINT_WRITING_H_
#define SYNCLINE_WORKER_EXCHANGE_CHECKPOINT_WRITING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace syncline::worker {

// One checkpoint that every shard of a job is writing: the state at a cut that
// all of them have passed. Ranks train meanwhile, and the cut may have ended.
// AwaitParts and Commit block for as long as disks do, and are called on
// another thread than the exchange's; Cancel comes from any. Their errors end
// the checkpoint and not the job; they name the member.
class CheckpointWriting {
 public:
  // The part of one shard.
  struct Part {
    std::string file;  // in the checkpoint's folder; empty: it has nothing
    uint64_t bytes = 0;
    uint32_t crc32c = 0;  // of the file
  };
  struct Whole {
    std::string path;                  // of its folder, as shard 0 sees it
    std::vector<std::string> deleted;  // older ones, for this one
  };

  virtual ~CheckpointWriting() = default;

  // Of the cut, as the shards know it.
  virtual uint64_t cut_id() const = 0;
  // By shard, when each has written its part. Errors: AwaitCheckpoint's of
  // proto/parameter_server.proto; DeadlineExceeded after an hour; Cancelled.
  virtual absl::StatusOr<std::vector<Part>> AwaitParts() = 0;
  // Makes the checkpoint whole: has the manifest written wherever there is to
  // be one, and only then older ones deleted. Errors, of the first part alone:
  // CommitCheckpoint's; Cancelled.
  virtual absl::StatusOr<Whole> Commit(const std::string& manifest) = 0;
  // Ends the calls, of now and later. Thread-safe.
  virtual void Cancel() = 0;
  // By block (common/wire/block_map.h): the shard that writes it. Empty: as the
  // job's assignment says.
  virtual std::vector<uint32_t> block_shards() const { return {}; }
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_EXCHANGE_CHECKPOINT_WRITING_H_

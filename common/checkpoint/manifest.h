#ifndef SYNCLINE_COMMON_CHECKPOINT_MANIFEST_H_
#define SYNCLINE_COMMON_CHECKPOINT_MANIFEST_H_

// A checkpoint's manifest as bytes, and the names of the files beside it;
// README.md draws both. Pure.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/parameter_server.pb.h"

namespace syncline {

inline constexpr uint32_t kManifestMagic = 0x4d435953;  // "SYCM"
inline constexpr uint32_t kManifestFormat = 1;
inline constexpr size_t kManifestFrameBytes = 16;
// It travels in one message, CommitCheckpoint.
inline constexpr size_t kManifestBytesMax = 3 << 20;
inline constexpr char kManifestFile[] = "manifest";

// The name of a checkpoint's folder below its job's: "000000001200-0010...".
struct CheckpointName {
  int64_t clock = 0;
  uint64_t cut_id = 0;

  std::string ToString() const;
  // None: another name.
  static std::optional<CheckpointName> Parse(absl::string_view name);
  // The name of a cut's checkpoint. REQUIRES: a clock.
  static CheckpointName Of(uint64_t cut_id, absl::Span<const int64_t> clocks);

  friend bool operator==(const CheckpointName&,
                         const CheckpointName&) = default;
};

// "shard-00001-of-00004.state".
std::string ShardFileName(uint32_t shard, uint32_t shards);

// The path of the file of an earlier cut beside the file of the same shard at
// `path`: "shard-00001-of-00004.001000004b0400.state".
std::string OlderStateFile(absl::string_view path, uint64_t cut_id);

// A checkpoint that all shards have written, as the chief knows it.
struct CheckpointParts {
  uint64_t cut_id = 0;
  std::vector<int64_t> clocks = {};  // of the cut, by rank
  int64_t total_clocks = 0;
  uint32_t model_crc32c = 0;
  // By shard; with an empty `file` for a shard that has nothing.
  std::vector<AwaitCheckpointResponse> shards = {};
  // By block: its shard, where the assignment does not say so, as without ps.
  // Empty: it does.
  std::vector<uint32_t> block_shards = {};
  // By rank; empty: nobody has a loss scale.
  std::vector<CheckpointManifest::LossScale> loss_scales = {};
  // The job's so far; empty: those of the assignment.
  std::vector<Regime> regimes = {};
  absl::Time time = absl::UnixEpoch();
  absl::Duration took = absl::ZeroDuration();
};
CheckpointManifest MakeManifest(const JobAssignment& assignment,
                                const CheckpointParts& parts);

// The bytes of the file, at most kManifestBytesMax. Errors: ResourceExhausted:
// it would be larger; those of CheckManifest.
absl::StatusOr<std::string> EncodeManifest(const CheckpointManifest& manifest);

// The manifest in `bytes`; `source` is for messages: a file's path, a caller.
// Errors: DataLoss: bytes that EncodeManifest has not written; InvalidArgument:
// a format of another version; those of CheckManifest.
absl::StatusOr<CheckpointManifest> DecodeManifest(absl::string_view source,
                                                  absl::string_view bytes);

// OK if it does not contradict itself. Errors: InvalidArgument, with the field:
// no shard, worker or job; names of files that ShardFileName does not give; a
// clock, count or number that cannot be.
absl::Status CheckManifest(const CheckpointManifest& manifest);

// The summary of a checkpoint that members and users are told; `encoded` is
// EncodeManifest's.
CheckpointInfo CheckpointInfoOf(const CheckpointManifest& manifest,
                                absl::string_view path,
                                absl::string_view encoded);

// The assignment of the job that wrote it, as far as RoutingTable needs it.
JobAssignment AssignmentOf(const CheckpointManifest& manifest);

// OK if a job with this assignment can take over the values: the same tensors
// and tables. Errors: InvalidArgument, which says what differs first.
absl::Status CheckSameModel(const CheckpointManifest& manifest,
                            const JobAssignment& assignment);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_CHECKPOINT_MANIFEST_H_

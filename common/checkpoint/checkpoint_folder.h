#ifndef SYNCLINE_COMMON_CHECKPOINT_CHECKPOINT_FOLDER_H_
#define SYNCLINE_COMMON_CHECKPOINT_CHECKPOINT_FOLDER_H_

// The folders of checkpoints on a disk; README.md draws them. Each function may
// block for as long as the disk does. Errors carry errno's code and name the
// path (common/system/file.h), besides those that are listed.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/checkpoint/manifest.h"
#include "common/system/disk_thread.h"
#include "proto/checkpoint.pb.h"

namespace syncline {

// A folder below a job's that has the name of a checkpoint.
struct CheckpointFolder {
  CheckpointName name;
  std::string path;
  // Without a manifest: NotFound. One that cannot be read: DecodeManifest's
  // errors.
  absl::StatusOr<CheckpointManifest> manifest = absl::NotFoundError("");
};

// The manifest in a checkpoint's folder. Errors: NotFound: there is no such
// folder, or it has no manifest, so that this is no checkpoint; DataLoss: as
// DecodeManifest, or of another checkpoint than the folder's name says.
absl::StatusOr<CheckpointManifest> ReadManifest(const std::string& path);
// The same, and the CRC-32C of the file in *crc32c.
absl::StatusOr<CheckpointManifest> ReadManifest(const std::string& path,
                                                uint32_t* crc32c);

// Those of a job, by clock and then cut; none if the folder is not there. Adds
// to *calls what it makes of the disk; may be null.
absl::StatusOr<std::vector<CheckpointFolder>> ListCheckpoints(
    const std::string& job_folder, DiskCalls* calls = nullptr);

// Writes the manifest into a checkpoint's folder: beside its place, synced,
// renamed, the folder synced. OK without effect if it is there.
absl::Status WriteManifest(const std::string& path, absl::string_view encoded);

// Makes the creation, renaming and removal of files in it durable.
absl::Status SyncFolder(const std::string& path);

// Deletes a checkpoint: the manifest first, so that what is left if this is
// interrupted is no checkpoint.
absl::Status DeleteCheckpoint(const std::string& path);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_CHECKPOINT_CHECKPOINT_FOLDER_H_

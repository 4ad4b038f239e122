#include "common/checkpoint/checkpoint_commit.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/fault_points.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/checkpoint_marks.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/retention.h"
#include "common/system/file.h"
#include "common/system/log.h"

namespace syncline {
namespace {

// OK if the shards' files are there, as far as they can be seen here.
absl::Status CheckFiles(const CheckpointCommit& commit,
                        const CheckpointManifest& manifest,
                        const std::string& path) {
  for (const CheckpointManifest::Shard& shard : manifest.shards()) {
    if (shard.file().empty()) continue;
    if (!commit.own_file.empty() && shard.file() != commit.own_file) continue;
    const std::string file = absl::StrCat(path, "/", shard.file());
    const absl::StatusOr<uint64_t> bytes = FileSize(file);
    if (bytes.ok() && *bytes == shard.bytes()) continue;
    return absl::UnavailableError(absl::StrCat(
        commit.label, ": ", file, " is not there as its shard has ",
        "written it (",
        bytes.ok() ? absl::StrCat(*bytes, " bytes, expected ", shard.bytes())
                   : std::string(bytes.status().message()),
        "); do all members see the same folder there?"));
  }
  return absl::OkStatus();
}

std::vector<std::string> DeleteOthers(const CheckpointCommit& commit,
                                      const CheckpointManifest& manifest) {
  std::vector<std::string> deleted;
  const auto all = ListCheckpoints(commit.folder);
  if (!all.ok()) {
    LogWarning("checkpoints not deleted")
        .Job(commit.job_id)
        .Status(all.status());
    return deleted;
  }
  std::vector<KeptCheckpoint> kept;
  std::vector<std::string> paths;
  for (const CheckpointFolder& one : *all) {
    const absl::StatusCode code = one.manifest.status().code();
    // One that is damaged is evidence, and one of another version or job is not
    // ours to delete.
    if (code != absl::StatusCode::kOk && code != absl::StatusCode::kNotFound) {
      continue;
    }
    if (one.manifest.ok() && one.manifest->job_id() != manifest.job_id()) {
      continue;
    }
    KeptCheckpoint& entry = kept.emplace_back();
    entry.name = one.name;
    entry.whole = one.manifest.ok();
    entry.marked = IsMarked(one.path);
    paths.push_back(one.path);
  }
  for (const size_t i :
       ChooseDeleted(kept, {manifest.clock(), manifest.cut_id()},
                     commit.start_clock, commit.keep_last, commit.keep_every)) {
    absl::Status gone = AtFaultPoint(FaultPoint::kCheckpointDelete);
    if (gone.ok()) gone = DeleteCheckpoint(paths[i]);
    if (gone.ok()) {
      deleted.push_back(paths[i]);
    } else {
      LogWarning("a checkpoint was not deleted")
          .Job(commit.job_id)
          .Field("path", paths[i])
          .Status(gone);
    }
  }
  return deleted;
}

}  // namespace

absl::Status AsCheckpointDiskError(const absl::Status& error) {
  if (error.ok() || error.code() == absl::StatusCode::kResourceExhausted) {
    return error;
  }
  return absl::UnavailableError(error.message());
}

absl::StatusOr<CommittedCheckpoint> CommitCheckpoint(
    const CheckpointCommit& commit, const std::string& encoded) {
  SYNCLINE_ASSIGN_OR_RETURN(
      const CheckpointManifest manifest,
      DecodeManifest(absl::StrCat(commit.label, ": CommitCheckpoint"),
                     encoded));
  if (manifest.job_id() != commit.job_id ||
      manifest.shards_size() != static_cast<int>(commit.shards)) {
    return absl::InvalidArgumentError(absl::StrCat(
        commit.label, ": the manifest is of job ", manifest.job_id(), " with ",
        manifest.shards_size(), " shards, this job has ", commit.shards));
  }
  CommittedCheckpoint committed;
  committed.path = absl::StrCat(
      commit.folder, "/",
      CheckpointName{manifest.clock(), manifest.cut_id()}.ToString());
  SYNCLINE_RETURN_IF_ERROR(CheckFiles(commit, manifest, committed.path));
  uint32_t crc32c = 0;
  const bool is_repeat =
      ReadManifest(committed.path, &crc32c).ok() && crc32c == Crc32c(encoded);
  if (is_repeat) {
    committed.deleted = DeleteOthers(commit, manifest);
    return committed;
  }
  SYNCLINE_RETURN_IF_ERROR(AtFaultPoint(FaultPoint::kManifestWrite));
  SYNCLINE_RETURN_IF_ERROR(
      AsCheckpointDiskError(WriteManifest(committed.path, encoded)));
  SYNCLINE_RETURN_IF_ERROR(AtFaultPoint(FaultPoint::kManifestWritten));
  return committed;
}

}  // namespace syncline

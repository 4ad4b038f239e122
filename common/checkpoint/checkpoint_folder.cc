#include "common/checkpoint/checkpoint_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/status_macros.h"
#include "common/system/file.h"
#include "common/system/file_descriptor.h"

namespace syncline {
namespace {

std::string ManifestPath(const std::string& path) {
  return absl::StrCat(path, "/", kManifestFile);
}

}  // namespace

absl::StatusOr<CheckpointManifest> ReadManifest(const std::string& path) {
  uint32_t crc32c = 0;
  return ReadManifest(path, &crc32c);
}

absl::StatusOr<CheckpointManifest> ReadManifest(const std::string& path,
                                                uint32_t* crc32c) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    return absl::NotFoundError(
        absl::StrCat("the checkpoint \"", path, "\" is not there"));
  }
  const absl::StatusOr<std::string> bytes =
      ReadFile(ManifestPath(path), kManifestBytesMax);
  if (bytes.status().code() == absl::StatusCode::kNotFound) {
    return absl::NotFoundError(
        absl::StrCat("\"", path, "\" is no checkpoint: it has no manifest"));
  }
  if (bytes.status().code() == absl::StatusCode::kResourceExhausted) {
    return absl::DataLossError(bytes.status().message());
  }
  SYNCLINE_RETURN_IF_ERROR(bytes.status());
  SYNCLINE_ASSIGN_OR_RETURN(CheckpointManifest manifest,
                            DecodeManifest(ManifestPath(path), *bytes));
  *crc32c = Crc32c(*bytes);
  const std::string folder = std::filesystem::path(path).filename();
  const CheckpointName name{manifest.clock(), manifest.cut_id()};
  // A folder that was given another name is still a checkpoint.
  const auto parsed = CheckpointName::Parse(folder);
  if (!parsed.has_value() || *parsed == name) return manifest;
  return absl::DataLossError(
      absl::StrCat(ManifestPath(path), ": the manifest is of the checkpoint ",
                   name.ToString()));
}

absl::StatusOr<std::vector<CheckpointFolder>> ListCheckpoints(
    const std::string& job_folder, DiskCalls* calls) {
  std::vector<CheckpointFolder> all;
  std::error_code error;
  std::filesystem::directory_iterator entry(job_folder, error);
  if (error.value() == ENOENT) return all;
  for (; !error && entry != std::filesystem::directory_iterator();
       entry.increment(error)) {
    if (calls != nullptr) calls->Add();
    const std::string path = entry->path().string();
    const auto name =
        CheckpointName::Parse(std::string(entry->path().filename()));
    if (!name.has_value()) continue;
    all.push_back({*name, path, ReadManifest(path)});
  }
  if (error) return FileError(error.value(), "list", job_folder);
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return std::pair(a.name.clock, a.name.cut_id) <
           std::pair(b.name.clock, b.name.cut_id);
  });
  return all;
}

absl::Status WriteManifest(const std::string& path, absl::string_view encoded) {
  const absl::StatusOr<std::string> there =
      ReadFile(ManifestPath(path), kManifestBytesMax);
  if (there.ok() && *there == encoded) return absl::OkStatus();
  return WriteFileAtomically(ManifestPath(path), encoded);
}

absl::Status SyncFolder(const std::string& path) {
  const FileDescriptor folder(
      open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return FileError(errno, "open", path);
  if (fsync(folder.get()) != 0) return FileError(errno, "sync", path);
  return absl::OkStatus();
}

absl::Status DeleteCheckpoint(const std::string& path) {
  if (unlink(ManifestPath(path).c_str()) != 0 && errno != ENOENT &&
      errno != ENOTDIR) {
    return FileError(errno, "remove", ManifestPath(path));
  }
  return RemoveTree(path);
}

}  // namespace syncline

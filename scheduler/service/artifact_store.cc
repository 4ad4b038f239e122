#include "scheduler/service/artifact_store.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/fault_points.h"
#include "common/base/status_macros.h"
#include "common/system/file.h"

namespace syncline::scheduler {
namespace {

constexpr size_t kNameMax = 128;
// Kept free for the records of jobs and for logs; of a small disk a part.
constexpr uint64_t kReserveBytes = 64 << 20;
constexpr uint64_t kReserveShare = 64;

bool IsNamePart(absl::string_view part) {
  if (part.empty() || part.front() == '.') return false;
  for (const char c : part) {
    if (!absl::ascii_isalnum(c) && c != '.' && c != '_' && c != '-') {
      return false;
    }
  }
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ArtifactStore>> ArtifactStore::Open(
    const std::string& directory) {
  std::unique_ptr<ArtifactStore> store(new ArtifactStore(directory));
  SYNCLINE_RETURN_IF_ERROR(RemoveTree(store->incoming_));
  SYNCLINE_RETURN_IF_ERROR(MakeDirs(store->incoming_));
  SYNCLINE_RETURN_IF_ERROR(MakeDirs(store->jobs_));
  return store;
}

absl::Status ArtifactStore::CheckName(const std::string& name) {
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '/');
  bool good = name.size() <= kNameMax && parts.size() <= 2;
  for (const absl::string_view part : parts) good = good && IsNamePart(part);
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", absl::CHexEscape(name.substr(0, kNameMax)),
      "\" is not the name of an artifact: one or two parts of [A-Za-z0-9._-], "
      "not beginning with a dot, at most ",
      kNameMax, " characters"));
}

absl::StatusOr<ArtifactStore::Disk> ArtifactStore::DiskSpace() const {
  std::error_code error;
  const std::filesystem::space_info space =
      std::filesystem::space(incoming_, error);
  if (error) return FileError(error.value(), "use", incoming_);
  return Disk{.bytes = space.capacity, .free_bytes = space.available};
}

absl::Status ArtifactStore::CheckRoom(uint64_t bytes) const {
  SYNCLINE_ASSIGN_OR_RETURN(const Disk disk, DiskSpace());
  const uint64_t reserve = std::min(kReserveBytes, disk.bytes / kReserveShare);
  if (disk.free_bytes >= reserve && disk.free_bytes - reserve >= bytes) {
    return absl::OkStatus();
  }
  const std::string asked = bytes == 0
                                ? "; free some, or give another --state-dir"
                                : absl::StrCat(", and ", bytes, " are needed");
  return absl::ResourceExhaustedError(absl::StrCat(
      "No space left: the disk of ", incoming_, " has ", disk.free_bytes,
      " bytes free; ", reserve, " are kept for the records of jobs", asked));
}

absl::StatusOr<std::unique_ptr<FileChunkWriter>> ArtifactStore::BeginUpload(
    uint64_t bytes_max, std::optional<uint64_t> declared_bytes) {
  SYNCLINE_RETURN_IF_ERROR(CheckRoom(declared_bytes.value_or(0)));
  return FileChunkWriter::Create(
      absl::StrCat(incoming_, "/", next_upload_.fetch_add(1)), bytes_max,
      declared_bytes);
}

std::string ArtifactStore::PathOf(const std::string& job_id,
                                  const std::string& name) const {
  return absl::StrCat(jobs_, "/", job_id, "/", name);
}

std::string ArtifactStore::FolderOf(const std::string& job_id) const {
  std::error_code error;
  const auto folder =
      std::filesystem::absolute(absl::StrCat(jobs_, "/", job_id), error);
  return error ? absl::StrCat(jobs_, "/", job_id) : folder.string();
}

absl::StatusOr<Artifact> ArtifactStore::Commit(FileChunkWriter* upload,
                                               const std::string& job_id,
                                               const std::string& name) {
  SYNCLINE_RETURN_IF_ERROR(CheckName(name));
  const std::string path = PathOf(job_id, name);
  SYNCLINE_RETURN_IF_ERROR(MakeDirs(path.substr(0, path.find_last_of('/'))));
  SYNCLINE_RETURN_IF_ERROR(AtFaultPoint(FaultPoint::kResultStore));
  SYNCLINE_RETURN_IF_ERROR(upload->Commit(path));
  SYNCLINE_RETURN_IF_ERROR(AtFaultPoint(FaultPoint::kResultStored));
  Artifact artifact;
  artifact.set_name(name);
  artifact.set_size_bytes(upload->size_bytes());
  artifact.set_crc32c(upload->crc32c());
  return artifact;
}

absl::StatusOr<std::unique_ptr<FileChunkReader>> ArtifactStore::Read(
    const std::string& job_id, const std::string& name) const {
  SYNCLINE_RETURN_IF_ERROR(CheckName(name));
  return FileChunkReader::Open(PathOf(job_id, name));
}

absl::Status ArtifactStore::DeleteJob(const std::string& job_id) {
  return RemoveTree(absl::StrCat(jobs_, "/", job_id));
}

absl::StatusOr<std::vector<std::string>> ArtifactStore::ListJobs() const {
  std::error_code error;
  std::vector<std::string> job_ids;
  for (const auto& entry : std::filesystem::directory_iterator(jobs_, error)) {
    job_ids.push_back(entry.path().filename());
  }
  if (error) return FileError(error.value(), "list", jobs_);
  std::sort(job_ids.begin(), job_ids.end());
  return job_ids;
}

}  // namespace syncline::scheduler

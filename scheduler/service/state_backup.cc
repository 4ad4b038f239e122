#include "scheduler/service/state_backup.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/crc32c.h"
#include "common/base/status_macros.h"
#include "common/cluster/file_chunks.h"
#include "common/system/file.h"
#include "common/system/log.h"
#include "common/system/tar.h"

namespace syncline::scheduler {
namespace {

// Behind it: PID-NUMBER. Nobody types such a name, so whatever has one is ours.
constexpr char kFolder[] = ".backup-part-";
constexpr char kManifest[] = "MANIFEST";

std::string NameOf(const std::string& job_id, const std::string& artifact) {
  return absl::StrCat("jobs/", job_id, "/", artifact);
}

// A file is replaced as a whole, by one whose record says so.
bool IsSameFile(const Artifact& a, const Artifact& b) {
  return a.size_bytes() == b.size_bytes() && a.crc32c() == b.crc32c();
}

bool IsNumber(absl::string_view text) {
  return !text.empty() && absl::c_all_of(text, [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c));
  });
}

// Whether Begin has made `entry`: not what a person has put beside it.
bool IsOwnFolder(const std::filesystem::directory_entry& entry) {
  std::error_code error;
  // A link to a folder is none.
  if (entry.symlink_status(error).type() !=
      std::filesystem::file_type::directory) {
    return false;
  }
  const std::string file = entry.path().filename().string();
  absl::string_view name = file;
  if (!absl::ConsumePrefix(&name, kFolder)) return false;
  const std::pair<absl::string_view, absl::string_view> numbers =
      absl::StrSplit(name, absl::MaxSplits('-', 1));
  return IsNumber(numbers.first) && IsNumber(numbers.second);
}

}  // namespace

absl::StatusOr<std::unique_ptr<StateBackup>> StateBackup::Begin(
    const ArtifactStore& artifacts, absl::Span<const JobStatus> jobs) {
  static std::atomic<int> taken{0};
  auto backup = absl::WrapUnique(new StateBackup(absl::StrCat(
      artifacts.directory(), "/", kFolder, getpid(), "-", ++taken)));
  SYNCLINE_RETURN_IF_ERROR(MakeDirs(backup->folder_));
  // The records have the secrets of jobs.
  if (chmod(backup->folder_.c_str(), 0700) != 0) {
    return FileError(errno, "set the mode of", backup->folder_);
  }
  for (const JobStatus& job : jobs) {
    for (const Artifact& artifact : job.artifacts()) {
      SYNCLINE_RETURN_IF_ERROR(
          backup->Link(artifacts, job.job_id(), artifact).status());
    }
  }
  return backup;
}

absl::Status StateBackup::TakeMoment(StateStore* state,
                                     const ArtifactStore& artifacts,
                                     absl::Span<const JobStatus> jobs) {
  SYNCLINE_RETURN_IF_ERROR(state->CopyTo(folder_ + "/db"));
  SYNCLINE_RETURN_IF_ERROR(ListDatabase());
  for (const JobStatus& job : jobs) {
    for (const Artifact& artifact : job.artifacts()) {
      std::string name = NameOf(job.job_id(), artifact.name());
      const auto linked = linked_.find(name);
      if (linked == linked_.end() || !IsSameFile(linked->second, artifact)) {
        SYNCLINE_ASSIGN_OR_RETURN(const bool is_there,
                                  Link(artifacts, job.job_id(), artifact));
        if (!is_there) {
          LogWarning(
              "a file that its record names is not there, nor in the backup")
              .Job(job.job_id())
              .Field("file", artifacts.PathOf(job.job_id(), artifact.name()));
          continue;
        }
      }
      names_.push_back(std::move(name));
    }
  }
  return absl::OkStatus();
}

void StateBackup::RemoveLeftovers(const std::string& directory) {
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(directory, error)) {
    if (IsOwnFolder(entry)) RemoveTree(entry.path()).IgnoreError();
  }
}

StateBackup::~StateBackup() {
  file_.reset();
  const absl::Status removed = RemoveTree(folder_);
  if (!removed.ok()) LogWarning("a backup's links are left").Status(removed);
}

absl::Status StateBackup::ListDatabase() {
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(folder_ + "/db", error)) {
    names_.push_back("db/" + entry.path().filename().string());
  }
  std::sort(names_.begin(), names_.end());
  if (!error) return absl::OkStatus();
  return FileError(error.value(), "list", folder_ + "/db");
}

absl::StatusOr<bool> StateBackup::Link(const ArtifactStore& artifacts,
                                       const std::string& job_id,
                                       const Artifact& artifact) {
  const std::string name = NameOf(job_id, artifact.name());
  const std::string to = absl::StrCat(folder_, "/", name);
  SYNCLINE_RETURN_IF_ERROR(
      MakeDirs(std::filesystem::path(to).parent_path().string()));
  if (linked_.erase(name) > 0 && unlink(to.c_str()) != 0) {
    return FileError(errno, "remove", to);
  }
  const std::string from = artifacts.PathOf(job_id, artifact.name());
  if (link(from.c_str(), to.c_str()) == 0) {
    linked_[name] = artifact;
    return true;
  }
  if (errno != ENOENT) return FileError(errno, "link", from);
  return false;
}

absl::Status StateBackup::Open(const std::string& name) {
  const std::string path = absl::StrCat(folder_, "/", name);
  SYNCLINE_ASSIGN_OR_RETURN(bytes_, FileSize(path));
  file_.reset(std::fopen(path.c_str(), "rbe"));
  if (file_ == nullptr) return FileError(errno, "read", path);
  name_ = name;
  left_ = bytes_;
  file_crc32c_ = 0;
  buffer_ += TarHeader({.name = name, .bytes = bytes_});
  if (left_ == 0) EndFile();
  return absl::OkStatus();
}

absl::Status StateBackup::ReadMore() {
  const auto want =
      static_cast<size_t>(std::min<uint64_t>(left_, kFileChunkBytesMax));
  std::string part(want, '\0');
  if (std::fread(part.data(), 1, want, file_.get()) != want) {
    return absl::DataLossError(
        absl::StrCat(name_, " cannot be read to its end"));
  }
  file_crc32c_ = ExtendCrc32c(file_crc32c_, part);
  left_ -= want;
  buffer_ += part;
  if (left_ == 0) EndFile();
  return absl::OkStatus();
}

void StateBackup::EndFile() {
  absl::StrAppendFormat(&manifest_, "%08x %d %s\n", file_crc32c_, bytes_,
                        name_);
  buffer_ += TarPadding(bytes_);
  file_.reset();
}

absl::Status StateBackup::Produce() {
  if (file_ != nullptr) return ReadMore();
  if (next_ < names_.size()) return Open(names_[next_++]);
  if (!std::exchange(manifest_done_, true)) {
    absl::StrAppend(&buffer_,
                    TarHeader({.name = kManifest, .bytes = manifest_.size()}),
                    manifest_, TarPadding(manifest_.size()));
    return absl::OkStatus();
  }
  buffer_ += TarEnd();
  ended_ = true;
  return absl::OkStatus();
}

absl::Status StateBackup::Next(FileChunk* chunk) {
  while (!ended_ && buffer_.size() < kFileChunkBytesMax) {
    SYNCLINE_RETURN_IF_ERROR(Produce());
  }
  chunk->set_offset(offset_);
  chunk->set_data(buffer_.substr(0, kFileChunkBytesMax));
  buffer_.erase(0, chunk->data().size());
  offset_ += chunk->data().size();
  crc32c_ = ExtendCrc32c(crc32c_, chunk->data());
  chunk->set_crc32c(crc32c_);
  chunk->set_last(ended_ && buffer_.empty());
  return absl::OkStatus();
}

}  // namespace syncline::scheduler

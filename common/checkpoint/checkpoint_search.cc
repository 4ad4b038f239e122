#include "common/checkpoint/checkpoint_search.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/checkpoint_start.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/state_file.h"
#include "common/job/checkpoint_trouble.h"
#include "common/system/log.h"

namespace syncline {
namespace {

bool HasOwnFolders(const JobAssignment& assignment) {
  return assignment.spec().checkpoint().directory().empty();
}

// Where this member looks for the checkpoints of start_from's job.
std::string FolderOf(const JobAssignment& assignment,
                     const std::string& own_dir) {
  const std::filesystem::path folder =
      std::filesystem::path(assignment.start_from().path()).parent_path();
  if (!HasOwnFolders(assignment) || own_dir.empty()) return folder;
  return absl::StrCat(own_dir, "/", folder.filename().string());
}

// The folder is there, and start_from is not a checkpoint in it.
bool IsDeleted(const JobAssignment& assignment, const std::string& folder) {
  std::error_code error;
  if (folder.empty() || !std::filesystem::is_directory(folder, error)) {
    return false;
  }
  const std::filesystem::path named(assignment.start_from().path());
  return absl::IsNotFound(
      ReadManifest(absl::StrCat(folder, "/", named.filename().string()))
          .status());
}

void Count(DiskCalls* calls) {
  if (calls != nullptr) calls->Add();
}

// A job of a tenant learns nothing of what a folder has of other jobs: they may
// be another tenant's.
bool IsOfAnotherJob(const JobAssignment& assignment) {
  const std::filesystem::path named(assignment.start_from().path());
  return !assignment.tenant().empty() &&
         named.parent_path().filename() != assignment.job_id();
}

}  // namespace

std::vector<FoundCheckpoint> FindInsteadOfStart(const JobAssignment& assignment,
                                                const std::string& own_dir,
                                                DiskCalls* calls) {
  std::vector<FoundCheckpoint> found;
  if (assignment.attempt() <= 1) return found;
  const std::string folder = FolderOf(assignment, own_dir);
  if (!HasOwnFolders(assignment) && !IsDeleted(assignment, folder)) {
    return found;
  }
  Count(calls);
  const auto all = ListCheckpoints(folder, calls);
  if (!all.ok()) return found;
  const std::string job_folder =
      std::filesystem::path(assignment.start_from().path()).parent_path();
  for (const CheckpointFolder& one : *all) {
    uint32_t crc32c = 0;
    Count(calls);
    const auto manifest = ReadManifest(one.path, &crc32c);
    if (!manifest.ok() || manifest->job_id() != assignment.job_id() ||
        !CheckSameModel(*manifest, assignment).ok()) {
      continue;
    }
    FoundCheckpoint& entry = found.emplace_back();
    // Below the same name for all, wherever a ps has its own.
    *entry.mutable_checkpoint() = CheckpointInfoOf(
        *manifest, absl::StrCat(job_folder, "/", one.name.ToString()), "");
    entry.mutable_checkpoint()->set_manifest_crc32c(crc32c);
    *entry.mutable_regimes() = manifest->regimes();
  }
  std::stable_sort(
      found.begin(), found.end(),
      [](const FoundCheckpoint& a, const FoundCheckpoint& b) {
        return std::pair(a.checkpoint().attempt(), a.checkpoint().clock()) <
               std::pair(b.checkpoint().attempt(), b.checkpoint().clock());
      });
  if (found.size() > kFoundCheckpointsMax) {
    found.erase(found.begin(), found.end() - kFoundCheckpointsMax);
  }
  return found;
}

std::vector<FoundCheckpoint> FindInsteadOfOpened(
    const JobAssignment& assignment, const std::string& own_dir,
    const absl::Status& opened, const std::function<absl::Status()>& go_on) {
  // A disk that hangs would hang here, too.
  if (assignment.attempt() <= 1 || absl::IsUnavailable(opened) ||
      absl::IsCancelled(opened)) {
    return {};
  }
  // The call may be left behind.
  struct Look {
    DiskCalls calls;
    std::vector<FoundCheckpoint> found;
  };
  const auto look = std::make_shared<Look>();
  DiskThread disk("find-disk");
  disk.Begin([look, assignment, own_dir] {
    look->found = FindInsteadOfStart(assignment, own_dir, &look->calls);
    return absl::OkStatus();
  });
  const absl::Duration wait_max = StartDiskWaitMax(assignment.spec());
  const absl::Status seen = AwaitDisk(
      &disk, go_on, wait_max,
      [&] {
        return absl::StrCat("the disk hangs: it has not listed checkpoints in ",
                            absl::FormatDuration(wait_max));
      },
      &look->calls);
  if (seen.ok()) return std::move(look->found);
  LogWarning("a job's other checkpoints were not looked for")
      .Job(assignment.job_id())
      .Status(seen);
  return {};
}

absl::Status WithManifestTrouble(const absl::Status& status,
                                 const JobAssignment& assignment,
                                 const std::string& own_dir, DiskCalls* calls) {
  const std::string folder = FolderOf(assignment, own_dir);
  if (!absl::IsNotFound(status) || IsOfAnotherJob(assignment) ||
      !IsDeleted(assignment, folder)) {
    return WithFileTrouble(status);
  }
  std::string text =
      absl::StrCat(folder, kDeletedCheckpoint, assignment.start_from().clock(),
                   ": it was deleted");
  Count(calls);
  const auto all = ListCheckpoints(folder, calls);
  if (!all.ok()) return absl::NotFoundError(text);
  const auto last = std::find_if(
      all->rbegin(), all->rend(),
      [](const CheckpointFolder& one) { return one.manifest.ok(); });
  absl::StrAppend(&text,
                  last == all->rend()
                      ? "; no whole one is there"
                      : absl::StrCat("; the last whole one there is of "
                                     "clock ",
                                     last->name.clock, ", ", last->path));
  return absl::NotFoundError(text);
}

}  // namespace syncline

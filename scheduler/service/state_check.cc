#include "scheduler/service/state_check.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/crc32c.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/cluster/file_chunks.h"
#include "common/system/file.h"
#include "common/system/tar.h"
#include "scheduler/core/describe.h"
#include "scheduler/service/state_store.h"

namespace syncline::scheduler {
namespace {

namespace fs = std::filesystem;

constexpr char kManifest[] = "MANIFEST";
constexpr size_t kManifestBytesMax = 256 << 20;
// Looks at a folder that changes meanwhile.
constexpr int kWalksMax = 10;

struct Content {
  uint64_t bytes = 0;
  uint32_t crc32c = 0;
};
// None: it is not there.
using FindFile =
    std::function<absl::StatusOr<std::optional<Content>>(const std::string&)>;

absl::Status CheckRecords(const std::string& db, const FindFile& find,
                          StateFindings* findings) {
  SYNCLINE_ASSIGN_OR_RETURN(const auto store, StateStore::OpenToRead(db));
  SYNCLINE_ASSIGN_OR_RETURN(findings->epoch, store->Epoch());
  SYNCLINE_ASSIGN_OR_RETURN(const StateStore::Loaded loaded, store->Load());
  for (const auto& record : loaded.unreadable) {
    findings->problems.push_back(std::string(record.why.message()));
  }
  for (const StoredJob& job : loaded.jobs) {
    const JobStatus& status = job.status;
    ++findings->jobs;
    if (!IsFinal(status.state())) ++findings->unfinished;
    if ((status.state() == PREPARING || status.state() == RUNNING) &&
        !job.attempt.has_value()) {
      findings->problems.push_back(absl::StrCat(
          "job ", status.job_id(), " is ", JobState_Name(status.state()),
          ", and its record does not name its members: it cannot be taken up"));
    }
    for (const Artifact& artifact : status.artifacts()) {
      const std::string name =
          absl::StrCat("jobs/", status.job_id(), "/", artifact.name());
      if (!IsPathBelow(artifact.name()) || !IsPathBelow(name)) {
        return absl::FailedPreconditionError(
            absl::StrCat("it is refused: the record of job ", status.job_id(),
                         " names a file \"", Printable(artifact.name()),
                         "\" out of its folder"));
      }
      SYNCLINE_ASSIGN_OR_RETURN(const auto content, find(name));
      if (!content.has_value()) {
        findings->problems.push_back(absl::StrCat(
            name, " is not there, and the record of the job names it"));
        continue;
      }
      ++findings->files;
      findings->file_bytes += content->bytes;
      if (content->bytes != artifact.size_bytes() ||
          content->crc32c != artifact.crc32c()) {
        findings->problems.push_back(absl::StrFormat(
            "%s has %d bytes with checksum %08x, and by the record of the job "
            "%d with %08x",
            name, content->bytes, content->crc32c, artifact.size_bytes(),
            artifact.crc32c()));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Content>> ContentOf(const std::string& path) {
  auto reader = FileChunkReader::Open(path);
  if (absl::IsNotFound(reader.status())) return std::nullopt;
  SYNCLINE_RETURN_IF_ERROR(reader.status());
  FileChunk chunk;
  do {
    SYNCLINE_RETURN_IF_ERROR((*reader)->Next(&chunk));
  } while (!chunk.last());
  return Content{(*reader)->size_bytes(), chunk.crc32c()};
}

// A file, by one of its names.
struct Links {
  std::string name;
  uintmax_t inside = 0;  // names that were found
  uintmax_t all = 0;
};
using LinkedFiles = std::map<std::pair<dev_t, ino_t>, Links>;

// All files below `folder`. Errors: Aborted: a folder went while it was looked
// at, and what comes after it was not looked at; FailedPrecondition: something
// is neither folder nor file; those of the file system.
absl::StatusOr<LinkedFiles> WalkLinks(const std::string& folder) {
  LinkedFiles files;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end;
       !error && entry != end; entry.increment(error)) {
    const std::string path = entry->path().string();
    const auto refuse = [&](absl::string_view what) {
      return absl::FailedPreconditionError(
          absl::StrCat("it is refused: ", path, " ", what));
    };
    struct stat info = {};
    if (lstat(path.c_str(), &info) != 0) {
      // A scheduler that runs has deleted it.
      if (errno == ENOENT) continue;
      return FileError(errno, "look at", path);
    }
    if (S_ISDIR(info.st_mode)) continue;
    if (S_ISLNK(info.st_mode)) return refuse("is a symbolic link");
    if (!S_ISREG(info.st_mode)) return refuse("is no file and no folder");
    Links& links = files[{info.st_dev, info.st_ino}];
    links = {path, links.inside + 1, info.st_nlink};
  }
  if (error == std::errc::no_such_file_or_directory) {
    return absl::AbortedError("a folder went");
  }
  if (error) return FileError(error.value(), "list", folder);
  return files;
}

// OK: all below `folder` are folders and files of its own. Errors:
// FailedPrecondition; Unavailable; those of the file system.
absl::Status CheckLinks(const std::string& folder) {
  // A backup that is being made comes and goes within a walk; what stays wrong
  // is wrong in each walk.
  absl::Status last;
  for (int walk = 0; walk < kWalksMax; ++walk) {
    const auto files = WalkLinks(folder);
    if (absl::IsAborted(files.status())) {
      last = absl::UnavailableError(
          absl::StrCat(folder, " changes while it is looked at; try again"));
      continue;
    }
    SYNCLINE_RETURN_IF_ERROR(files.status());
    // The database and a backup that is being made link files within the
    // folder.
    const auto linked = absl::c_find_if(*files, [](const auto& file) {
      return file.second.all > file.second.inside;
    });
    if (linked == files->end()) return absl::OkStatus();
    last = absl::FailedPreconditionError(absl::StrCat(
        "it is refused: ", linked->second.name,
        " has a hard link outside of the folder, which can change it"));
  }
  return last;
}

absl::StatusOr<StateFindings> CheckFolder(const std::string& folder) {
  SYNCLINE_RETURN_IF_ERROR(CheckLinks(folder));
  StateFindings findings;
  SYNCLINE_RETURN_IF_ERROR(CheckRecords(
      folder + "/db",
      [&](const std::string& name) {
        return ContentOf(absl::StrCat(folder, "/", name));
      },
      &findings));
  return findings;
}

// The files of the archive; those of the database are written to `folder`.
absl::StatusOr<std::map<std::string, Content>> Unpack(TarReader* archive,
                                                      const std::string& folder,
                                                      std::string* manifest) {
  std::map<std::string, Content> files;
  std::set<std::string> names;
  for (;;) {
    SYNCLINE_ASSIGN_OR_RETURN(const auto entry, archive->Next());
    if (!entry.has_value()) return files;
    if (!names.insert(entry->name).second) {
      return absl::FailedPreconditionError(absl::StrCat(
          "it is refused: the archive has ", Printable(entry->name), " twice"));
    }
    const bool is_manifest = entry->name == kManifest;
    // "db/NAME": a name that leads elsewhere is none of ours.
    const bool is_database = absl::StartsWith(entry->name, "db/") &&
                             fs::path(entry->name).parent_path() == "db" &&
                             fs::path(entry->name).filename() != "..";
    std::ofstream out;
    if (is_database) {
      out.open(absl::StrCat(folder, "/", entry->name), std::ios::binary);
    }
    Content content = {.bytes = entry->bytes};
    for (;;) {
      SYNCLINE_ASSIGN_OR_RETURN(const std::string part,
                                archive->Read(kFileChunkBytesMax));
      if (part.empty()) break;
      content.crc32c = ExtendCrc32c(content.crc32c, part);
      if (is_database) out << part;
      if (is_manifest && manifest->size() <= kManifestBytesMax)
        *manifest += part;
    }
    if (is_database && !out.flush()) {
      return absl::ResourceExhaustedError(
          absl::StrCat(folder, " has no room for the database"));
    }
    if (!is_manifest) files[entry->name] = content;
  }
}

absl::StatusOr<StateFindings> CheckArchive(const std::string& path) {
  SYNCLINE_ASSIGN_OR_RETURN(const auto archive, TarReader::Open(path));
  std::error_code error;
  std::string folder =
      (fs::temp_directory_path(error) / "syncline-state-XXXXXX").string();
  if (error || mkdtemp(folder.data()) == nullptr) {
    return FileError(errno, "create directory", folder);
  }
  const absl::Cleanup remove = [&] { RemoveTree(folder).IgnoreError(); };
  SYNCLINE_RETURN_IF_ERROR(MakeDirs(folder + "/db"));
  std::string manifest;
  SYNCLINE_ASSIGN_OR_RETURN(const auto files,
                            Unpack(archive.get(), folder, &manifest));
  StateFindings findings;
  size_t listed = 0;
  for (const absl::string_view line :
       absl::StrSplit(manifest, '\n', absl::SkipEmpty())) {
    ++listed;
    const std::vector<absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits(' ', 2));
    const auto file =
        parts.size() == 3 ? files.find(std::string(parts[2])) : files.end();
    if (file == files.end()) {
      findings.problems.push_back(
          absl::StrCat("MANIFEST names what the archive has not: ", line));
    } else if (absl::StrFormat("%08x %d", file->second.crc32c,
                               file->second.bytes) !=
               absl::StrCat(parts[0], " ", parts[1])) {
      findings.problems.push_back(
          absl::StrCat(parts[2], " is damaged: its checksum is another"));
    }
  }
  if (listed != files.size()) {
    findings.problems.push_back(absl::StrCat(
        "MANIFEST has ", listed, " files, the archive ", files.size(),
        manifest.empty() ? "; it has no MANIFEST: "
                           "it is no backup of a scheduler, or damaged"
                         : ""));
  }
  SYNCLINE_RETURN_IF_ERROR(CheckRecords(
      folder + "/db",
      [&](const std::string& name) -> absl::StatusOr<std::optional<Content>> {
        const auto file = files.find(name);
        if (file == files.end()) return std::nullopt;
        return file->second;
      },
      &findings));
  return findings;
}

}  // namespace

absl::StatusOr<StateFindings> CheckState(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) return CheckFolder(path);
  // Opening a pipe would wait for whoever writes to it.
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is neither a file nor a folder"));
  }
  return CheckArchive(path);
}

}  // namespace syncline::scheduler

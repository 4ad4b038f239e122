#include "server/checkpoint/restore.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/fault_points.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/checkpoint_search.h"
#include "common/checkpoint/checkpoint_start.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/state_file.h"
#include "common/system/file.h"
#include "common/wire/routing_table.h"
#include "server/shard/job_access.h"

namespace syncline::ps {
namespace {

// The numbers of the former shards that have something of a shard.
std::set<uint32_t> FormerShards(const RoutingTable& former,
                                const RoutingTable& now, uint32_t shard) {
  std::set<uint32_t> needed;
  for (const uint32_t block : now.blocks().shard_blocks(shard)) {
    needed.insert(former.blocks().blocks()[block].shard);
  }
  for (size_t table = 0; table < now.tables().size(); ++table) {
    const TableMap& there = former.tables()[table];
    const TableMap& here = now.tables()[table];
    for (const uint32_t slot : here.shard_slots(shard)) {
      // Slots are the top bits of a hash, so each is part of one of fewer
      // slots, or has several of more.
      const uint64_t first = uint64_t{slot} * there.slots() / here.slots();
      const uint64_t end = std::max(
          first + 1, (uint64_t{slot} + 1) * there.slots() / here.slots());
      for (uint64_t of = first; of < end; ++of) {
        needed.insert(there.ShardOfSlot(static_cast<uint32_t>(of)));
      }
    }
  }
  return needed;
}

// True if each shard has just what the one of its number had.
bool AreTheSame(const RoutingTable& former, const RoutingTable& now) {
  if (former.ps_shard_count() != now.shard_count()) return false;
  for (uint32_t shard = 0; shard < now.shard_count(); ++shard) {
    const std::set<uint32_t> needed = FormerShards(former, now, shard);
    if (!needed.empty() && needed != std::set<uint32_t>{shard}) return false;
  }
  return true;
}

// The folder below a ps' own --checkpoint-dir in which the checkpoint has the
// same job and name as the one that the attempt starts from; empty: it is not
// there, or is another tenant's. The scheduler has compared the path that a job
// names with its tenant's folder, which this one is not below.
std::string FolderBelow(const std::string& own_dir,
                        const JobAssignment& assignment) {
  if (own_dir.empty()) return "";
  const CheckpointInfo& from = assignment.start_from();
  const std::filesystem::path named(from.path());
  std::string own =
      absl::StrCat(own_dir, "/", named.parent_path().filename().string(), "/",
                   named.filename().string());
  uint32_t crc32c = 0;
  const auto manifest = ReadManifest(own, &crc32c);
  if (!manifest.ok() || crc32c != from.manifest_crc32c()) return "";
  const bool is_own =
      manifest->tenant() == assignment.tenant() ||
      (manifest->tenant().empty() && manifest->job_id() == assignment.job_id());
  return is_own || assignment.tenant().empty() ? own : "";
}

// StartsFromCheckpoint, but that it waits for a disk that hangs. Adds to *calls
// what it makes of the disk.
absl::StatusOr<ShardStarts> ReadStarts(const JobAssignment& assignment,
                                       uint32_t ps_rank, const GoOnCheck& go_on,
                                       const std::string& own_dir,
                                       DiskCalls* calls) {
  SYNCLINE_RETURN_IF_ERROR(AtFaultPoint(FaultPoint::kRestoreBegin));
  const std::string path = assignment.start_from().path();
  const std::string own = FolderBelow(own_dir, assignment);
  calls->Add();
  const std::string label =
      absl::StrCat(JobLabel(assignment, ps_rank), ": checkpoint ", path);
  uint32_t crc32c = 0;
  const absl::StatusOr<CheckpointManifest> manifest =
      ReadManifest(own.empty() ? path : own, &crc32c);
  calls->Add();
  if (!manifest.ok()) {
    return Annotate(
        WithManifestTrouble(manifest.status(), assignment, own_dir, calls),
        label);
  }
  SYNCLINE_RETURN_IF_ERROR(
      Annotate(CheckStart(*manifest, crc32c, assignment), label));
  absl::StatusOr<RoutingTable> former =
      RoutingTable::Create(AssignmentOf(*manifest));
  if (!former.ok()) return Annotate(former.status(), label);
  SYNCLINE_ASSIGN_OR_RETURN(const RoutingTable now,
                            RoutingTable::Create(assignment));
  const bool same = AreTheSame(*former, now);
  const bool values_only = TakesValuesOnly(assignment);
  // The files of each of this ps' shards, which are missed before any is read.
  struct NeededFile {
    uint32_t shard;  // of those that wrote the checkpoint
    std::string path;
  };
  std::vector<std::vector<NeededFile>> files(now.shard_count());
  for (const uint32_t shard : now.ShardsOf(ps_rank)) {
    std::set<uint32_t> needed = FormerShards(*former, now, shard);
    if (!same && shard == 0 && !values_only) {
      // It takes the counts of all ps.
      for (uint32_t i = 0; i < former->ps_shard_count(); ++i) needed.insert(i);
    }
    for (const uint32_t i : needed) {
      const CheckpointManifest::Shard& of =
          manifest->shards(static_cast<int>(i));
      if (of.file().empty()) continue;
      std::string file = absl::StrCat(own, "/", of.file());
      if (own.empty() || !FileSize(file).ok()) {
        file = absl::StrCat(path, "/", of.file());
      }
      calls->Add();
      SYNCLINE_RETURN_IF_ERROR(Annotate(
          WithFileTrouble(
              StateFileSource::Open(file, of.bytes(), of.crc32c()).status()),
          absl::StrCat(label, ": for shard ", shard)));
      calls->Add();
      files[shard].push_back({i, std::move(file)});
    }
  }
  const absl::Duration wait_max = StartDiskWaitMax(assignment.spec());
  return ShardStarts([manifest = *manifest, files, same, values_only, label,
                      go_on,
                      wait_max](uint32_t shard) -> absl::StatusOr<ShardStart> {
    ShardStart start;
    start.options = {.passes_over_others = true,
                     .with_counts = same || shard == 0,
                     .begins_attempt = true,
                     .values_only = values_only};
    for (const NeededFile& file : files[shard]) {
      const CheckpointManifest::Shard& of =
          manifest.shards(static_cast<int>(file.shard));
      auto source = StateFileSource::OpenWatched(file.path, of.bytes(),
                                                 of.crc32c(), go_on, wait_max);
      if (!source.ok()) {
        return Annotate(WithFileTrouble(source.status()),
                        absl::StrCat(label, ": for shard ", shard));
      }
      start.states.push_back(*std::move(source));
    }
    return start;
  });
}

}  // namespace

absl::StatusOr<ShardStarts> StartsFromCheckpoint(
    const JobAssignment& assignment, uint32_t ps_rank, const GoOnCheck& go_on,
    const std::string& own_dir) {
  using Starts = absl::StatusOr<ShardStarts>;
  const absl::Duration wait_max = StartDiskWaitMax(assignment.spec());
  DiskThread disk("restore-disk");
  // The call may be left behind.
  const auto starts = std::make_shared<Starts>(absl::UnknownError(""));
  const auto calls = std::make_shared<DiskCalls>();
  disk.Begin([assignment, ps_rank, go_on, own_dir, starts, calls] {
    *starts = ReadStarts(assignment, ps_rank, go_on, own_dir, calls.get());
    return absl::OkStatus();
  });
  const std::string label =
      absl::StrCat(JobLabel(assignment, ps_rank), ": checkpoint ",
                   assignment.start_from().path());
  const absl::Status seen = AwaitDisk(
      &disk, go_on, wait_max,
      [&] {
        return absl::StrCat("the disk hangs: it has not shown the files in ",
                            absl::FormatDuration(wait_max));
      },
      calls.get());
  if (absl::IsUnavailable(seen)) {
    return Annotate(WithFileTrouble(seen), label);
  }
  SYNCLINE_RETURN_IF_ERROR(seen);
  return std::move(*starts);
}

}  // namespace syncline::ps

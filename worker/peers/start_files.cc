#include "worker/peers/start_files.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/checkpoint_search.h"
#include "common/checkpoint/checkpoint_start.h"
#include "common/checkpoint/state_file.h"
#include "common/state/shard_state_reader.h"
#include "common/system/disk_thread.h"
#include "common/update/optimizer_state.h"
#include "common/wire/routing_table.h"

namespace syncline::worker {
namespace {

// Of any optimizer.
constexpr uint32_t kSlotsMax = 16;

// The ps read it.
bool IsOfTables(ShardStateKind kind) {
  return kind == ShardStateKind::kPart || kind == ShardStateKind::kFilter ||
         kind == ShardStateKind::kRows || kind == ShardStateKind::kCounts;
}

// By shard. Without tables those without a block have nothing, or the counts of
// what was skipped.
absl::StatusOr<std::vector<bool>> NeededFiles(
    const CheckpointManifest& manifest) {
  std::vector<bool> needed(static_cast<size_t>(manifest.shards_size()),
                           manifest.tables().empty());
  if (!manifest.tables().empty()) {
    SYNCLINE_ASSIGN_OR_RETURN(const RoutingTable former,
                              RoutingTable::Create(AssignmentOf(manifest)));
    for (const Block& block : former.blocks().blocks()) {
      needed[block.shard] = true;
    }
  }
  for (size_t shard = 0; shard < needed.size(); ++shard) {
    if (manifest.shards(static_cast<int>(shard)).file().empty()) {
      needed[shard] = false;
    }
  }
  return needed;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const StartFiles>> StartFiles::Open(
    const JobAssignment& assignment, absl::string_view label,
    const GoOnCheck& go_on) {
  using Files = absl::StatusOr<std::shared_ptr<const StartFiles>>;
  const absl::Duration wait_max = StartDiskWaitMax(assignment.spec());
  DiskThread disk("start-disk");
  // The call may be left behind.
  const auto files = std::make_shared<Files>(absl::UnknownError(""));
  const auto calls = std::make_shared<DiskCalls>();
  disk.Begin([files, assignment, label = std::string(label), calls] {
    *files = Find(assignment, label, calls.get());
    return absl::OkStatus();
  });
  const absl::Status seen = AwaitDisk(
      &disk, go_on, wait_max,
      [&] {
        return absl::StrCat("the disk hangs: it has not shown the files in ",
                            absl::FormatDuration(wait_max));
      },
      calls.get());
  if (absl::IsUnavailable(seen)) {
    return Annotate(
        WithFileTrouble(seen),
        absl::StrCat(label, ": checkpoint ", assignment.start_from().path()));
  }
  SYNCLINE_RETURN_IF_ERROR(seen);
  return std::move(*files);
}

absl::StatusOr<std::shared_ptr<const StartFiles>> StartFiles::Find(
    const JobAssignment& assignment, const std::string& label,
    DiskCalls* calls) {
  const std::string path = assignment.start_from().path();
  const std::string named = absl::StrCat(label, ": checkpoint ", path);
  uint32_t crc32c = 0;
  absl::StatusOr<CheckpointManifest> manifest = ReadManifest(path, &crc32c);
  calls->Add();
  if (!manifest.ok()) {
    return Annotate(WithManifestTrouble(manifest.status(), assignment,
                                        /*own_dir=*/"", calls),
                    named);
  }
  SYNCLINE_RETURN_IF_ERROR(
      Annotate(CheckStart(*manifest, crc32c, assignment), named));
  absl::StatusOr<std::vector<bool>> needed = NeededFiles(*manifest);
  if (!needed.ok()) return Annotate(needed.status(), named);
  auto start = absl::WrapUnique(new StartFiles(
      assignment, named, *std::move(manifest), *std::move(needed)));
  for (const auto& worker : start->manifest_.workers()) {
    if (start->values_only_ || worker.clock() == start->manifest_.clock()) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat(named, ": its workers were at different clocks, ",
                     start->manifest_.clock(), " and ", worker.clock(),
                     ", as in ASYNC; workers that reduce among themselves "
                     "train in SYNC: use start.weights_only, or "
                     "PARAMETER_SERVER"));
  }
  for (int i = 0; i < start->manifest_.shards_size(); ++i) {
    if (!start->needed_[static_cast<size_t>(i)]) continue;
    const CheckpointManifest::Shard& shard = start->manifest_.shards(i);
    SYNCLINE_RETURN_IF_ERROR(Annotate(
        WithFileTrouble(StateFileSource::Open(start->PathOf(shard),
                                              shard.bytes(), shard.crc32c())
                            .status()),
        named));
    calls->Add();
  }
  return std::shared_ptr<const StartFiles>(std::move(start));
}

StartFiles::StartFiles(const JobAssignment& assignment, absl::string_view label,
                       CheckpointManifest manifest, std::vector<bool> needed)
    : assignment_(assignment),
      label_(label),
      manifest_(std::move(manifest)),
      needed_(std::move(needed)),
      values_only_(TakesValuesOnly(assignment)) {}

std::string StartFiles::PathOf(const CheckpointManifest::Shard& shard) const {
  return absl::StrCat(assignment_.start_from().path(), "/", shard.file());
}

uint64_t StartFiles::bytes() const {
  uint64_t bytes = 0;
  for (int shard = 0; shard < manifest_.shards_size(); ++shard) {
    if (!needed_[static_cast<size_t>(shard)]) continue;
    bytes += manifest_.shards(shard).bytes();
  }
  return bytes;
}

absl::Status StartFiles::CheckHeader(const std::string& file, uint32_t shard,
                                     const ShardStateHeader& header,
                                     const OptimizerParams& optimizer) const {
  const auto refuse = [&](const auto&... what) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": the state does not fit the job: ", what...));
  };
  // Blocks are whole in both.
  if (header.format() != kShardStateFormat &&
      header.format() != kShardStateChainFormat) {
    return refuse("its format is ", header.format(), ", this version reads ",
                  kShardStateFormat, " and ", kShardStateChainFormat);
  }
  if (header.cut_id() != manifest_.cut_id() || header.ps_rank() != shard) {
    return absl::DataLossError(
        absl::StrCat(file, ": it is of shard ", header.ps_rank(), " at cut ",
                     header.cut_id(), ", the manifest says shard ", shard,
                     " at cut ", manifest_.cut_id()));
  }
  if (header.slots() > kSlotsMax) {
    return absl::DataLossError(
        absl::StrCat(file, ": its optimizer has ", header.slots(), " slots"));
  }
  const std::string name = OptimizerStateName(optimizer);
  const auto slots = static_cast<uint32_t>(OptimizerSlots(optimizer));
  if (values_only_ || (header.optimizer() == name && header.slots() == slots)) {
    return absl::OkStatus();
  }
  return refuse("its optimizer is '",
                Printable(header.optimizer().substr(0, 100)), "' with ",
                header.slots(), " slots, the job's is '", name, "' with ",
                slots);
}

absl::StatusOr<StartFiles::Counts> StartFiles::Read(
    const BlockMap& map, const OptimizerParams& optimizer,
    const GoOnCheck& go_on, Visit visit, uint64_t* read) const {
  absl::StatusOr<Counts> counts = ReadFiles(map, optimizer, go_on, visit, read);
  if (counts.ok() || absl::IsCancelled(counts.status())) return counts;
  return WithStartTrouble(Annotate(counts.status(), label_), assignment_);
}

absl::StatusOr<StartFiles::Counts> StartFiles::ReadFiles(
    const BlockMap& map, const OptimizerParams& optimizer,
    const GoOnCheck& go_on, Visit visit, uint64_t* read) const {
  Counts counts;
  std::vector<bool> came(map.blocks().size());
  for (int shard = 0; shard < manifest_.shards_size(); ++shard) {
    const CheckpointManifest::Shard& of = manifest_.shards(shard);
    if (!needed_[static_cast<size_t>(shard)]) continue;
    const std::string path = PathOf(of);
    SYNCLINE_ASSIGN_OR_RETURN(
        const std::unique_ptr<StateFileSource> file,
        StateFileSource::OpenWatched(path, of.bytes(), of.crc32c(), go_on,
                                     StartDiskWaitMax(assignment_.spec())));
    file->CountIn(read);
    ShardStateReader reader(file.get());
    SYNCLINE_ASSIGN_OR_RETURN(ShardStateReader::Record record, reader.Next());
    ShardStateHeader header;
    SYNCLINE_RETURN_IF_ERROR(reader.Parse(record, &header));
    SYNCLINE_RETURN_IF_ERROR(
        CheckHeader(path, static_cast<uint32_t>(shard), header, optimizer));
    counts.skipped_clocks =
        std::max(counts.skipped_clocks, header.skipped_clocks());
    counts.skipped_through =
        std::max(counts.skipped_through, header.skipped_through());
    counts.non_finite += header.non_finite();
    BlockStateReader blocks;
    blocks.Begin(1 + header.slots());
    while (true) {
      SYNCLINE_ASSIGN_OR_RETURN(record, reader.Next());
      if (record.kind == ShardStateKind::kTrailer) break;
      if (IsOfTables(record.kind)) {
        SYNCLINE_RETURN_IF_ERROR(blocks.CheckClosed(reader));
        continue;
      }
      if (record.kind != ShardStateKind::kDense) {
        return reader.Damage("it is neither of a block nor of a table");
      }
      SYNCLINE_ASSIGN_OR_RETURN(const BlockStateReader::Piece piece,
                                blocks.Take(reader, record));
      if (piece.block >= came.size() ||
          piece.elements !=
              static_cast<uint64_t>(map.blocks()[piece.block].count)) {
        return reader.Damage(absl::StrCat("block ", piece.block, " of ",
                                          piece.elements,
                                          " elements is none of the model's"));
      }
      if (piece.begins && came[piece.block]) {
        return reader.Damage(
            absl::StrCat("block ", piece.block, " comes twice"));
      }
      came[piece.block] = true;
      if (piece.array == 0 || !values_only_) visit(piece);
    }
    SYNCLINE_RETURN_IF_ERROR(blocks.CheckClosed(reader));
    ShardStateTrailer trailer;
    SYNCLINE_RETURN_IF_ERROR(reader.Parse(record, &trailer));
    if (trailer.blocks() != blocks.blocks()) {
      return reader.Damage(absl::StrCat("it was written behind ",
                                        trailer.blocks(), " blocks, and ",
                                        blocks.blocks(), " were read"));
    }
  }
  const auto absent = std::find(came.begin(), came.end(), false);
  if (absent != came.end()) {
    return absl::DataLossError(
        absl::StrCat("its files have no block ", absent - came.begin()));
  }
  return counts;
}

}  // namespace syncline::worker

#include "worker/peers/peer_checkpoints.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/state_file.h"
#include "common/state/block_state.h"
#include "common/system/file.h"
#include "common/system/log.h"
#include "common/update/copy_reserve.h"

namespace syncline::worker {
namespace {

// A checkpoint that takes longer is given up: its disk stands still.
constexpr absl::Duration kWriteMax = absl::Hours(1);

// Of each block of the updater; 0: another rank writes it.
std::vector<size_t> FloatsToCopy(
    const DenseUpdater& updater,
    absl::Span<const PeerCheckpoints::OwnBlock> blocks) {
  std::vector<size_t> floats(updater.block_count(), 0);
  for (const PeerCheckpoints::OwnBlock& block : blocks) {
    floats[block.local] = updater.values(block.local).size() *
                          static_cast<size_t>(updater.arrays());
  }
  return floats;
}

SnapshotBlocks::Options SnapshotOptions(const PeerCheckpoints::Options& options,
                                        size_t blocks) {
  return {.label = options.label,
          .blocks = static_cast<uint32_t>(blocks),
          .wait_max = options.push_wait_max};
}

}  // namespace

PeerCheckpoints::PeerCheckpoints(Options options, const DenseUpdater* updater,
                                 std::vector<OwnBlock> blocks)
    : options_(std::move(options)),
      updater_(*updater),
      blocks_(std::move(blocks)),
      id_of_(updater->block_count(), 0),
      snapshot_(
          SnapshotOptions(options_, blocks_.size()), updater,
          CopyReserve(FloatsToCopy(*updater, blocks_), options_.copy_bytes)),
      disk_("checkpoint-disk"),
      writer_("checkpoint", 1) {
  for (const OwnBlock& block : blocks_) {
    locals_.push_back(block.local);
    id_of_[block.local] = block.id;
  }
}

PeerCheckpoints::~PeerCheckpoints() {
  Close(absl::CancelledError("its part of the job is over"));
}

uint64_t PeerCheckpoints::CopyBytes(const OptimizerParams& optimizer,
                                    absl::Span<const size_t> counts,
                                    std::optional<uint64_t> copy_bytes) {
  std::vector<size_t> floats;
  for (const size_t count : counts) {
    floats.push_back(count *
                     static_cast<size_t>(1 + OptimizerSlots(optimizer)));
  }
  return CopyReserve::BytesFor(floats, copy_bytes);
}

absl::Status PeerCheckpoints::MakeResident(const GoOnCheck& go_on) {
  return snapshot_.MakeResident(go_on);
}

// --- The rank's thread -------------------------------------------------------

void PeerCheckpoints::Begin(uint64_t cut_id, int64_t clock,
                            ShardStateHeader header, Done done) {
  if (blocks_.empty()) return done(Part());
  auto task = std::make_shared<Task>();
  task->cut_id = cut_id;
  task->path =
      absl::StrCat(options_.folder, "/",
                   CheckpointName{.clock = clock, .cut_id = cut_id}.ToString());
  task->header = std::move(header);
  task->header.set_format(kShardStateFormat);
  task->header.set_job_id(options_.job_id);
  task->header.set_ps_rank(options_.PartOf(options_.rank));
  task->header.set_cut_id(cut_id);
  task->header.set_blocks(static_cast<uint32_t>(blocks_.size()));
  task->done = std::move(done);
  {
    MutexLock lock(&mu_);
    current_ = cut_id;
  }
  task->snapshot = snapshot_.Begin();
  snapshot_.Mark(locals_);
  if (writer_.TrySubmit([this, task] { Write(task.get()); })) return;
  task->done(absl::CancelledError(
      absl::StrCat(options_.label, ": the writer has ended")));
}

void PeerCheckpoints::Close(const absl::Status& why) {
  {
    MutexLock lock(&mu_);
    if (closed_.ok()) closed_ = why;
  }
  snapshot_.Abort(why);
  disk_.LeaveAt(MonotonicNow() + kCheckpointDiskWaitMax, why);
  writer_.Stop();
  if (!disk_.is_busy()) return;
  LogWarning("a checkpoint's disk hangs, and is left to itself")
      .Job(options_.job_id)
      .Field("rank", options_.rank)
      .Field("folder", options_.folder);
}

// --- The writer --------------------------------------------------------------

absl::Status PeerCheckpoints::GoOn(const Task& task) const {
  MutexLock lock(&mu_);
  if (!closed_.ok()) return closed_;
  if (current_ == task.cut_id) return absl::OkStatus();
  return absl::CancelledError("a later checkpoint has begun");
}

void PeerCheckpoints::Write(Task* task) {
  const absl::Time begin = MonotonicNow();
  absl::StatusOr<Part> part = WriteFile(*task);
  if (part.ok()) {
    LogInfo("checkpoint written")
        .Job(options_.job_id)
        .Field("rank", options_.rank)
        .Field("path", task->path)
        .Field("bytes", part->bytes)
        .Field("seconds", absl::ToDoubleSeconds(MonotonicNow() - begin));
  } else {
    // Nothing of it is copied any more.
    MutexLock lock(&mu_);
    if (current_ == task->cut_id) snapshot_.Abort(part.status());
    LogWarning("checkpoint not written")
        .Job(options_.job_id)
        .Field("rank", options_.rank)
        .Field("cut", task->cut_id)
        .Status(part.status());
  }
  task->done(std::move(part));
}

absl::StatusOr<PeerCheckpoints::Part> PeerCheckpoints::WriteFile(
    const Task& task) {
  written_blocks_ = 0;
  SYNCLINE_RETURN_IF_ERROR(GoOn(task));
  Part part;
  part.file = ShardFileName(options_.PartOf(options_.rank), options_.parts());
  const std::string path = absl::StrCat(task.path, "/", part.file);
  SYNCLINE_RETURN_IF_ERROR(disk_.Run(
      [path = task.path] { return AsCheckpointDiskError(MakeDirs(path)); }));
  const absl::Status written = WriteState(task, path, &part);
  if (!written.ok()) {
    // An empty folder goes; another rank's file keeps it.
    (void)disk_.Run([path = task.path] {
      std::error_code ignored;
      std::filesystem::remove(path, ignored);
      return absl::OkStatus();
    });
    return Annotate(written, options_.label);
  }
  SYNCLINE_RETURN_IF_ERROR(
      disk_.Run([path = task.path, folder = options_.folder] {
        SYNCLINE_RETURN_IF_ERROR(AsCheckpointDiskError(SyncFolder(path)));
        return AsCheckpointDiskError(SyncFolder(folder));
      }));
  return part;
}

absl::Status PeerCheckpoints::WriteState(const Task& task,
                                         const std::string& path, Part* part) {
  SYNCLINE_ASSIGN_OR_RETURN(
      const std::unique_ptr<StateFileSink> file,
      StateFileSink::Create(
          path, [this, &task] { return GoOn(task); }, &disk_));
  ShardStateWriter writer(file.get());
  SYNCLINE_RETURN_IF_ERROR(
      writer.Write(ShardStateKind::kHeader, task.header, {}));
  const absl::Time deadline = MonotonicNow() + kWriteMax;
  while (true) {
    SYNCLINE_ASSIGN_OR_RETURN(const std::optional<SnapshotBlocks::Taken> taken,
                              snapshot_.Next(task.snapshot, deadline));
    if (!taken.has_value()) break;
    const absl::Cleanup done = [&] { snapshot_.Done(*taken); };
    const size_t count = updater_.values(taken->block).size();
    SYNCLINE_RETURN_IF_ERROR(WriteBlock(
        id_of_[taken->block], count, taken->updates, updater_.arrays(),
        [&](int array) {
          return absl::MakeConstSpan(
              taken->state + static_cast<size_t>(array) * count, count);
        },
        &writer));
    ++written_blocks_;
  }
  ShardStateTrailer trailer;
  trailer.set_blocks(blocks_.size());
  SYNCLINE_RETURN_IF_ERROR(writer.Write(ShardStateKind::kTrailer, trailer, {}));
  SYNCLINE_RETURN_IF_ERROR(file->Finish());
  part->bytes = file->bytes();
  part->crc32c = file->crc32c();
  return absl::OkStatus();
}

// --- The chief ---------------------------------------------------------------

void PartsOfRanks::Set(uint32_t rank,
                       absl::StatusOr<CheckpointWriting::Part> part) {
  MutexLock lock(&mu_);
  if (parts_[rank].has_value()) return;
  parts_[rank] = std::move(part);
  changed_.SignalAll();
}

absl::StatusOr<std::vector<CheckpointWriting::Part>> PartsOfRanks::Await(
    absl::Time deadline) {
  MutexLock lock(&mu_);
  std::vector<CheckpointWriting::Part> parts;
  absl::Status error;
  for (uint32_t rank = 0; rank < parts_.size(); ++rank) {
    while (!parts_[rank].has_value()) {
      if (cancelled_) return absl::CancelledError("the job has ended");
      if (MonotonicNow() >= deadline) {
        return absl::DeadlineExceededError(absl::StrCat(
            "rank ", rank, " has not written its part of the checkpoint in ",
            absl::FormatDuration(kWriteMax)));
      }
      changed_.WaitUntil(&mu_, deadline);
    }
    // All are waited for: a rank that still writes takes no new checkpoint.
    if (!(*parts_[rank]).ok()) {
      if (error.ok()) error = (*parts_[rank]).status();
      continue;
    }
    parts.push_back(**parts_[rank]);
  }
  if (!error.ok()) return error;
  return parts;
}

void PartsOfRanks::Cancel() {
  MutexLock lock(&mu_);
  cancelled_ = true;
  changed_.SignalAll();
}

PeerCheckpointWriting::PeerCheckpointWriting(
    uint64_t cut_id, const PeerCheckpoints::Options& of,
    std::vector<uint32_t> block_shards, std::shared_ptr<PartsOfRanks> parts)
    : cut_id_(cut_id),
      commit_({.label = of.label,
               .job_id = of.job_id,
               .folder = of.folder,
               .shards = of.parts(),
               .start_clock = of.start_clock,
               .keep_last = of.keep_last,
               .keep_every = of.keep_every}),
      block_shards_(std::move(block_shards)),
      parts_(std::move(parts)),
      disk_("commit-disk") {}

absl::StatusOr<std::vector<CheckpointWriting::Part>>
PeerCheckpointWriting::AwaitParts() {
  return parts_->Await(MonotonicNow() + kWriteMax);
}

void PeerCheckpointWriting::Cancel() {
  parts_->Cancel();
  disk_.LeaveAt(MonotonicNow() + kCheckpointDiskWaitMax,
                absl::CancelledError("the job has ended"));
}

absl::StatusOr<CheckpointWriting::Whole> PeerCheckpointWriting::Commit(
    const std::string& manifest) {
  const auto commit = [&] {
    return disk_.Get<CommittedCheckpoint>(
        [of = commit_, manifest] { return CommitCheckpoint(of, manifest); });
  };
  SYNCLINE_ASSIGN_OR_RETURN(const CommittedCheckpoint committed, commit());
  Whole whole = {.path = committed.path, .deleted = {}};
  // It is whole, so older ones may go: that is what a repeat does.
  auto repeated = commit();
  if (repeated.ok()) {
    whole.deleted = std::move(repeated->deleted);
  } else {
    LogWarning("older checkpoints not deleted")
        .Job(commit_.job_id)
        .Status(repeated.status());
  }
  return whole;
}

}  // namespace syncline::worker

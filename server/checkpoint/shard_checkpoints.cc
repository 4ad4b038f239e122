#include "server/checkpoint/shard_checkpoints.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/fault_points.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_commit.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/state_file.h"
#include "common/system/file.h"
#include "common/system/log.h"

namespace syncline::ps {
namespace {

// For repeats.
constexpr size_t kResultsKept = 16;
// In a folder that all share another ps may still be committing what the chief
// has given up after half of this.
constexpr absl::Duration kLateCommitMax = absl::Minutes(10);
// A caller of AwaitCheckpoint whose time is over asks again at once.
constexpr absl::Duration kAsksAgainWithin = absl::Seconds(10);

std::vector<size_t> BlockFloats(const DenseUpdater& dense) {
  std::vector<size_t> floats;
  for (BlockIndex block = 0; block < dense.block_count(); ++block) {
    floats.push_back(dense.values(block).size() *
                     static_cast<size_t>(dense.arrays()));
  }
  return floats;
}

SnapshotBlocks::Options BlockOptions(const ShardCheckpoints::Options& options,
                                     const JobConfig& config) {
  return {.label = config.label, .wait_max = options.push_wait_max};
}

}  // namespace

ShardCheckpoints::ShardCheckpoints(const Options& options, const Shard& shard,
                                   Announced announced)
    : options_(options),
      label_(shard.config->label),
      shard_(shard),
      announced_(std::move(announced)),
      lane_blocks_(shard.lanes->count()),
      blocks_(BlockOptions(options, *shard.config), &shard.executor->dense(),
              CopyReserve(BlockFloats(shard.executor->dense()),
                          options.copy_bytes)),
      uncommitted_(options.is_shared ? kLateCommitMax : absl::ZeroDuration()),
      chain_(shard.layout->tables().empty()
                 ? 1
                 : std::max<uint32_t>(options.full_tables_every, 1)),
      disk_("ps-checkpoint-disk"),
      writer_("ps-checkpoint", 1) {
  for (BlockIndex b = 0; b < shard.executor->dense().block_count(); ++b) {
    lane_blocks_[shard.lanes->LaneOf(b)].push_back(b);
  }
}

ShardCheckpoints::~ShardCheckpoints() {
  Close(absl::CancelledError("the shard was closed"));
}

absl::Status ShardCheckpoints::MakeResident(const GoOnCheck& go_on) {
  return blocks_.MakeResident(go_on);
}

// --- The snapshot ------------------------------------------------------------

absl::Status ShardCheckpoints::CheckAnnouncement(uint64_t cut_id, CutUse use) {
  if (use != CutUse::kCheckpoint) return absl::OkStatus();
  MutexLock lock(&mu_);
  // One that nobody has asked for is of a cut that may have been withdrawn.
  if (current_ == nullptr || current_->cut_id == cut_id ||
      current_->awaited_until == absl::InfinitePast()) {
    return absl::OkStatus();
  }
  const absl::Time now = MonotonicNow();
  const std::string text =
      absl::StrCat(shard_.config->label, ": the checkpoint of cut ",
                   current_->cut_id, " is still being written, for ",
                   absl::FormatDuration(
                       absl::Trunc(now - current_->began, absl::Seconds(1))));
  if (now < current_->awaited_until) {
    return absl::FailedPreconditionError(text);
  }
  const std::string why =
      absl::StrCat(text, ", and nobody waits for it any more");
  GiveUp(current_.get(), absl::FailedPreconditionError(why));
  return absl::UnavailableError(why);
}

void ShardCheckpoints::OnCutPassed(uint64_t cut_id, CutUse use,
                                   absl::Span<const int64_t> clocks,
                                   const ControllerState& state,
                                   int64_t total_clocks) {
  if (use != CutUse::kCheckpoint) return;
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->cut_id = cut_id;
  snapshot->name = CheckpointName::Of(cut_id, clocks);
  snapshot->state = state;
  snapshot->total_clocks = total_clocks;
  snapshot->began = MonotonicNow();
  snapshot->lane_came.resize(lane_blocks_.size());
  snapshot->lane_done.resize(lane_blocks_.size());
  MutexLock lock(&mu_);
  if (!closed_.ok()) return;
  if (current_ != nullptr) {
    GiveUp(current_.get(), absl::FailedPreconditionError(absl::StrCat(
                               shard_.config->label, ": the checkpoint of cut ",
                               current_->cut_id, " was given up: cut ", cut_id,
                               " has taken its place")));
  }
  current_ = snapshot;
  snapshot->blocks = blocks_.Begin();
  if (writer_.TrySubmit([this, snapshot] { Write(snapshot); })) return;
  GiveUp(snapshot.get(), absl::CancelledError("the writer has ended"));
}

void ShardCheckpoints::GiveUp(Snapshot* snapshot, const absl::Status& why) {
  if (!snapshot->status.ok()) return;
  snapshot->status = why;
  blocks_.Abort(why);
  lane_moved_.SignalAll();
}

void ShardCheckpoints::OnSnapshot(uint64_t cut_id,
                                  absl::Span<const int64_t> /*clocks*/,
                                  int lane) {
  MutexLock lock(&mu_);
  const std::shared_ptr<Snapshot> snapshot = current_;
  if (snapshot == nullptr || snapshot->cut_id != cut_id ||
      !snapshot->status.ok()) {
    return;
  }
  blocks_.Mark(lane_blocks_[lane]);
  snapshot->lane_came[lane] = true;
  lane_moved_.SignalAll();
  if (shard_.layout->tables().empty()) return;
  const absl::Time began = MonotonicNow();
  while (!snapshot->lane_done[lane] &&
         (snapshot->status.ok() || snapshot->in_lane == lane)) {
    const absl::Time now = MonotonicNow();
    // While the rows of a lane are read, the file has a deadline of its own.
    if (snapshot->in_lane < 0 &&
        now >= std::max(began, snapshot->left_lane) + options_.push_wait_max) {
      GiveUp(snapshot.get(),
             absl::UnavailableError(absl::StrCat(
                 shard_.config->label, ": the checkpoint of cut ", cut_id,
                 " was not begun in ",
                 absl::FormatDuration(options_.push_wait_max),
                 snapshot->is_written ? ": the disk hangs, in the folder "
                                      : ": the disk holds up the one before, "
                                        "in the folder ",
                 options_.folder)));
    }
    lane_moved_.WaitUntil(
        &mu_, now + std::min(options_.push_wait_max, absl::Seconds(1)));
  }
  counts_.table_waits += MonotonicNow() - began;
}

absl::StatusOr<int> ShardCheckpoints::EnterLane(Snapshot* snapshot) {
  const absl::Time deadline = MonotonicNow() + options_.lane_wait_max;
  MutexLock lock(&mu_);
  while (true) {
    if (!snapshot->status.ok()) return snapshot->status;
    for (size_t lane = 0; lane < snapshot->lane_came.size(); ++lane) {
      if (!snapshot->lane_came[lane] || snapshot->lane_done[lane]) continue;
      snapshot->in_lane = static_cast<int>(lane);
      return snapshot->in_lane;
    }
    if (MonotonicNow() >= deadline) {
      return absl::UnavailableError(
          absl::StrCat(shard_.config->label, ": the checkpoint of cut ",
                       snapshot->cut_id, ": lanes have not come to it in ",
                       absl::FormatDuration(options_.lane_wait_max)));
    }
    lane_moved_.WaitUntil(&mu_, deadline);
  }
}

void ShardCheckpoints::LeaveLane(Snapshot* snapshot, int lane,
                                 const absl::Status& written) {
  MutexLock lock(&mu_);
  snapshot->in_lane = -1;
  snapshot->left_lane = MonotonicNow();
  snapshot->lane_done[lane] = true;
  lane_moved_.SignalAll();
  // Lanes go on at once: where the disk hangs, the file's end takes long.
  if (!written.ok()) GiveUp(snapshot, written);
}

// --- The writer --------------------------------------------------------------

absl::Status ShardCheckpoints::StatusOf(const Snapshot& snapshot) const {
  MutexLock lock(&mu_);
  return snapshot.status;
}

void ShardCheckpoints::Write(const std::shared_ptr<Snapshot>& snapshot) {
  {
    MutexLock lock(&mu_);
    snapshot->is_written = true;
  }
  absl::StatusOr<AwaitCheckpointResponse> written = WriteFile(snapshot.get());
  std::vector<Waiter> answered;
  {
    MutexLock lock(&mu_);
    // Why it was given up is told, not what that looked like to the writer.
    if (!snapshot->status.ok()) {
      if (!written.ok()) written = snapshot->status;
    } else if (!written.ok()) {
      GiveUp(snapshot.get(), written.status());
    }
    const absl::Duration took = MonotonicNow() - snapshot->began;
    if (written.ok()) {
      ++counts_.written;
      counts_.bytes += written->bytes();
      counts_.took += took;
      LogInfo("checkpoint written")
          .Job(shard_.config->job_id)
          .Field("shard", shard_.config->shard)
          .Field("path", written->path())
          .Field("bytes", written->bytes())
          .Field("seconds", absl::ToDoubleSeconds(took));
    } else {
      ++counts_.failed;
      LogWarning("checkpoint not written")
          .Job(shard_.config->job_id)
          .Field("shard", shard_.config->shard)
          .Field("cut", snapshot->cut_id)
          .Status(written.status());
    }
    if (current_ == snapshot) current_ = nullptr;
    results_.push_back({snapshot->cut_id, written});
    if (results_.size() > kResultsKept) results_.pop_front();
    for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
      if (waiter->cut_id != snapshot->cut_id) {
        ++waiter;
        continue;
      }
      answered.push_back(std::move(*waiter));
      waiter = waiters_.erase(waiter);
    }
  }
  for (Waiter& waiter : answered) waiter.done(written);
}

absl::StatusOr<AwaitCheckpointResponse> ShardCheckpoints::WriteFile(
    Snapshot* snapshot) {
  SYNCLINE_RETURN_IF_ERROR(StatusOf(*snapshot));
  const bool is_committed = IsCommitted();
  RemoveUncommitted();
  AwaitCheckpointResponse written;
  written.set_path(
      absl::StrCat(options_.folder, "/", snapshot->name.ToString()));
  written.set_file(ShardFileName(shard_.config->shard, options_.shards));
  SYNCLINE_RETURN_IF_ERROR(disk_.Run([path = written.path()] {
    return AsCheckpointDiskError(MakeDirs(path));
  }));
  uint64_t rows = 0;
  bool whole = false;
  // The folder stays if it has another shard's file.
  const absl::Cleanup tidy = [&] {
    if (!whole) RemoveFiles(written.path());
  };
  const CheckpointChain::Plan plan =
      PlanChain(is_committed, written.path(), written.file());
  {
    SYNCLINE_ASSIGN_OR_RETURN(
        const std::unique_ptr<StateFileSink> file,
        StateFileSink::Create(
            absl::StrCat(written.path(), "/", written.file()),
            [this, snapshot] { return StatusOf(*snapshot); }, &disk_));
    // The lane whose rows are written stands still.
    ShardExporter exporter(
        shard_.config, shard_.layout, shard_.executor, shard_.lanes,
        [](int /*lane*/, ShardExporter::Task task) { return task(); },
        file.get());
    if (chain_.is_used()) exporter.SetChain(plan);
    SYNCLINE_RETURN_IF_ERROR(exporter.Begin(snapshot->state, snapshot->cut_id,
                                            snapshot->total_clocks));
    file->SetPieceWaitMax(options_.push_wait_max);
    SYNCLINE_RETURN_IF_ERROR(WriteTables(snapshot, &exporter));
    // Pushes that wait for blocks give the snapshot up by themselves.
    file->SetPieceWaitMax(absl::InfiniteDuration());
    SYNCLINE_RETURN_IF_ERROR(WriteBlocks(*snapshot, &exporter));
    SYNCLINE_RETURN_IF_ERROR(exporter.End());
    SYNCLINE_RETURN_IF_ERROR(file->Finish());
    written.set_bytes(file->bytes());
    written.set_crc32c(file->crc32c());
    rows = exporter.rows();
  }
  SYNCLINE_RETURN_IF_ERROR(
      disk_.Run([path = written.path(), folder = options_.folder] {
        SYNCLINE_RETURN_IF_ERROR(AsCheckpointDiskError(SyncFolder(path)));
        SYNCLINE_RETURN_IF_ERROR(AsCheckpointDiskError(SyncFolder(folder)));
        return AtFaultPoint(FaultPoint::kCheckpointSynced);
      }));
  whole = true;
  uncommitted_.Add(written.path(), MonotonicNow());
  chain_.OnWritten(plan.older, {.folder = written.path(),
                                .file = {.cut_id = snapshot->cut_id,
                                         .bytes = written.bytes(),
                                         .crc32c = written.crc32c(),
                                         .rows = rows}});
  return written;
}

void ShardCheckpoints::RemoveFiles(const std::string& path) {
  (void)disk_.Run(
      [path, file = ShardFileName(shard_.config->shard, options_.shards)] {
        RemoveShardFiles(path, file);
        return absl::OkStatus();
      });
}

bool ShardCheckpoints::IsCommitted() {
  if (!chain_.is_used() || !chain_.written().has_value()) return false;
  const CheckpointChain::Written& written = *chain_.written();
  const absl::StatusOr<CheckpointManifest> manifest =
      disk_.Get<CheckpointManifest>(
          [folder = written.folder] { return ReadManifest(folder); });
  const auto shard = static_cast<int>(shard_.config->shard);
  return manifest.ok() && shard < manifest->shards_size() &&
         manifest->cut_id() == written.file.cut_id &&
         manifest->shards(shard).bytes() == written.file.bytes &&
         manifest->shards(shard).crc32c() == written.file.crc32c;
}

CheckpointChain::Plan ShardCheckpoints::PlanChain(bool is_committed,
                                                  const std::string& path,
                                                  const std::string& file) {
  CheckpointChain::Plan plan = chain_.Next(is_committed);
  const absl::Status linked = disk_.Run(
      [plan, path, file] { return LinkOlderFiles(plan, path, file); });
  if (linked.ok()) return plan;
  plan.older.clear();
  if (!std::exchange(told_unlinked_, true)) {
    LogWarning("a checkpoint has all rows: those before it cannot be linked")
        .Job(shard_.config->job_id)
        .Field("shard", shard_.config->shard)
        .Field("path", path)
        .Status(linked);
  }
  return plan;
}

// The chief begins a checkpoint once it has committed the one before, or given
// it up because another ps' disk was full: parts of those must not fill this
// disk.
void ShardCheckpoints::RemoveUncommitted() {
  const auto has_manifest = [&](const std::string& folder) {
    return !absl::IsNotFound(
        disk_.Run([folder] { return ReadManifest(folder).status(); }));
  };
  for (const std::string& folder :
       uncommitted_.TakeLeft(MonotonicNow(), has_manifest)) {
    RemoveFiles(folder);
  }
}

absl::Status ShardCheckpoints::WriteTables(Snapshot* snapshot,
                                           ShardExporter* exporter) {
  if (shard_.layout->tables().empty()) return absl::OkStatus();
  for (size_t i = 0; i < lane_blocks_.size(); ++i) {
    SYNCLINE_ASSIGN_OR_RETURN(const int lane, EnterLane(snapshot));
    const absl::Status written = exporter->AddTables(lane);
    LeaveLane(snapshot, lane, written);
    SYNCLINE_RETURN_IF_ERROR(written);
  }
  return absl::OkStatus();
}

absl::Status ShardCheckpoints::WriteBlocks(const Snapshot& snapshot,
                                           ShardExporter* exporter) {
  const absl::Time deadline = MonotonicNow() + options_.lane_wait_max;
  while (true) {
    SYNCLINE_RETURN_IF_ERROR(StatusOf(snapshot));
    const absl::StatusOr<std::optional<SnapshotBlocks::Taken>> next =
        blocks_.Next(snapshot.blocks, deadline);
    // DeadlineExceeded tells a caller of AwaitCheckpoint to ask again.
    if (absl::IsDeadlineExceeded(next.status())) {
      return absl::UnavailableError(next.status().message());
    }
    if (!next.ok()) return next.status();
    if (!next->has_value()) return absl::OkStatus();
    const SnapshotBlocks::Taken* const taken = &**next;
    const absl::Cleanup done = [&] { blocks_.Done(*taken); };
    const size_t count = shard_.layout->counts()[taken->block];
    const bool forgets = IsMutant(FaultPoint::kCheckpointForgetSlots);
    const std::vector<float> forgotten(forgets ? count : 0);
    SYNCLINE_RETURN_IF_ERROR(
        exporter->AddBlock(taken->block, taken->updates, [&](int array) {
          if (forgets && array > 0) return absl::MakeConstSpan(forgotten);
          return absl::MakeConstSpan(
              taken->state + static_cast<size_t>(array) * count, count);
        }));
  }
}

// --- Await -------------------------------------------------------------------

const ShardCheckpoints::Result* ShardCheckpoints::FindResult(
    uint64_t cut_id) const {
  for (const Result& result : results_) {
    if (result.cut_id == cut_id) return &result;
  }
  return nullptr;
}

uint64_t ShardCheckpoints::Await(uint64_t cut_id, absl::Time deadline,
                                 Written done) {
  // Before the lock. If it is passed in the meantime, the snapshot is there.
  const absl::Status announced = announced_(cut_id);
  absl::StatusOr<AwaitCheckpointResponse> answer = AwaitCheckpointResponse();
  if (!announced.ok()) answer = announced;
  {
    MutexLock lock(&mu_);
    const Result* const result = FindResult(cut_id);
    const bool is_current = current_ != nullptr && current_->cut_id == cut_id;
    if (result != nullptr) {
      answer = result->written;
    } else if (!closed_.ok()) {
      answer = closed_;
    } else if (is_current || announced.ok()) {
      if (is_current) current_->awaited_until = absl::InfiniteFuture();
      const uint64_t token = next_token_++;
      waiters_.push_back({token, cut_id, deadline, std::move(done)});
      return token;
    }
  }
  done(std::move(answer));
  return 0;
}

void ShardCheckpoints::EndAwaiting(absl::Time back_by) {
  if (current_ == nullptr ||
      current_->awaited_until != absl::InfiniteFuture()) {
    return;
  }
  for (const Waiter& waiter : waiters_) {
    if (waiter.cut_id == current_->cut_id) return;
  }
  current_->awaited_until = back_by;
}

void ShardCheckpoints::Cancel(uint64_t token) {
  Written done;
  {
    MutexLock lock(&mu_);
    for (auto waiter = waiters_.begin(); waiter != waiters_.end(); ++waiter) {
      if (waiter->token != token) continue;
      done = std::move(waiter->done);
      waiters_.erase(waiter);
      break;
    }
    EndAwaiting(MonotonicNow());
  }
  if (done) done(absl::CancelledError("the caller gave up"));
}

void ShardCheckpoints::Tick(absl::Time now) {
  std::vector<uint64_t> asked;  // cuts that were not passed yet
  {
    MutexLock lock(&mu_);
    for (const Waiter& waiter : waiters_) {
      if (current_ != nullptr && current_->cut_id == waiter.cut_id) {
        current_->awaited_until = absl::InfiniteFuture();
      } else {
        asked.push_back(waiter.cut_id);
      }
    }
  }
  std::vector<std::pair<uint64_t, absl::Status>> gone;
  for (const uint64_t cut_id : asked) {
    const absl::Status announced = announced_(cut_id);
    if (!announced.ok()) gone.push_back({cut_id, announced});
  }
  std::vector<std::pair<Waiter, absl::StatusOr<AwaitCheckpointResponse>>> ended;
  {
    MutexLock lock(&mu_);
    for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
      absl::StatusOr<AwaitCheckpointResponse> answer = absl::UnknownError("");
      bool ends = false;
      const bool is_current =
          current_ != nullptr && current_->cut_id == waiter->cut_id;
      const auto lost = std::find_if(
          gone.begin(), gone.end(),
          [&](const auto& one) { return one.first == waiter->cut_id; });
      if (const Result* result = FindResult(waiter->cut_id)) {
        answer = result->written;
        ends = true;
      } else if (lost != gone.end() && !is_current) {
        answer = lost->second;
        ends = true;
      } else if (waiter->deadline <= now) {
        answer = absl::DeadlineExceededError(absl::StrCat(
            shard_.config->label, ": the checkpoint of cut ", waiter->cut_id,
            is_current ? " is still being written"
                       : " waits for the cut to be passed"));
        ends = true;
      }
      if (!ends) {
        ++waiter;
        continue;
      }
      ended.emplace_back(std::move(*waiter), std::move(answer));
      waiter = waiters_.erase(waiter);
    }
    EndAwaiting(now + kAsksAgainWithin);
  }
  for (auto& [waiter, answer] : ended) waiter.done(std::move(answer));
}

void ShardCheckpoints::BeginClose(const absl::Status& why) {
  std::vector<Waiter> waiters;
  {
    MutexLock lock(&mu_);
    if (closed_.ok()) closed_ = why;
    if (current_ != nullptr) GiveUp(current_.get(), why);
    waiters = std::exchange(waiters_, {});
  }
  for (Waiter& waiter : waiters) waiter.done(why);
  disk_.LeaveAt(MonotonicNow() + kCheckpointDiskWaitMax, why);
}

void ShardCheckpoints::Close(const absl::Status& why) {
  BeginClose(why);
  writer_.Stop();
  {
    MutexLock lock(&mu_);
    if (std::exchange(has_ended_, true)) return;
  }
  if (!disk_.is_busy()) return;
  LogWarning("a checkpoint's disk hangs, and is left to itself")
      .Job(shard_.config->job_id)
      .Field("shard", shard_.config->shard)
      .Field("folder", options_.folder);
}

ShardCheckpoints::Counts ShardCheckpoints::counts() const {
  MutexLock lock(&mu_);
  return CountsLocked();
}

ShardCheckpoints::Counts ShardCheckpoints::CountsLocked() const {
  Counts counts = counts_;
  counts.blocks = blocks_.counts();
  return counts;
}

ShardCheckpoints::Counts ShardCheckpoints::TakeNewCounts() {
  MutexLock lock(&mu_);
  const Counts now = CountsLocked();
  const Counts told = std::exchange(told_, now);
  Counts fresh;
  fresh.written = now.written - told.written;
  fresh.failed = now.failed - told.failed;
  fresh.bytes = now.bytes - told.bytes;
  fresh.took = now.took - told.took;
  fresh.blocks.copies = now.blocks.copies - told.blocks.copies;
  fresh.blocks.waits = now.blocks.waits - told.blocks.waits;
  fresh.blocks.waited = now.blocks.waited - told.blocks.waited;
  fresh.table_waits = now.table_waits - told.table_waits;
  return fresh;
}

// --- Commit ------------------------------------------------------------------

void ShardCheckpoints::Commit(std::string manifest, Committed done) {
  // A task that is refused is gone, and with it what it would have called.
  auto shared = std::make_shared<Committed>(std::move(done));
  if (writer_.TrySubmit([this, manifest = std::move(manifest), shared] {
        (*shared)(CommitNow(manifest));
      })) {
    return;
  }
  (*shared)(absl::CancelledError(absl::StrCat(label_, " was closed")));
}

absl::StatusOr<CommitCheckpointResponse> ShardCheckpoints::CommitNow(
    const std::string& encoded) {
  CheckpointCommit commit = {.label = shard_.config->label,
                             .job_id = shard_.config->job_id,
                             .folder = options_.folder,
                             .shards = options_.shards,
                             .start_clock = options_.start_clock,
                             .keep_last = options_.keep_last,
                             .keep_every = options_.keep_every};
  if (!options_.is_shared) {
    commit.own_file = ShardFileName(shard_.config->shard, options_.shards);
  }
  SYNCLINE_ASSIGN_OR_RETURN(
      CommittedCheckpoint committed,
      disk_.Get<CommittedCheckpoint>([commit = std::move(commit), encoded] {
        return CommitCheckpoint(commit, encoded);
      }));
  CommitCheckpointResponse response;
  response.set_path(committed.path);
  for (std::string& path : committed.deleted) {
    response.add_deleted(std::move(path));
  }
  return response;
}

}  // namespace syncline::ps

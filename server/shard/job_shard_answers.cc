// JobShard's part that ends calls: values are read for pulls as long as their
// worker takes its answers, pushes are acknowledged, and calls fail.

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/base/busy.h"
#include "common/base/clock.h"
#include "server/shard/job_shard.h"

namespace syncline::ps {
namespace {

using Kind = ShardAction::Kind;

// Where each of the parts begins; then the end.
std::vector<size_t> StartsOf(absl::Span<const uint32_t> sizes) {
  std::vector<size_t> starts(1, 0);
  for (const uint32_t size : sizes) starts.push_back(starts.back() + size);
  return starts;
}

}  // namespace

// --- Pulls -------------------------------------------------------------------

void JobShard::AllowRead(const ShardAction& action, StepBatch* batch) {
  PendingCall& call = calls_.At(action.token);
  calls_.ReleasePayload(&call);
  call.may_read = true;
  call.taken = nullptr;  // the answer follows
  const WaitingRead read = {
      .token = action.token,
      .clock = action.clock,
      .min_clock = action.min_clock,
      .max_clock = action.max_clock,
      .skipped_through = action.skipped_through,
      .open_clock = action.open_clock,
      .regimes = controller_.RegimesAt(call.rank, action.clock),
      .lost = config_.controller.leases ? nullptr : controller_.lost_workers(),
      .returned = action.returned,
      .checkpoint_cut = passed_.CutAt(call.rank, action.clock),
      .waited = MonotonicNow() - call.arrived};
  if (call.answer.data != nullptr) return StartSharedRead(read, batch);
  AnswerWindow* const window = &windows_[call.rank];
  window->Enqueue(read);
  StartReads(window, batch);
}

void JobShard::StartReads(AnswerWindow* window, StepBatch* batch) {
  while (const std::optional<WaitingRead> read = window->Next()) {
    StartRead(*read, window, batch);
  }
}

PullValues JobShard::MakeResult(const PendingCall& call,
                                const WaitingRead& read) const {
  PullValues result;
  result.blocks = call.pulled;
  result.rows = call.pulled_rows;
  result.min_clock = read.min_clock;
  result.max_clock = read.max_clock;
  result.skipped_through = read.skipped_through;
  result.open_clock = read.open_clock;
  result.regimes = read.regimes;
  result.lost = read.lost;
  result.returned = read.returned;
  result.checkpoint_cut = read.checkpoint_cut;
  result.waited = read.waited;
  result.type = call.pulled_type;
  result.form = call.pulled_form;
  if (result.form == ValueForm::kChange) {
    result.block_bytes = layout_.ChangeBytes(call.pulled);
  }
  result.bytes = AnswerBytes(call);
  return result;
}

ValueForm JobShard::FormOf(const PullFacts& pull) const {
  if (pull.changes) return ValueForm::kChange;
  const bool trains = pull.cut_id == 0 && layout_.SendsChanges(pull.clock);
  return trains ? ValueForm::kSent : ValueForm::kOwn;
}

size_t JobShard::AnswerBytes(const PendingCall& call) const {
  if (call.pulled_form == ValueForm::kChange) {
    return absl::c_accumulate(layout_.ChangeBytes(call.pulled), size_t{0});
  }
  size_t elements = layout_.Offsets(call.pulled).back();
  if (call.pulled_rows != nullptr) {
    for (const RowList& list : call.pulled_rows->lists) {
      elements += list.keys.size() * executor_.tables().dim(list.table);
    }
  }
  return elements * ElementBytes(call.pulled_type);
}

void JobShard::StartSharedRead(const WaitingRead& read, StepBatch* batch) {
  PendingCall call = calls_.Extract(read.token);
  PullValues result = MakeResult(call, read);
  result.area = std::move(call.answer);
  ReadInto(std::move(call), std::move(result), read, batch);
}

void JobShard::StartRead(const WaitingRead& read, AnswerWindow* window,
                         StepBatch* batch) {
  PullValues result = MakeResult(calls_.At(read.token), read);
  if (absl::Status room = budget_->Acquire(result.bytes, &result.hold);
      !room.ok()) {
    return End(read.token, std::move(room), batch);
  }
  PendingCall call = calls_.Extract(read.token);
  if (!result.blocks.empty()) {
    result.buffer = buffers_->Get(result.bytes);
    window->OnStarted(result.bytes);
    result.sent = std::shared_ptr<void>(
        nullptr, [shard = weak_from_this(), rank = call.rank,
                  bytes = result.bytes](void*) {
          if (const auto self = shard.lock()) self->OnSent(rank, bytes);
        });
  }
  ReadInto(std::move(call), std::move(result), read, batch);
}

void JobShard::ReadInto(PendingCall call, PullValues result,
                        const WaitingRead& read, StepBatch* batch) {
  if (result.blocks.empty()) {
    return batch->End(
        [done = std::move(call.done), result = std::move(result)](
            absl::Status status, PullValues) mutable {
          done(std::move(status), std::move(result));
        },
        absl::OkStatus());
  }
  const std::vector<BlockIndex> blocks = result.blocks;
  const std::vector<size_t> offsets =
      result.form == ValueForm::kChange
          ? StartsOf(absl::MakeConstSpan(result.block_bytes))
          : layout_.Offsets(blocks);
  const size_t dense_blocks = offsets.size() - 1;
  std::vector<LanePiece> pieces = CutByLane(result.rows, blocks);
  const auto reading = std::make_shared<PullReading>(
      std::move(call.done), std::move(result), dense_blocks + pieces.size());
  for (size_t i = 0; i < dense_blocks; ++i) {
    batch->Add(lanes_->LaneOf(blocks[i]), {.kind = Kind::kRead,
                                           .block = blocks[i],
                                           .clock = read.clock,
                                           .first = offsets[i],
                                           .reading = reading});
  }
  // Rows may not look expired to a pull that is older than the others. A lease
  // is of a clock to come.
  const int64_t clock =
      std::max({read.clock, read.min_clock,
                config_.controller.leases ? int64_t{0} : read.open_clock});
  for (LanePiece& piece : pieces) {
    LaneStep step;
    step.rows = std::make_unique<RowsStep>();
    step.rows->kind = Kind::kRead;
    step.rows->ranks.push_back(std::move(piece.rows));
    step.rows->clock = clock;
    step.rows->reading = reading;
    batch->Add(piece.lane, std::move(step));
  }
}

std::vector<JobShard::LanePiece> JobShard::CutByLane(
    const std::shared_ptr<CallRows>& rows,
    absl::Span<const BlockIndex> blocks) const {
  std::vector<LanePiece> pieces;
  if (rows == nullptr) return pieces;
  size_t slots = 0;
  for (const RowList& list : rows->lists) slots += list.runs.size();
  for (size_t i = 0; i < slots; ++i) {
    const BlockIndex block = blocks[blocks.size() - slots + i];
    const int lane = slot_lanes_[SlotOf(block)];
    CallRowSpan range = RowsOfSlot(rows, i, 0);
    if (!pieces.empty() && pieces.back().lane == lane &&
        pieces.back().rows.IsFollowedBy(range)) {
      pieces.back().rows.count += range.count;
    } else {
      pieces.push_back({lane, std::move(range)});
    }
  }
  return pieces;
}

void JobShard::OnSent(uint32_t rank, uint64_t bytes) {
  StepBatch batch(lane_count_);
  {
    MutexLock lock(&mu_);
    windows_[rank].OnSent(bytes);
    StartReads(&windows_[rank], &batch);
    SubmitSteps(&batch);
  }
  batch.RunCallbacks();
}

void JobShard::EndWaitingReads(
    absl::FunctionRef<absl::Status(CallToken, const PendingCall&)> ends,
    StepBatch* batch) {
  for (AnswerWindow& window : windows_) {
    for (const WaitingRead& read : window.TakeWaiting()) {
      absl::Status status = ends(read.token, calls_.At(read.token));
      if (status.ok()) {
        window.Enqueue(read);
      } else {
        End(read.token, std::move(status), batch);
      }
    }
  }
}

// --- All calls ---------------------------------------------------------------

void JobShard::End(CallToken token, absl::Status status, StepBatch* batch) {
  batch->End(calls_.Extract(token).done, std::move(status));
}

void JobShard::Acknowledge(CallToken token, bool dropped, StepBatch* batch) {
  batch->AfterSteps([done = calls_.Extract(token).done, dropped]() mutable {
    PullValues nothing;
    nothing.dropped = dropped;
    done(absl::OkStatus(), std::move(nothing));
  });
}

void JobShard::LimitParked(CallToken token, StepBatch* batch) {
  PendingCall* const call = calls_.Find(token);
  if (call == nullptr || call->may_read) return;
  calls_.SetParkedBytes(call, call->BytesHeld());
  if (calls_.parked_bytes() <= budget_->limit_bytes() / 2 ||
      call->parked_bytes == 0) {
    return;
  }
  const std::string refused = absl::StrCat(
      config_.label, ": calls that must wait hold ", calls_.parked_bytes(),
      " bytes, at most half of ", budget_->limit_bytes(), " are allowed");
  ShardActions ignored;
  controller_.OnCancel(token, &ignored);
  End(token, BusyError(refused), batch);
}

}  // namespace syncline::ps

// JobShard's part between the controller and the lanes: actions become steps of
// lanes, and steps are queued.

#include <memory>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "server/shard/job_shard.h"

namespace syncline::ps {
namespace {

using Kind = ShardAction::Kind;

// Work that takes less time than waking a lane's thread, some 20 us.
constexpr size_t kStepsHereMax = 8;
constexpr uint64_t kBytesHereMax = 16 << 10;

// True if the action is for one block, dense or a table's slot.
bool NamesBlock(Kind kind) {
  return kind == Kind::kBufferGradient || kind == Kind::kReduceGradients ||
         kind == Kind::kApply || kind == Kind::kDropGradients ||
         kind == Kind::kDropGradientOf;
}

}  // namespace

// --- From actions to steps ---------------------------------------------------

void JobShard::ApplyActions(const ShardActions& actions, StepBatch* batch) {
  for (const ShardAction& action : actions) ApplyAction(action, batch);
  for (const ShardAction& action : actions) {
    if (action.kind != Kind::kAccept) continue;
    PendingCall* const call = calls_.Find(action.token);
    if (call == nullptr || call->taken == nullptr) continue;
    batch->AfterSteps(std::move(call->taken));
  }
}

void JobShard::ApplyAction(const ShardAction& action, StepBatch* batch) {
  if (NamesBlock(action.kind) && !layout_.is_dense(action.block)) {
    return ApplySlotAction(action, batch);
  }
  switch (action.kind) {
    case Kind::kInit:
    case Kind::kBufferGradient:
      return StoreBlock(action, batch);
    case Kind::kAccept: {
      // The lanes hold the buffered gradients now. The client's window bounds
      // them until the lanes have taken them, the controller afterwards. A
      // repeat must not take the room that it waits for.
      PendingCall& call = calls_.At(action.token);
      calls_.ReleasePayload(&call);
      return calls_.SetParkedBytes(&call, call.BytesHeld());
    }
    case Kind::kReduceGradients:
    case Kind::kComputeLambUpdate:
    case Kind::kApply:
    case Kind::kDropGradients:
      return UseGradients(action, batch);
    case Kind::kDropGradientOf:
      return DropGradientOf(action, batch);
    case Kind::kSendCloses:
      // Without the lock; no lane has to have come to it.
      return batch->End(
          [self = shared_from_this(),
           closes = ConsistencyController::Closes{action.clock, action.ranks}](
              absl::Status, PullValues) mutable {
            self->SendCloses(std::move(closes));
          },
          absl::OkStatus());
    case Kind::kSendNorms:
      // Steps of earlier events count, so all lanes must come to it.
      return batch->AfterAllLanes(
          [self = shared_from_this(),
           round = ReductionRound{action.clock, action.stage}] {
            self->SendNorms(round);
          });
    case Kind::kSnapshot:
      return TakeSnapshot(action, batch);
    case Kind::kRead:
      return AllowRead(action, batch);
    case Kind::kAck:
      return Acknowledge(action.token, action.dropped, batch);
    case Kind::kFail:
      return End(action.token, action.status, batch);
  }
}

void JobShard::TakeSnapshot(const ShardAction& action, StepBatch* batch) {
  if (snapshots_ == nullptr) return;
  // Calls that the cut holds back have changed nothing yet.
  const absl::StatusOr<ControllerState> state =
      controller_.Export(action.cut_id);
  if (!state.ok()) return;  // the shard was closed
  if (action.cut_use == CutUse::kCheckpoint) {
    passed_ = {.cut_id = action.cut_id, .clocks = action.cut_clocks};
  }
  snapshots_->OnCutPassed(action.cut_id, action.cut_use, action.cut_clocks,
                          *state, total_clocks_.value_or(0));
  batch->VisitLanes([taker = snapshots_, cut_id = action.cut_id,
                     clocks = action.cut_clocks](int lane) {
    taker->OnSnapshot(cut_id, clocks, lane);
  });
  batch->AfterAllLanes([taker = snapshots_, cut_id = action.cut_id] {
    taker->OnSnapshotDone(cut_id);
  });
}

void JobShard::StoreBlock(const ShardAction& action, StepBatch* batch) {
  const PendingCall& call = calls_.At(action.token);
  batch->Add(lanes_->LaneOf(action.block),
             {.kind = action.kind,
              .block = action.block,
              .rank = action.rank,
              .clock = action.clock,
              .sample_count = action.sample_count,
              .first = call.offsets[action.position],
              .source = call.payload.values});
  if (action.kind == Kind::kInit) return;
  // The gradient stays in the type in which it came.
  const uint64_t bytes =
      layout_.counts()[action.block] * WireBytesAt(action.clock);
  buffered_bytes_[action.block] += bytes;
  gradient_bytes_ += bytes;
}

void JobShard::UseGradients(const ShardAction& action, StepBatch* batch) {
  batch->Add(lanes_->LaneOf(action.block),
             {.kind = action.kind,
              .block = action.block,
              .clock = action.clock,
              .sample_count = action.sample_count,
              .squared_norm = action.squared_norm,
              .trust_ratio = TrustRatio(action.block)});
  gradient_bytes_ -= buffered_bytes_[action.block];
  // A reduced gradient takes memory of its own until it is applied.
  buffered_bytes_[action.block] =
      action.kind == Kind::kReduceGradients
          ? layout_.counts()[action.block] * sizeof(float)
          : 0;
  gradient_bytes_ += buffered_bytes_[action.block];
}

void JobShard::DropGradientOf(const ShardAction& action, StepBatch* batch) {
  batch->Add(lanes_->LaneOf(action.block), {.kind = action.kind,
                                            .block = action.block,
                                            .rank = action.rank,
                                            .clock = action.clock});
  const uint64_t bytes =
      layout_.counts()[action.block] * WireBytesAt(action.clock);
  buffered_bytes_[action.block] -= bytes;
  gradient_bytes_ -= bytes;
}

void JobShard::ApplySlotAction(const ShardAction& action, StepBatch* batch) {
  const size_t slot = SlotOf(action.block);
  if (action.kind == Kind::kBufferGradient) {
    PendingCall& call = calls_.At(action.token);
    const std::shared_ptr<CallRows>& rows = call.payload.pushed;
    const size_t dense_blocks = call.offsets.size() - 1;
    // In SYNC the rows wait for other workers, which must find room: neither
    // rows nor keys count in the budget. In the other modes the rows count
    // until their lane has applied them.
    if (layout_.regimes().At(action.clock).sync()) {
      rows->hold = InFlightBudget::Hold();
    } else if (rows->payload_hold.bytes() == 0) {
      rows->payload_hold = std::move(call.payload.hold);
    }
    CallRowSpan range =
        RowsOfSlot(rows, action.position - dense_blocks, action.rank);
    gradient_bytes_ += RowBytes(range, action.clock);
    return slots_.Buffer(slot, std::move(range));
  }
  if (action.kind == Kind::kReduceGradients) {
    return batch->AddRows(slot_lanes_[slot], action, slots_.Of(slot));
  }
  if (action.kind == Kind::kDropGradientOf) {
    for (const CallRowSpan& range : slots_.TakeOf(slot, action.rank)) {
      gradient_bytes_ -= RowBytes(range, action.clock);
    }
    return;
  }
  std::vector<CallRowSpan> ranks = slots_.Take(slot);
  for (const CallRowSpan& range : ranks) {
    gradient_bytes_ -= RowBytes(range, action.clock);
  }
  if (action.kind == Kind::kDropGradients) return;
  batch->AddRows(slot_lanes_[slot], action, std::move(ranks));
}

size_t JobShard::WireBytesAt(int64_t clock) const {
  return ElementBytes(layout_.regimes().At(clock).wire_type);
}

uint64_t JobShard::RowBytes(const CallRowSpan& range, int64_t clock) const {
  const size_t row =
      executor_.tables().dim(range.list->table) * WireBytesAt(clock);
  return range.count * (sizeof(int64_t) + row);
}

double JobShard::TrustRatio(BlockIndex block) const {
  const uint32_t tensor = layout_.map().blocks()[layout_.ids()[block]].tensor;
  return tensor < trust_ratios_.size() ? trust_ratios_[tensor] : 1;
}

// --- From steps to lanes -----------------------------------------------------

void JobShard::SubmitSteps(StepBatch* batch) {
  for (int lane = 0; lane < lane_count_; ++lane) {
    if (batch->empty(lane)) continue;
    lanes_->Submit(lane, RunLater(lane, batch));
  }
}

std::vector<int> JobShard::SubmitFewSteps(StepBatch* batch) {
  std::vector<int> here;
  if (!AreFew(*batch)) {
    SubmitSteps(batch);
    return here;
  }
  for (int lane = 0; lane < lane_count_; ++lane) {
    if (batch->empty(lane)) continue;
    if (lanes_->SubmitHere(lane, RunLater(lane, batch))) here.push_back(lane);
  }
  return here;
}

bool JobShard::AreFew(const StepBatch& batch) const {
  uint64_t bytes = 0;
  for (const std::vector<LaneStep>& steps : batch.lanes()) {
    if (steps.size() > kStepsHereMax) return false;
    for (const LaneStep& step : steps) {
      if (step.countdown != nullptr) continue;
      if (step.visit != nullptr) return false;
      if (step.rows == nullptr) {
        bytes += layout_.counts()[step.block] * sizeof(float);
        continue;
      }
      // A gRPC thread must not wait for a disk.
      if (executor_.tables().spills()) return false;
      for (const CallRowSpan& range : step.rows->ranks)
        bytes += RowBytes(range, step.rows->clock);
    }
  }
  return bytes <= kBytesHereMax;
}

Lanes::Task JobShard::RunLater(int lane, StepBatch* batch) {
  return [self = shared_from_this(), lane, steps = batch->TakeSteps(lane)](
             DenseUpdater::Scratch* scratch) mutable {
    self->executor_.Run(lane, steps, scratch);
  };
}

}  // namespace syncline::ps

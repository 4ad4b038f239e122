#include "server/consistency/sync_clock.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace syncline::ps {
namespace {

using Kind = ShardAction::Kind;

}  // namespace

SyncClock::SyncClock(const ConsistencyOptions& options)
    : needs_gradient_norm_(options.NeedsGradientNorm()),
      trust_ratio_(options.trust_ratio),
      skip_non_finite_(options.skip_non_finite),
      dense_blocks_(options.dense_block_count()),
      blocks_(options.block_count),
      expecting_(options.block_count),
      delivered_(options.block_count),
      versions_(options.block_count, 0),
      left_out_pushes_(options.workers.size()) {}

void SyncClock::StartAt(int64_t clock) {
  clock_ = clock;
  versions_.assign(versions_.size(), clock_);
}

void SyncClock::Begin(uint32_t active_workers) {
  active_ = active_workers;
  open_ = active_;
  samples_ = 0;
  skipped_ = false;
  left_out_.clear();
  reduction_trouble_.clear();
  std::fill(expecting_.begin(), expecting_.end(), active_);
  delivered_.assign(delivered_.size(), false);
}

void SyncClock::Import(int64_t clock, uint64_t skipped_clocks,
                       int64_t skipped_through,
                       std::vector<uint64_t> left_out_pushes) {
  clock_ = clock;
  versions_.assign(versions_.size(), clock);
  skipped_clocks_ = skipped_clocks;
  skipped_through_ = skipped_through;
  left_out_pushes_ = std::move(left_out_pushes);
}

void SyncClock::OnStarted(uint32_t rank, const PushFacts& push) {
  samples_ += push.sample_count;
  skipped_ |= skip_non_finite_ && push.non_finite;
  if (push.non_finite) left_out_.push_back(rank);
}

void SyncClock::OnGradient(BlockIndex block, ShardActions* out) {
  delivered_[block] = true;
  if (--expecting_[block] == 0) ResolveBlock(block, out);
}

bool SyncClock::OnClosed(const PushLedger& worker, ShardActions* out) {
  // No block waits any longer for a gradient that the worker did not send.
  for (BlockIndex block = 0; block < blocks_; ++block) {
    if (worker.received_in(block, clock_)) continue;
    if (--expecting_[block] == 0) ResolveBlock(block, out);
  }
  return --open_ == 0 && Finish(out);
}

// Every active worker has delivered the block or closed the clock without it,
// so all have started the clock and the sample count is complete.
void SyncClock::ResolveBlock(BlockIndex block, ShardActions* out) {
  // A worker that has nothing to deliver has said so by now.
  const bool waits = WaitsForReduction(block) && !skipped_;
  if (delivered_[block]) {
    Kind next = Kind::kApply;
    if (skipped_) {
      next = Kind::kDropGradients;
    } else if (waits) {
      next = needs_gradient_norm_ ? Kind::kReduceGradients
                                  : Kind::kComputeLambUpdate;
    }
    out->push_back({.kind = next,
                    .block = block,
                    .clock = clock_,
                    .sample_count = samples_});
  }
  if (!waits) versions_[block] = clock_ + 1;
}

// A row's step takes no other tensor's norm than the gradient's.
bool SyncClock::WaitsForReduction(BlockIndex block) const {
  return needs_gradient_norm_ || (trust_ratio_ && block < dense_blocks_);
}

bool SyncClock::Finish(ShardActions* out) {
  const bool is_empty = samples_ == 0 && !left_out_.empty();
  if (skipped_ || is_empty) {
    ++skipped_clocks_;
    skipped_through_ = clock_ + 1;
  } else {
    for (const uint32_t rank : left_out_) ++left_out_pushes_[rank];
  }
  if (!skipped_ && WaitsForReduction(0) && samples_ > 0) {
    StartReduction(needs_gradient_norm_ ? ReductionStage::kGradient
                                        : ReductionStage::kTrust,
                   out);
    return false;
  }
  End();
  return true;
}

void SyncClock::End() {
  reducing_.reset();
  ++clock_;
  versions_.assign(versions_.size(), clock_);
}

void SyncClock::StartReduction(ReductionStage stage, ShardActions* out) {
  reducing_ = stage;
  out->push_back({.kind = Kind::kSendNorms,
                  .clock = clock_,
                  .stage = stage,
                  .sample_count = samples_});
}

bool SyncClock::OnReduced(const ReductionRound& round, double squared_norm,
                          ShardActions* out) {
  if (round.stage == ReductionStage::kTrust) {
    ForDelivered(Kind::kApply, 0, dense_blocks_, squared_norm, out);
  } else if (skip_non_finite_ && !std::isfinite(squared_norm)) {
    ForDelivered(Kind::kDropGradients, 0, blocks_, squared_norm, out);
    ++skipped_clocks_;
    skipped_through_ = clock_ + 1;
  } else if (trust_ratio_ && dense_blocks_ > 0) {
    ForDelivered(Kind::kApply, dense_blocks_, blocks_, squared_norm, out);
    ForDelivered(Kind::kComputeLambUpdate, 0, dense_blocks_, squared_norm, out);
    StartReduction(ReductionStage::kTrust, out);
    return false;
  } else {
    ForDelivered(Kind::kApply, 0, blocks_, squared_norm, out);
  }
  End();
  return true;
}

void SyncClock::OnReductionDelayed(const ReductionRound& round,
                                   const absl::Status& why) {
  if (!IsReducing(round)) return;
  reduction_trouble_ = absl::StrCat(" (", why.message(), ")");
}

std::string SyncClock::ReductionText() const {
  const char* what = reducing_ == ReductionStage::kGradient
                         ? "the global norm of clock "
                         : "the norms of all tensors of clock ";
  return absl::StrCat(what, clock_, reduction_trouble_);
}

void SyncClock::ForDelivered(ShardAction::Kind kind, BlockIndex begin,
                             BlockIndex end, double squared_norm,
                             ShardActions* out) const {
  for (BlockIndex block = begin; block < end; ++block) {
    if (!delivered_[block]) continue;
    out->push_back({.kind = kind,
                    .block = block,
                    .clock = clock_,
                    .sample_count = samples_,
                    .squared_norm = squared_norm});
  }
}

}  // namespace syncline::ps

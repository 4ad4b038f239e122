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

void SyncClock::Begin(uint32_t active_workers, bool awaits_set) {
  active_ = active_workers;
  awaits_set_ = awaits_set && active_ > 0;
  set_trouble_.clear();
  parts_.assign(left_out_pushes_.size(), Part());
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
  if (awaits_set_) {
    parts_[rank].samples = push.sample_count;
    parts_[rank].non_finite = push.non_finite;
    return;
  }
  TakePart(rank, push.sample_count, push.non_finite);
}

void SyncClock::TakePart(uint32_t rank, uint64_t samples, bool non_finite) {
  samples_ += samples;
  skipped_ |= skip_non_finite_ && non_finite;
  if (non_finite) left_out_.push_back(rank);
}

void SyncClock::OnGradient(BlockIndex block, ShardActions* out) {
  if (awaits_set_) return;
  delivered_[block] = true;
  if (--expecting_[block] == 0) ResolveBlock(block, out);
}

std::vector<uint32_t> SyncClock::ClosedRanks() const {
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < parts_.size(); ++rank) {
    if (parts_[rank].closed) ranks.push_back(rank);
  }
  return ranks;
}

bool SyncClock::OnFixed(absl::Span<const PushLedger> workers,
                        const std::vector<bool>& set, ShardActions* out) {
  awaits_set_ = false;
  for (uint32_t rank = 0; rank < set.size(); ++rank) {
    if (!set[rank]) continue;
    TakePart(rank, parts_[rank].samples, parts_[rank].non_finite);
  }
  for (BlockIndex block = 0; block < blocks_; ++block) {
    for (uint32_t rank = 0; rank < set.size(); ++rank) {
      if (!workers[rank].received_in(block, clock_)) continue;
      if (set[rank]) {
        delivered_[block] = true;
        continue;
      }
      out->push_back({.kind = Kind::kDropGradientOf,
                      .block = block,
                      .rank = rank,
                      .clock = clock_});
    }
    ResolveBlock(block, out);
  }
  open_ = 0;
  return Finish(out);
}

void SyncClock::OnSetDelayed(int64_t clock, const absl::Status& why) {
  if (clock == clock_ && awaits_set_) set_trouble_ = std::string(why.message());
}

bool SyncClock::OnClosed(uint32_t rank, const PushLedger& worker,
                         ShardActions* out) {
  if (awaits_set_) {
    parts_[rank].closed = true;
    --open_;
    return false;
  }
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

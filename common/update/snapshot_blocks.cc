#include "common/update/snapshot_blocks.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"

namespace syncline {

SnapshotBlocks::SnapshotBlocks(const Options& options,
                               const DenseUpdater* dense, CopyReserve reserve)
    : options_(options),
      dense_(dense),
      blocks_(options.blocks.value_or(dense->block_count())),
      state_(std::make_unique<std::atomic<uint8_t>[]>(dense->block_count())),
      reserve_(std::move(reserve)),
      why_(absl::FailedPreconditionError("no snapshot is taken")) {
  size_t largest = 0;
  for (uint32_t block = 0; block < dense->block_count(); ++block) {
    largest = std::max(largest, floats_of(block));
    Set(block, kIdle);
  }
  staging_ = AlignedFloats(largest);
}

absl::Status SnapshotBlocks::MakeResident(const GoOnCheck& go_on) {
  MutexLock lock(&mu_);
  return reserve_.MakeResident(go_on);
}

size_t SnapshotBlocks::floats_of(uint32_t block) const {
  return dense_->values(block).size() * dense_->arrays();
}

void SnapshotBlocks::Copy(uint32_t block, float* out) const {
  for (int array = 0; array < dense_->arrays(); ++array) {
    const absl::Span<const float> from = dense_->array(block, array);
    std::memcpy(out, from.data(), from.size() * sizeof(float));
    out += from.size();
  }
}

// --- The snapshot ------------------------------------------------------------

uint64_t SnapshotBlocks::Begin() {
  MutexLock lock(&mu_);
  AbortLocked(absl::CancelledError("another snapshot has begun"));
  why_ = absl::OkStatus();
  given_ = 0;
  return ++generation_;
}

void SnapshotBlocks::Abort(const absl::Status& why) {
  MutexLock lock(&mu_);
  if (why_.ok()) AbortLocked(why);
}

void SnapshotBlocks::AbortLocked(const absl::Status& why) {
  why_ = why;
  for (uint32_t block = 0; block < dense_->block_count(); ++block) {
    // A block in kTaking is set to kIdle by the thread that copies it.
    if (Get(block) != kTaking) Set(block, kIdle);
  }
  for (const Taken& copy : copied_) reserve_.Free(copy.place);
  copied_.clear();
  pending_.clear();
  urgent_.clear();
  changed_.SignalAll();
}

// --- Lanes -------------------------------------------------------------------

void SnapshotBlocks::Mark(absl::Span<const uint32_t> blocks) {
  MutexLock lock(&mu_);
  if (!why_.ok()) return;
  for (const uint32_t block : blocks) {
    // The writer of a snapshot that was given up may still read it.
    while (Get(block) == kTaking) {
      changed_.WaitUntil(&mu_, MonotonicNow() + absl::Seconds(1));
    }
    if (!why_.ok()) return;
    Set(block, kPending);
    pending_.push_back(block);
  }
  changed_.SignalAll();
}

float* SnapshotBlocks::AwaitPlace(uint32_t block) {
  absl::Time began = absl::InfiniteFuture();
  float* place = nullptr;
  while (true) {
    const State state = Get(block);
    if (state == kPending) place = TakePlace(block);
    if (place != nullptr || (state != kPending && state != kTaking)) break;
    const absl::Time now = MonotonicNow();
    if (began == absl::InfiniteFuture()) {
      began = now;
      ++counts_.waits;
      if (state == kPending) urgent_.push_back(block);
      changed_.SignalAll();
    }
    if (state == kPending && now >= began + options_.wait_max) {
      AbortLocked(absl::UnavailableError(absl::StrCat(
          options_.label, ": a push has waited for the checkpoint's disk for ",
          absl::FormatDuration(options_.wait_max),
          "; with a larger checkpoint.copy_bytes it would not wait")));
      break;
    }
    changed_.WaitUntil(
        &mu_, std::min(now + absl::Seconds(1), began + options_.wait_max));
  }
  if (began != absl::InfiniteFuture()) {
    counts_.waited += MonotonicNow() - began;
  }
  return place;
}

float* SnapshotBlocks::TakePlace(uint32_t block) {
  float* const place = reserve_.Take(block);
  // Of a snapshot that was given up: its writer still reads the place.
  return place == writer_place_ ? nullptr : place;
}

void SnapshotBlocks::Save(uint32_t block) {
  float* place = nullptr;
  uint64_t generation = 0;
  {
    MutexLock lock(&mu_);
    place = AwaitPlace(block);
    if (place == nullptr) return;
    Set(block, kTaking);
    generation = generation_;
  }
  Copy(block, place);
  MutexLock lock(&mu_);
  if (generation != generation_ || !why_.ok()) {
    reserve_.Free(place);
    Set(block, kIdle);
  } else {
    ++counts_.copies;
    copied_.push_back({block, dense_->updates(block), place, place});
    Set(block, kCopied);
  }
  changed_.SignalAll();
}

// --- The writer --------------------------------------------------------------

std::optional<uint32_t> SnapshotBlocks::PopPending() {
  // Copies wait in memory that lanes may want, so they go before other blocks,
  // but not before one for which a lane waits.
  for (std::deque<uint32_t>* const queue : {&urgent_, &pending_}) {
    if (queue == &pending_ && !copied_.empty()) return std::nullopt;
    while (!queue->empty()) {
      const uint32_t block = queue->front();
      queue->pop_front();
      if (Get(block) == kPending) return block;
    }
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<SnapshotBlocks::Taken>> SnapshotBlocks::Next(
    uint64_t snapshot, absl::Time deadline) {
  const auto check = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (snapshot == generation_) return why_;
    return absl::CancelledError("another snapshot has begun");
  };
  uint32_t block = 0;
  {
    MutexLock lock(&mu_);
    while (true) {
      SYNCLINE_RETURN_IF_ERROR(check());
      if (given_ == blocks_) return std::optional<Taken>();
      if (const std::optional<uint32_t> pending = PopPending()) {
        block = *pending;
        break;
      }
      if (!copied_.empty()) {
        const Taken taken = copied_.front();
        copied_.pop_front();
        writer_place_ = taken.place;
        ++given_;
        return std::optional<Taken>(taken);
      }
      if (MonotonicNow() >= deadline) {
        return absl::DeadlineExceededError(
            absl::StrCat(options_.label, ": ", blocks_ - given_,
                         " blocks have not come to the cut"));
      }
      changed_.WaitUntil(&mu_, deadline);
    }
    Set(block, kTaking);
  }
  Copy(block, staging_.data());
  const Taken taken{block, dense_->updates(block), staging_.data(), nullptr};
  MutexLock lock(&mu_);
  Set(block, kIdle);
  changed_.SignalAll();
  SYNCLINE_RETURN_IF_ERROR(check());
  ++given_;
  return std::optional<Taken>(taken);
}

void SnapshotBlocks::Done(const Taken& taken) {
  if (taken.place == nullptr) return;
  MutexLock lock(&mu_);
  writer_place_ = nullptr;
  reserve_.Free(taken.place);
  changed_.SignalAll();
}

SnapshotBlocks::Counts SnapshotBlocks::counts() const {
  MutexLock lock(&mu_);
  return counts_;
}

}  // namespace syncline

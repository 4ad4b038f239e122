#include "worker/collectives/shared_ring.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace syncline::worker {

struct SharedRing::Words {
  alignas(64) std::atomic<uint64_t> produced;
  alignas(64) std::atomic<uint64_t> consumed;
  alignas(64) std::atomic<uint32_t> asleep;
};

SharedRing::SharedRing(uint8_t* own, const uint8_t* other, size_t capacity)
    : own_(reinterpret_cast<Words*>(own)),
      other_(reinterpret_cast<const Words*>(other)),
      own_ring_(own + kHeaderBytes),
      other_ring_(other + kHeaderBytes),
      capacity_(capacity) {
  static_assert(sizeof(Words) <= kHeaderBytes);
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
  SYNCLINE_CHECK(capacity >= 64 && (capacity & (capacity - 1)) == 0);
}

absl::StatusOr<size_t> SharedRing::Room() {
  if (put_ - other_consumed_ == capacity_) {
    const uint64_t said = other_->consumed.load(std::memory_order_seq_cst);
    if (said - other_consumed_ > produced_ - other_consumed_) {
      return absl::DataLossError(absl::StrCat("it says that it has read byte ",
                                              said, " of ", produced_));
    }
    other_consumed_ = said;
  }
  return capacity_ - static_cast<size_t>(put_ - other_consumed_);
}

void SharedRing::Put(absl::Span<const uint8_t> bytes) {
  const size_t at = static_cast<size_t>(put_ & (capacity_ - 1));
  const size_t first = std::min(bytes.size(), capacity_ - at);
  std::memcpy(own_ring_ + at, bytes.data(), first);
  if (first < bytes.size()) {
    std::memcpy(own_ring_, bytes.data() + first, bytes.size() - first);
  }
  put_ += bytes.size();
}

void SharedRing::Publish() {
  if (put_ == produced_) return;
  produced_ = put_;
  published_ = true;
  own_->produced.store(produced_, std::memory_order_seq_cst);
}

absl::StatusOr<absl::Span<const uint8_t>> SharedRing::Readable() {
  const uint64_t said = other_->produced.load(std::memory_order_seq_cst);
  if (said - consumed_ > capacity_ ||
      said - consumed_ < other_produced_ - consumed_) {
    return absl::DataLossError(absl::StrCat("it says that it has written byte ",
                                            said, " where byte ", consumed_,
                                            " is read"));
  }
  other_produced_ = said;
  const size_t at = static_cast<size_t>(consumed_ & (capacity_ - 1));
  const size_t bytes =
      static_cast<size_t>(std::min<uint64_t>(said - consumed_, capacity_ - at));
  return absl::Span<const uint8_t>(other_ring_ + at, bytes);
}

void SharedRing::Consume(size_t bytes) {
  consumed_ += bytes;
  took_ = true;
  own_->consumed.store(consumed_, std::memory_order_seq_cst);
}

void SharedRing::Sleep(bool for_room) {
  ++sleeps_;
  own_->asleep.store((sleeps_ << 2) | (for_room ? 2 : 0) | 1,
                     std::memory_order_seq_cst);
}

void SharedRing::WakeUp() { own_->asleep.store(0, std::memory_order_seq_cst); }

bool SharedRing::MustRing() {
  if (!published_ && !took_) return false;
  const uint32_t word = other_->asleep.load(std::memory_order_seq_cst);
  const bool waits = (word & 1) != 0 && (published_ || (word & 2) != 0);
  if (!waits) {
    // It looks at the counters before its next sleep.
    published_ = took_ = false;
    return false;
  }
  published_ = took_ = false;
  if (word == rung_) return false;
  rung_ = word;
  return true;
}

}  // namespace syncline::worker

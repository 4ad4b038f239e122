#ifndef SYNCLINE_SERVER_MEMORY_IN_FLIGHT_BUDGET_H_
#define SYNCLINE_SERVER_MEMORY_IN_FLIGHT_BUDGET_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/busy.h"

namespace syncline::ps {

// Bounds the bytes of requests and responses that a ps holds. Thread-safe.
// Owned by shared pointers, because gRPC may free a response after everything
// else is gone.
class InFlightBudget : public std::enable_shared_from_this<InFlightBudget> {
 public:
  explicit InFlightBudget(uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // Holds bytes until it dies. Move-only.
  class Hold {
   public:
    Hold() = default;
    Hold(Hold&& other) noexcept { *this = std::move(other); }
    Hold& operator=(Hold&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Hold() {
      if (budget_ != nullptr) budget_->used_bytes_ -= bytes_;
    }
    uint64_t bytes() const { return bytes_; }

   private:
    friend class InFlightBudget;
    std::shared_ptr<InFlightBudget> budget_;
    uint64_t bytes_ = 0;
  };

  // Errors: BusyError: they do not fit; nothing is held then.
  absl::Status Acquire(uint64_t bytes, Hold* hold) {
    const uint64_t before = used_bytes_.fetch_add(bytes);
    if (before + bytes > limit_bytes_) {
      used_bytes_ -= bytes;
      return BusyError(absl::StrCat(before, " of ", limit_bytes_,
                                    " bytes are in flight, no room for ", bytes,
                                    " more"));
    }
    Hold held;
    held.budget_ = shared_from_this();
    held.bytes_ = bytes;
    *hold = std::move(held);
    return absl::OkStatus();
  }

  uint64_t used_bytes() const { return used_bytes_; }
  uint64_t limit_bytes() const { return limit_bytes_; }

 private:
  const uint64_t limit_bytes_;
  std::atomic<uint64_t> used_bytes_{0};
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_MEMORY_IN_FLIGHT_BUDGET_H_

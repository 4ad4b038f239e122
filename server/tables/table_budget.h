#ifndef SYNCLINE_SERVER_TABLES_TABLE_BUDGET_H_
#define SYNCLINE_SERVER_TABLES_TABLE_BUDGET_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"

namespace syncline::ps {

// Divides the bytes that a ps may use for embedding tables, in memory and on
// disk, among the tables of its jobs. Thread-safe. Owned by shared pointers:
// tables go when the last call that uses them has ended.
class TableBudget : public std::enable_shared_from_this<TableBudget> {
 public:
  struct Share {
    uint64_t memory_bytes = 0;
    uint64_t disk_bytes = 0;
  };

  // Memory and disk that are reserved for a job's tables, until this object is
  // destroyed. Move-only.
  class Reservation {
   public:
    Reservation() = default;
    Reservation(Reservation&& other) noexcept { *this = std::move(other); }
    Reservation& operator=(Reservation&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(shares_, other.shares_);
      return *this;
    }
    ~Reservation() {
      if (budget_ != nullptr) budget_->Release(shares_);
    }
    // In the tables' order.
    const std::vector<Share>& shares() const { return shares_; }

   private:
    friend class TableBudget;
    std::shared_ptr<TableBudget> budget_;
    std::vector<Share> shares_;
  };

  TableBudget(uint64_t memory_bytes, uint64_t disk_bytes)
      : limit_{memory_bytes, disk_bytes} {}

  // Sets bytes aside for a job's tables, in their order, for one of `parts`
  // shards of the job: the others are to come and to ask for as much. A table
  // that asks for bytes gets them. Tables that ask for 0 then share equally
  // what all parts leave. A share of disk below kLeastBytes becomes none; one
  // of memory is an error. Errors: ResourceExhausted: there is not enough for
  // all parts; nothing is set aside.
  absl::StatusOr<Reservation> Reserve(absl::Span<const Share> asked,
                                      uint32_t parts = 1)
      ABSL_LOCKS_EXCLUDED(mu_);

  Share limit() const { return limit_; }

  static constexpr uint64_t kLeastBytes = 1 << 20;

 private:
  void Release(absl::Span<const Share> shares) ABSL_LOCKS_EXCLUDED(mu_);

  const Share limit_;
  Mutex mu_;
  Share reserved_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_TABLES_TABLE_BUDGET_H_

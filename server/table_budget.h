#ifndef SYNCLINE_SERVER_TABLE_BUDGET_H_
#define SYNCLINE_SERVER_TABLE_BUDGET_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"

namespace syncline {

// Divides the bytes that a ps may use for embedding tables, in memory and on
// disk, among the tables of its jobs. Thread-safe.
class TableBudget {
 public:
  struct Share {
    uint64_t memory_bytes = 0;
    uint64_t disk_bytes = 0;
  };

  TableBudget(uint64_t memory_bytes, uint64_t disk_bytes)
      : limit_{memory_bytes, disk_bytes} {}

  // Sets bytes aside for a job's tables, in their order. What a table asks for
  // it gets; those that leave it open, with 0, share what is then left equally.
  // Less than kLeastBytes of disk is none; of memory it is not enough.
  // Errors: ResourceExhausted: that is not to be had; nothing is set aside.
  absl::StatusOr<std::vector<Share>> Reserve(const std::string& job_id,
                                             absl::Span<const Share> asked)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Release(const std::string& job_id) ABSL_LOCKS_EXCLUDED(mu_);

  Share limit() const { return limit_; }

  static constexpr uint64_t kLeastBytes = 1 << 20;

 private:
  const Share limit_;
  Mutex mu_;
  std::map<std::string, Share> reserved_ ABSL_GUARDED_BY(mu_);  // by job
};

}  // namespace syncline

#endif  // SYNCLINE_SERVER_TABLE_BUDGET_H_

#ifndef SYNCLINE_SERVER_CONSISTENCY_LEASED_CLOCKS_H_
#define SYNCLINE_SERVER_CONSISTENCY_LEASED_CLOCKS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/consistency/shard_call.h"

namespace syncline::ps {

// Deals the clocks of an attempt with leased data to its workers, on shard 0
// (common/job/lease_rules.h). A worker has two leases at a time, the clock that
// it makes and the one that it makes next. When it begins to push the first it
// gets another one, the smallest that nobody has. So each clock is one
// worker's, each worker's ascend, and who is faster gets more of them.
//
// Pure; thread-compatible.
class LeasedClocks {
 public:
  explicit LeasedClocks(uint32_t workers) : leases_(workers) {}

  // The attempt has the clocks from `start` to the one before `total`.
  void Begin(int64_t start, int64_t total);

  // OK if a push that closes all clocks below `next_clock` is of the clock that
  // the worker makes. `name` is the worker's. Errors: InvalidArgument: it is of
  // another one, or skips clocks that are not leased to others.
  absl::Status Check(uint32_t rank, absl::string_view name,
                     const PushFacts& push) const;
  // The worker has begun to push the clock that it makes: the next one takes
  // its place.
  void Deal(uint32_t rank);
  // The worker is lost, and of its leases those of `clocks`, ascending, are
  // still made, in its place; it gets no others.
  void Return(uint32_t rank, absl::Span<const int64_t> clocks);
  // The clocks that are leased to the worker and that it has not begun to push,
  // ascending, at most two.
  std::vector<int64_t> Of(uint32_t rank) const;
  // The worker's second lease. The job's number of clocks: it has none.
  int64_t Next(uint32_t rank) const { return leases_[rank].next; }

 private:
  struct Leases {
    int64_t current = 0;
    int64_t next = 0;
    bool is_lost = false;
  };
  int64_t total_ = 0;
  int64_t free_ = 0;  // the smallest that nobody has
  std::vector<Leases> leases_;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_CONSISTENCY_LEASED_CLOCKS_H_

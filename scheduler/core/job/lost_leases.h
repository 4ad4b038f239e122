#ifndef SYNCLINE_SCHEDULER_CORE_JOB_LOST_LEASES_H_
#define SYNCLINE_SCHEDULER_CORE_JOB_LOST_LEASES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/scheduler.pb.h"

namespace syncline::scheduler {

// LostLeases decides what becomes of the clocks that were leased to a worker
// which a job with leased data has lost and goes on without. A clock of which
// no shard has anything returns: the chief makes it. A clock of which a part
// has come is torn: that part counts, and the rest is lost. Pure,
// thread-compatible.
class LostLeases {
 public:
  struct Settled {
    std::vector<int64_t> returned;  // ascending
    std::optional<int64_t> torn;
  };

  // Takes the answer of the ps of this rank, of `ps_count`. The result is there
  // once all have answered, and is the same whatever comes later.
  const std::optional<Settled>& OnTakenOut(uint32_t ps_rank,
                                           const WorkerTakenOut& answer,
                                           size_t ps_count);
  const std::optional<Settled>& settled() const { return settled_; }

 private:
  std::map<uint32_t, WorkerTakenOut> answers_;  // by rank of the ps
  std::optional<Settled> settled_;
};

// In words: "its clocks 57 and 61, which no ps had anything of, are made by
// chief:0". `chief`: its name.
std::string DescribeLeases(const LostLeases::Settled& settled,
                           absl::string_view chief);

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_JOB_LOST_LEASES_H_

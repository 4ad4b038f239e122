#ifndef SYNCLINE_SCHEDULER_CORE_JOB_CHECKPOINT_REQUESTS_H_
#define SYNCLINE_SCHEDULER_CORE_JOB_CHECKPOINT_REQUESTS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace syncline::scheduler {

// The checkpoints that a running job was asked for and has not answered for
// yet. Pure, thread-compatible.
//
// A checkpoint answers a request if its clock is not before the clock that the
// job was known to have reached when the request came, and it is not the one
// that was known then. So one whose cut was announced a moment before the
// request may answer it.
class CheckpointRequests {
 public:
  // Requests of one job at a time; more are refused.
  static constexpr size_t kMax = 32;

  // `request`: a number that no other request has. `clock`: of the slowest
  // worker, as far as is known. `known`: the path of the job's last checkpoint,
  // or empty. REQUIRES: size() < kMax.
  void Add(uint64_t request, int64_t clock, std::string known,
           absl::Time deadline) {
    open_.push_back({request, clock, std::move(known), deadline});
  }
  // Those that the whole checkpoint `path` of `clock` answers; they are open no
  // more.
  std::vector<uint64_t> TakeReached(int64_t clock, absl::string_view path);
  std::vector<uint64_t> TakeOverdue(absl::Time now);
  std::vector<uint64_t> TakeAll();

  bool Contains(uint64_t request) const;
  size_t size() const { return open_.size(); }
  bool empty() const { return open_.empty(); }

 private:
  struct Open {
    uint64_t request = 0;
    int64_t clock = 0;
    std::string known;
    absl::Time deadline;
  };
  template <typename Predicate>
  std::vector<uint64_t> TakeIf(Predicate predicate);

  std::vector<Open> open_;  // the oldest first
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_JOB_CHECKPOINT_REQUESTS_H_

#ifndef SYNCLINE_SCHEDULER_PROGRESS_WATCHDOG_H_
#define SYNCLINE_SCHEDULER_PROGRESS_WATCHDOG_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "proto/cluster.pb.h"
#include "proto/scheduler.pb.h"

namespace syncline {

// Finds a member of a running job that heartbeats, but whose work stands still:
// a thread that hangs in an operator or in reading data. Pure,
// thread-compatible.
//
// A worker works until it has closed its last clock. The evaluator works while
// its latest activity begins with "evaluating". Closing a clock, an evaluation,
// and such an activity that differs from the last one are progress. An
// evaluation may hold all workers at its cut, so it counts as everybody's.
class ProgressWatchdog {
 public:
  // REQUIRES: limit > 0.
  explicit ProgressWatchdog(absl::Duration limit) : limit_(limit) {}

  // The member begins to work, at clock 0 of `clocks`; 0: an evaluator, which
  // works when it says so.
  void Begin(const Member& member, int64_t clocks, absl::Time now);
  // A report of the member.
  void OnReport(uint64_t incarnation, const WorkerReport& report,
                absl::Time now);
  // It has done all its work.
  void End(uint64_t incarnation);

  // Says that a member has stood still for longer than the limit, of several
  // the one that is furthest behind.
  std::optional<std::string> Check(absl::Time now) const;

 private:
  struct Watched {
    Member member;
    int64_t clock = 0;
    int64_t clocks = 0;
    std::string activity;  // empty: none
    absl::Time moved;
  };
  bool Works(const Watched& watched) const {
    return watched.clock < watched.clocks || !watched.activity.empty();
  }

  const absl::Duration limit_;
  std::map<uint64_t, Watched> members_;  // by incarnation
  absl::Time evaluation_moved_ = absl::InfinitePast();
};

}  // namespace syncline

#endif  // SYNCLINE_SCHEDULER_PROGRESS_WATCHDOG_H_

#ifndef SYNCLINE_SCHEDULER_CORE_JOB_PROGRESS_WATCHDOG_H_
#define SYNCLINE_SCHEDULER_CORE_JOB_PROGRESS_WATCHDOG_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "proto/cluster.pb.h"
#include "proto/scheduler.pb.h"

namespace syncline::scheduler {

// Finds a member of a running job that heartbeats, but whose work stands still:
// a thread that hangs in an operator, in reading data or in writing results.
// Pure, thread-compatible.
//
// A worker works from Begin to End. The evaluator works while its latest
// activity begins with "evaluating", and from its final evaluation to End.
// Closing a clock and an evaluation are progress. So is an activity that
// differs from the last one: one that begins with "evaluating" or "local step"
// at any time, every one after the last clock or the final evaluation, where a
// member writes and stores results. Other activities do not count, and have
// limits of their own.
//
// An evaluation may hold all workers at its cut, so it counts as progress of
// every member; one of a checkpoint holds none, and does not. A worker that has
// made its local steps waits for those that have not, so theirs count as its
// own. One that has closed its last clock may wait for the slowest one, so all
// progress of all members counts as its own.
class ProgressWatchdog {
 public:
  // `holds_workers`: an evaluation may hold them, as it does unless the job's
  // checkpoints are evaluated. REQUIRES: limit > 0.
  explicit ProgressWatchdog(absl::Duration limit, bool holds_workers = true)
      : limit_(limit), holds_workers_(holds_workers) {}

  // The member begins to work, at clock 0 of `clocks`; 0: an evaluator, which
  // works when it says so.
  void Begin(const Member& member, int64_t clocks, absl::Time now);
  // A report of the member.
  void OnReport(uint64_t incarnation, const WorkerReport& report,
                absl::Time now);
  // The member has done all its work.
  void End(uint64_t incarnation);

  // The last progress that closes no clock: of a round of local steps, or of an
  // evaluation that holds the workers, or that there are no workers beside.
  // InfinitePast: there was none.
  absl::Time moved_within_clock() const;

  // Says that a member has stood still for longer than the limit, and what it
  // said last; of several the one that is furthest behind.
  std::optional<std::string> Check(absl::Time now) const;

 private:
  struct Watched {
    Member member;
    int64_t clock = 0;  // closed; of an evaluator, its final evaluation's
    int64_t clocks = 0;
    bool evaluated_all = false;  // it has sent a final evaluation
    std::string activity;        // empty: none
    absl::Time moved;
  };
  // The member has only results left to write and to store.
  static bool IsFinishing(const Watched& watched);
  static bool Works(const Watched& watched);
  // The last progress that counts as this member's.
  absl::Time MovedAt(const Watched& watched) const;
  std::string Text(const Watched& watched, absl::Time now) const;

  const absl::Duration limit_;
  const bool holds_workers_;
  std::map<uint64_t, Watched> members_;  // by incarnation
  absl::Time evaluation_moved_ = absl::InfinitePast();
  absl::Time local_step_moved_ = absl::InfinitePast();
  absl::Time anyone_moved_ = absl::InfinitePast();
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_JOB_PROGRESS_WATCHDOG_H_

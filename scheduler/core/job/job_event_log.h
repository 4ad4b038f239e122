#ifndef SYNCLINE_SCHEDULER_CORE_JOB_JOB_EVENT_LOG_H_
#define SYNCLINE_SCHEDULER_CORE_JOB_JOB_EVENT_LOG_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/job.pb.h"
#include "scheduler/core/stored_event.h"

namespace syncline::scheduler {

// The events of one job, the oldest first. Most of them are read out of the
// job's record, each time that it has changed; the others are added by those
// who see them. Pure, thread-compatible.
class JobEventLog {
 public:
  // Of more events the oldest are left out.
  static constexpr size_t kMax = 400;
  static constexpr size_t kTextBytesMax = 1 << 10;

  JobEventLog() = default;
  // Of a job that an earlier scheduler had: `stored` by number. Transitions
  // that are later than the last event, which did not get to the disk, are new
  // at the next Observe.
  JobEventLog(std::vector<StoredEvent> stored, const JobStatus& job);

  // Adds what is new in the record. `clock`: of its slowest worker. To be
  // called after each change.
  void Observe(const JobStatus& job, int64_t clock, absl::Time now);
  // `kind` as in JobEvent; `text` of UTF-8.
  void Add(absl::string_view kind, absl::string_view text, const JobStatus& job,
           int64_t clock, absl::Time now);

  // Those from `number` on.
  std::vector<StoredEvent> From(uint64_t number) const;
  // Events that were left out.
  uint64_t left_out() const { return first_ - 1; }
  // True once for each event, in order: *event is to be stored, and the event
  // *left_out, if that is not 0, to be forgotten.
  bool TakeNew(StoredEvent* event, uint64_t* left_out);

 private:
  void ObserveTransitions(const JobStatus& job, int64_t clock);
  void ObserveCheckpoints(const JobStatus& job, int64_t clock, absl::Time now);
  void ObserveLosses(const JobStatus& job, int64_t clock, absl::Time now);
  void ObserveRegimes(const JobStatus& job, int64_t clock, absl::Time now);
  void Push(absl::string_view kind, std::string text, uint32_t attempt,
            int64_t clock, absl::Time time);

  uint64_t first_ = 1;  // number of the front
  std::deque<JobEvent> events_;
  uint64_t taken_ = 0;  // by TakeNew: up to this number
  uint64_t forgotten_ = 0;

  // Of the record, as it was last.
  int transitions_ = 0;
  int64_t evaluation_clock_ = -1;
  int64_t checkpoint_clock_ = -1;
  uint32_t checkpoint_attempt_ = 0;
  int lost_workers_ = 0;
  std::vector<std::string> lost_leases_;  // JobStatus.Lost.leases
  // Keys of JobStatus.regimes: a full history loses an entry for each new one.
  std::vector<std::string> regimes_;
  std::string trouble_;
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_JOB_JOB_EVENT_LOG_H_

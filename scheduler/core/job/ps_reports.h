#ifndef SYNCLINE_SCHEDULER_CORE_JOB_PS_REPORTS_H_
#define SYNCLINE_SCHEDULER_CORE_JOB_PS_REPORTS_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"

namespace syncline::scheduler {

// The newest report of each ps of one job. Pure, thread-compatible.
class PsReports {
 public:
  void OnReport(uint32_t rank, const PsReport& report, absl::Time now);

  // Clocks at which nothing was applied. Each ps counts the same clocks, so the
  // largest count is the newest.
  uint64_t SkippedClocks() const;
  // Gradient blocks that were not applied, over all ps.
  uint64_t DroppedBlocks() const;
  // The tables as the ps last reported them, with as many of their hot keys as
  // one answer has room for. Errors: ResourceExhausted: there are too many
  // tables.
  absl::StatusOr<JobTableStatus> TableStatus(const std::string& job_id,
                                             absl::Time now) const;

 private:
  struct Received {
    absl::Time time;
    PsReport report;
  };

  std::map<uint32_t, Received> by_rank_;
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_JOB_PS_REPORTS_H_

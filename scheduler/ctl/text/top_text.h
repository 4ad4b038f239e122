#ifndef SYNCLINE_SCHEDULER_CTL_TEXT_TOP_TEXT_H_
#define SYNCLINE_SCHEDULER_CTL_TEXT_TOP_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"

namespace syncline::ctl {

// The data that `synctl top` shows, of one moment.
struct TopSnapshot {
  ClusterStatus cluster;
  // Those that are not over; the running ones with their workers' progress.
  std::vector<JobStatus> jobs;
};

// The share of its time since `before` (empty: since the job's start) that each
// worker waited for others, by position in `now`; nothing: it has not reported
// a step since.
std::vector<std::optional<double>> WaitShares(const JobProgress& now,
                                              const JobProgress& before);

// The rank that the others wait for: the only one at the smallest clock, while
// the job has not come forward since `before`; else the one that waits at most
// half as much as every other, where each of these waits a fifth of its time or
// more. Nothing: there is none. `before` empty: only the second.
std::optional<uint32_t> StragglerOf(const JobProgress& now,
                                    const JobProgress& before);

// Of a job whose steps end without some workers (LeavesBehind): the others have
// come to the end of an epoch, where the chief evaluates and has not come yet.
// Nobody goes on without it.
bool ChiefHoldsUp(const JobStatus& job);

// The job's steps end without some workers (LeavesBehind), and more are left
// than a step needs: nobody waits for a slow one.
bool HasBackups(const JobStatus& job);

// The same of a job with `now` as its progress. Where it has backups nobody
// waits for a slow worker: it is the chief, while it holds up the job, or
// nobody.
std::optional<uint32_t> StragglerOf(const JobStatus& job,
                                    const JobProgress& now,
                                    const JobProgress& before);

// A line of totals; the jobs, each running one with a line for each worker; the
// members. `before`: the moment before, for shares over that time; may be
// empty.
std::string TopText(const TopSnapshot& now, const TopSnapshot& before);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_TEXT_TOP_TEXT_H_

#ifndef SYNCLINE_SCHEDULER_CORE_CLUSTER_LOG_SOURCES_H_
#define SYNCLINE_SCHEDULER_CORE_CLUSTER_LOG_SOURCES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "scheduler/core/cluster/cluster_core.h"

// Where the logs of a job are. Pure.

namespace syncline::scheduler {

// A task of a job, and who may have its log.
struct LogSource {
  Task task;
  // The process that has the task now. incarnation 0: there is none.
  std::string address = {};
  uint64_t incarnation = 0;
  // The name of its log among the job's artifacts; empty: it has none yet.
  std::string artifact = {};
};

// "worker:1"; the way that --task names one.
std::string LogTaskName(const Task& task);

// The tasks of the job's last attempt: workers by rank, the evaluator, ps by
// rank. A process with several tasks has one log: only the first task is named.
// `only`: that task alone; null: all. Errors: NotFound: no such job; it has no
// such task, naming those it has.
absl::StatusOr<std::vector<LogSource>> LogSourcesOf(const ClusterCore& core,
                                                    const std::string& job_id,
                                                    const Task* only);

// A line of the scheduler's own among those of a member.
std::string LogNote(const std::string& job_id, const std::string& trace_id,
                    absl::Time time, absl::string_view message,
                    absl::string_view error);

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_CLUSTER_LOG_SOURCES_H_

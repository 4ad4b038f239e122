#include "scheduler/core/cluster/log_sources.h"

#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "scheduler/core/describe.h"

namespace syncline::scheduler {
namespace {

bool AreSame(const Task& a, const Task& b) {
  return a.type() == b.type() && a.index() == b.index();
}

std::vector<Task> TasksOf(const JobStatus& job) {
  std::vector<Task> tasks;
  for (const Participant& worker : job.workers()) {
    tasks.push_back(worker.member().task());
  }
  if (job.has_evaluator()) tasks.push_back(job.evaluator().member().task());
  for (const Participant& ps : job.ps()) tasks.push_back(ps.member().task());
  return tasks;
}

LogSource SourceOf(const Task& task, const ClusterCore& core,
                   const JobStatus& job) {
  LogSource source{.task = task};
  for (const Membership::Entry* entry : core.membership().All()) {
    if (!AreSame(entry->member.task(), task)) continue;
    source.address = entry->member.address();
    source.incarnation = entry->member.incarnation();
  }
  const std::string name = absl::StrCat("logs/", TaskTypeName(task.type()), "-",
                                        task.index(), ".log");
  for (const Artifact& artifact : job.artifacts()) {
    if (artifact.name() == name) source.artifact = name;
  }
  return source;
}

}  // namespace

std::string LogTaskName(const Task& task) {
  return absl::StrCat(TaskTypeName(task.type()), ":", task.index());
}

absl::StatusOr<std::vector<LogSource>> LogSourcesOf(const ClusterCore& core,
                                                    const std::string& job_id,
                                                    const Task* only) {
  SYNCLINE_ASSIGN_OR_RETURN(const Job* const job, core.FindJob(job_id));
  const std::vector<Task> tasks = TasksOf(job->status());
  std::vector<LogSource> sources;
  std::set<std::string> addresses;
  for (const Task& task : tasks) {
    if (only != nullptr && !AreSame(task, *only)) continue;
    LogSource source = SourceOf(task, core, job->status());
    if (!source.address.empty() && !addresses.insert(source.address).second) {
      continue;
    }
    sources.push_back(std::move(source));
  }
  if (only == nullptr || !sources.empty()) return sources;
  return absl::NotFoundError(absl::StrCat(
      "job ", job_id, " has no ", LogTaskName(*only), "; ",
      tasks.empty()
          ? "it has not run yet"
          : absl::StrCat("it has ",
                         absl::StrJoin(tasks, ", ",
                                       [](std::string* out, const Task& task) {
                                         out->append(LogTaskName(task));
                                       }))));
}

std::string LogNote(const std::string& job_id, const std::string& trace_id,
                    absl::Time time, absl::string_view message,
                    absl::string_view error) {
  return absl::StrCat(
      "ts=",
      absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone()),
      " level=warning role=scheduler job=", job_id,
      trace_id.empty() ? "" : absl::StrCat(" trace=", trace_id), " msg=\"",
      absl::CHexEscape(message), "\"",
      error.empty() ? ""
                    : absl::StrCat(" error=\"", absl::CHexEscape(error), "\""),
      "\n");
}

}  // namespace syncline::scheduler

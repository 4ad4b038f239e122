#include "scheduler/ctl/tf_config_command.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/host_port.h"
#include "common/base/status_macros.h"
#include "scheduler/ctl/jobs_client.h"
#include "scheduler/ctl/text/exit_codes.h"

namespace syncline::ctl {
namespace {

// Appends the tasks of one flag.
absl::Status ParseFlag(absl::string_view flag,
                       std::vector<TaskAddress>* tasks) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(flag, absl::MaxSplits('=', 1));
  if (parts.second.empty()) {
    return absl::InvalidArgumentError("expected TYPE=ADDRESS[,ADDRESS...]");
  }
  SYNCLINE_ASSIGN_OR_RETURN(TaskId task, ParseTaskName(parts.first));
  for (absl::string_view address : absl::StrSplit(parts.second, ',')) {
    SYNCLINE_RETURN_IF_ERROR(ParseHostPort(address).status());
    tasks->push_back({task, std::string(address)});
    ++task.index;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TaskAddress>> GatherTasks(
    const std::string& scheduler, const std::vector<std::string>& flags) {
  if (!flags.empty()) return ParseClusterFlags(flags);
  SYNCLINE_ASSIGN_OR_RETURN(const ClusterStatus cluster,
                            JobsClient(scheduler).GetCluster());
  return TasksOf(cluster);
}

}  // namespace

absl::StatusOr<std::vector<TaskAddress>> ParseClusterFlags(
    const std::vector<std::string>& flags) {
  std::vector<TaskAddress> tasks;
  std::vector<std::string> problems;
  for (const std::string& flag : flags) {
    const absl::Status status = ParseFlag(flag, &tasks);
    if (status.ok()) continue;
    problems.push_back(
        absl::StrCat("--cluster '", flag, "': ", status.message()));
  }
  if (!problems.empty()) {
    return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
  }
  return tasks;
}

std::vector<TaskAddress> TasksOf(const ClusterStatus& cluster) {
  std::vector<TaskAddress> tasks;
  for (const ClusterStatus::Entry& entry : cluster.members()) {
    const Task& task = entry.member().task();
    tasks.push_back({{static_cast<TaskKind>(task.type()), task.index()},
                     entry.member().address()});
  }
  // A chief or worker 0 that hosts the scheduler is found without an entry for
  // it, and no two entries have one address.
  const bool hosted = std::any_of(
      tasks.begin(), tasks.end(), [&cluster](const TaskAddress& entry) {
        return entry.address == cluster.scheduler_address();
      });
  if (!cluster.scheduler_address().empty() && !hosted) {
    tasks.push_back({{TaskKind::kScheduler, 0}, cluster.scheduler_address()});
  }
  return tasks;
}

int RunTfConfig(const std::string& scheduler,
                const std::vector<std::string>& cluster_flags,
                const std::string& task_name, const Console& console) {
  const auto task = ParseTaskName(task_name);
  if (!task.ok()) {
    console.PrintError(Annotate(task.status(), "--task"));
    return kExitUsage;
  }
  const auto tasks = GatherTasks(scheduler, cluster_flags);
  if (!tasks.ok()) return console.PrintError(tasks.status());
  const auto json = WriteTfConfig(*tasks, *task);
  if (!json.ok()) return console.PrintError(json.status());
  console.out << *json << std::endl;
  return kExitOk;
}

}  // namespace syncline::ctl

#ifndef SYNCLINE_SCHEDULER_CTL_TF_CONFIG_COMMAND_H_
#define SYNCLINE_SCHEDULER_CTL_TF_CONFIG_COMMAND_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/cluster/cluster_config.h"
#include "proto/scheduler.pb.h"
#include "scheduler/ctl/text/console.h"

namespace syncline::ctl {

// "ps=10.0.0.7:2222,10.0.0.8:2222" are ps 0 and 1; "worker:3=host:2222" is
// worker 3. Errors: InvalidArgument, all problems, one per line.
absl::StatusOr<std::vector<TaskAddress>> ParseClusterFlags(
    const std::vector<std::string>& flags);

// A running cluster's tasks; its scheduler among them unless a member hosts it,
// which TF_CONFIG then implies.
std::vector<TaskAddress> TasksOf(const ClusterStatus& cluster);

// `synctl tf-config`: writes the TF_CONFIG of `task` in the cluster of the
// flags or, without them, of the scheduler's members. Always JSON.
int RunTfConfig(const std::string& scheduler,
                const std::vector<std::string>& cluster_flags,
                const std::string& task, const Console& console);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_TF_CONFIG_COMMAND_H_

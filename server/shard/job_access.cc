#include "server/shard/job_access.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/cluster/cluster_config.h"
#include "common/job/worker_groups.h"
#include "common/wire/routing_table.h"
#include "common/wire/routing_version.h"

namespace syncline::ps {

absl::Status JobAccess::CheckCaller(const Caller& caller) const {
  SYNCLINE_RETURN_IF_ERROR(
      CheckPass(pass, label, caller.attempt(), caller.job_secret()));
  return callers.CheckCaller(caller.rank(), caller.incarnation());
}

absl::Status JobAccess::CheckRouting(uint64_t version) const {
  if (version == routing_version) return absl::OkStatus();
  const std::string versions =
      absl::StrCat(label, ": routing version ", version, ", this ps is at ",
                   routing_version);
  if (version > routing_version) {
    return absl::UnavailableError(absl::StrCat(versions, " and not yet there"));
  }
  return WithRoutingVersion(absl::AbortedError(versions), routing_version);
}

absl::StatusOr<JobAccess> ReadJobAccess(const JobAssignment& assignment,
                                        uint32_t ps_rank) {
  if (ps_rank >= static_cast<uint32_t>(assignment.ps_size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("job ", assignment.job_id(), " has ", assignment.ps_size(),
                     " ps, there is no rank ", ps_rank));
  }
  SYNCLINE_RETURN_IF_ERROR(CheckAssignmentPass(assignment));
  SYNCLINE_ASSIGN_OR_RETURN(const RoutingTable routing,
                            RoutingTable::Create(assignment));
  JobAccess access;
  access.job_id = assignment.job_id();
  access.label = JobLabel(assignment, ps_rank);
  access.pass = PassOf(assignment);
  access.routing_version = routing.version();
  access.callers.label = access.label;
  SYNCLINE_RETURN_IF_ERROR(ReadCallers(assignment, &access.callers));
  *access.routing.mutable_routing() = assignment.routing();
  access.routing.mutable_routing()->set_version(routing.version());
  *access.routing.mutable_ps() = assignment.ps();
  return access;
}

std::string JobLabel(const JobAssignment& assignment, uint32_t ps_rank) {
  return absl::StrCat(
      "job ", assignment.job_id(), " on ",
      MemberName(assignment.ps(static_cast<int>(ps_rank)).member()));
}

std::string MemberName(const Member& member) {
  const TaskId task{static_cast<TaskKind>(member.task().type()),
                    member.task().index()};
  return absl::StrCat(TaskName(task), " at ", member.address());
}

absl::Status ReadCallers(const JobAssignment& assignment,
                         ConsistencyOptions* options) {
  const absl::StatusOr<WorkerGroups> groups = WorkerGroups::Of(assignment);
  if (!groups.ok()) {
    return Annotate(groups.status(), absl::StrCat("job ", assignment.job_id()));
  }
  for (uint32_t group = 0; group < groups->count(); ++group) {
    const Member& leader =
        assignment.workers(static_cast<int>(groups->LeaderOf(group))).member();
    std::string name = MemberName(leader);
    if (groups->size() > 1) {
      absl::StrAppend(&name, ", leader of group ", group);
    }
    options->workers.push_back({leader.incarnation(), std::move(name)});
  }
  if (assignment.has_evaluator()) {
    const Member& evaluator = assignment.evaluator().member();
    options->evaluator = ConsistencyOptions::Worker{evaluator.incarnation(),
                                                    MemberName(evaluator)};
  }
  return absl::OkStatus();
}

}  // namespace syncline::ps

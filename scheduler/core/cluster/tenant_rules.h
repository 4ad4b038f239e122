#ifndef SYNCLINE_SCHEDULER_CORE_CLUSTER_TENANT_RULES_H_
#define SYNCLINE_SCHEDULER_CORE_CLUSTER_TENANT_RULES_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/job_spec.pb.h"
#include "proto/scheduler.pb.h"
#include "scheduler/core/job/job.h"

namespace syncline::scheduler {

// The rules that keep the jobs of tenants apart in the scheduler. Pure.

// The client key `key` of a submission by `tenant` (empty: none) as it is kept,
// so that equal keys of two tenants are two keys. An empty key stays empty.
// Errors: InvalidArgument: the key begins as only those of tenants do.
absl::StatusOr<std::string> ScopedClientKey(absl::string_view tenant,
                                            absl::string_view key);
// The key as the client gave it.
absl::string_view KeyAsGiven(absl::string_view scoped);

// Whether a job of `tenant` may have the checkpoints that `spec` names.
//   checkpoint.directory  CHECKPOINTS/TENANT or below it. CHECKPOINTS is the
//                         scheduler's --tenant-checkpoints; empty: none may be
//                         named. A job of no tenant: not below CHECKPOINTS.
//   start.checkpoint      that of a job of the same tenant among `jobs`, or one
//                         of no job among them that is below
//                         CHECKPOINTS/TENANT. Any, where it is `of_operator`:
//                         somebody who may see the jobs of all tenants.
// A tenant's path has no "." or ".." as a part: members use it as it is, where
// the part before may be a link. Only text is compared, so the folders must not
// have symbolic links that others make. Errors: InvalidArgument, naming the
// field.
absl::Status CheckTenantPaths(const JobSpec& spec, const std::string& tenant,
                              const std::string& checkpoints, bool of_operator,
                              absl::Span<const Job* const> jobs);

// The tenant of a job that an operator without a tenant submits, who may see
// the jobs of all. A job that goes on from a checkpoint of a tenant's job, or
// evaluates it, is that tenant's, because its data are. Of a checkpoint that no
// known job has made, its folder below CHECKPOINTS says whose it is. Empty:
// none's.
std::string TenantOfOperators(const JobSpec& spec,
                              const std::string& checkpoints,
                              absl::Span<const Job* const> jobs);

// Puts kHiddenJob in the place of jobs that a caller does not see.
void HideOthersJobs(absl::FunctionRef<bool(const std::string& job_id)> sees,
                    ClusterStatus* cluster);

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_CLUSTER_TENANT_RULES_H_

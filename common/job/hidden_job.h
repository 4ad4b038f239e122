#ifndef SYNCLINE_COMMON_JOB_HIDDEN_JOB_H_
#define SYNCLINE_COMMON_JOB_HIDDEN_JOB_H_

namespace syncline {

// ClusterStatus.Entry.job_id of a member that works for a job which the caller,
// of another tenant, does not see.
inline constexpr char kHiddenJob[] = "(in use)";

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_HIDDEN_JOB_H_

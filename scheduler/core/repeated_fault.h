#ifndef SYNCLINE_SCHEDULER_CORE_REPEATED_FAULT_H_
#define SYNCLINE_SCHEDULER_CORE_REPEATED_FAULT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "proto/job.pb.h"

namespace syncline::scheduler {

// Tells whether a job that might be run again has failed as it did before: a
// process that dies at the same clock each time, for want of memory or by a
// fault of its own, dies there the next time, too. So does one that hangs, or
// that does not get through preparing. Pure.

// The member at fault and its clock, without the parts that differ between two
// runs: addresses, incarnations, job ids, measured times, and the members that
// waited for it. Empty if the job has not failed, if the reason names no clock,
// or if the network or an operator may be the cause: only a process that died,
// stands still, was waited for in vain or did not get prepared counts.
std::string FaultOf(const JobStatus& job);

// The same of the reason of a transition, for which an attempt has ended. What
// it says of the next attempt does not count.
std::string FaultIn(absl::string_view reason);

// Begins what the reason of a restart says of the next attempt.
inline constexpr char kNextAttempt[] = "; attempt ";

// True if both jobs have the same model, the same weights file (start.weights),
// or none, and the same spec.
bool IsSameWork(const JobStatus& a, const JobStatus& b);

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_REPEATED_FAULT_H_

#ifndef SYNCLINE_SCHEDULER_CTL_ADDRESS_CHECK_H_
#define SYNCLINE_SCHEDULER_CTL_ADDRESS_CHECK_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace syncline::ctl {

// The port of a scheduler whose address names none.
inline constexpr int kDefaultSchedulerPort = 7070;

// Whether the user's word for a scheduler is host:port. Resolves nothing.
// Errors: InvalidArgument: what to write instead.
absl::Status CheckSchedulerAddress(const std::string& text);

// Looks host names up, many at a time; a status for each, in the same order.
// Blocks until the system's resolver has answered or given up (resolv.conf's
// timeout and attempts). Errors: NotFound.
std::vector<absl::Status> ResolveHosts(const std::vector<std::string>& hosts);

// OK if a daemon could listen on this TCP port of this machine now. Errors: by
// errno; AlreadyExists: in use.
absl::Status CheckPortIsFree(int port);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_ADDRESS_CHECK_H_

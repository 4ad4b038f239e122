#ifndef SYNCLINE_SCHEDULER_CTL_ADDRESS_CHECK_H_
#define SYNCLINE_SCHEDULER_CTL_ADDRESS_CHECK_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace syncline {

// Looks all host names up at once; a status for each, in the same order.
// Errors: NotFound; DeadlineExceeded: no answer by `deadline`.
std::vector<absl::Status> ResolveHosts(const std::vector<std::string>& hosts,
                                       absl::Time deadline);

// Whether a daemon could listen on this TCP port of this machine now. Errors:
// by errno; AlreadyExists: in use.
absl::Status CheckPortIsFree(int port);

}  // namespace syncline

#endif  // SYNCLINE_SCHEDULER_CTL_ADDRESS_CHECK_H_

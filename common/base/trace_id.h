#ifndef SYNCLINE_COMMON_BASE_TRACE_ID_H_
#define SYNCLINE_COMMON_BASE_TRACE_ID_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace syncline {

// A trace id names one submission in the logs of all processes: 32 lower-case
// hexadecimal digits that are not all 0, as in W3C Trace Context and
// OpenTelemetry.

bool IsTraceId(absl::string_view text);
// One that no other caller has.
std::string NewTraceId();

// Errors: InvalidArgument, beginning with `field`.
absl::Status CheckTraceId(absl::string_view field, absl::string_view text);

// The trace id in the value of TRACEPARENT, which programs that trace hand to
// those they start: "00-<trace id>-<parent id>-<flags>". Errors:
// InvalidArgument.
absl::StatusOr<std::string> TraceIdOfParent(absl::string_view traceparent);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_TRACE_ID_H_

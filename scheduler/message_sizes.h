#ifndef SYNCLINE_SCHEDULER_MESSAGE_SIZES_H_
#define SYNCLINE_SCHEDULER_MESSAGE_SIZES_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// What one answer or command may take up: gRPC's limit on a message, less room
// for what is around it.
inline constexpr size_t kCommandBytesMax = (4 << 20) - (64 << 10);

// Whether all that will be said of a job fits into a message: PrepareJob, with
// the spec, every participant and every parameter, and JobStatus, with the
// spec, the participants and what the job will have come to. Participants count
// with the longest address and names that a registration may have. Errors:
// InvalidArgument, with the numbers.
absl::Status CheckMessageSizes(const JobSpec& spec,
                               absl::Span<const ParameterInfo> parameters,
                               absl::Span<const TableInfo> tables);

}  // namespace syncline

#endif  // SYNCLINE_SCHEDULER_MESSAGE_SIZES_H_

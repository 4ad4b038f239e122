#ifndef SYNCLINE_SCHEDULER_CORE_MESSAGE_SIZES_H_
#define SYNCLINE_SCHEDULER_CORE_MESSAGE_SIZES_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "proto/job_spec.pb.h"
#include "proto/scheduler.pb.h"

namespace syncline::scheduler {

// Bytes that one answer or command may take up: gRPC's limit on a message, less
// room for its envelope.
inline constexpr size_t kCommandBytesMax = (4 << 20) - (64 << 10);

// OK if every message about a job will be within that limit: PrepareJob, with
// the spec, every participant and every parameter, and JobStatus, with the
// spec, the participants and the outcome of the job. Participants count with
// the longest address and names that a registration may have. Errors:
// InvalidArgument, with the numbers.
absl::Status CheckMessageSizes(const JobSpec& spec,
                               absl::Span<const ParameterInfo> parameters,
                               absl::Span<const TableInfo> tables);

// How many hot keys of each table, the first ones, one answer has room for that
// has all tables of `reports`; at most 16, which is all that there are. Errors:
// ResourceExhausted: the tables do not fit even without, with the numbers.
absl::StatusOr<int> HotKeysThatFit(absl::Span<const PsReport* const> reports);

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_MESSAGE_SIZES_H_

#ifndef SYNCLINE_SCHEDULER_CTL_TEXT_WHY_TEXT_H_
#define SYNCLINE_SCHEDULER_CTL_TEXT_WHY_TEXT_H_

#include <string>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"

namespace syncline::ctl {

// `synctl why`: why a job waits, is slow, went back or has ended, by what the
// scheduler knows of it; who, since when, and what helps. Several lines, each
// ends with a newline. Pure.
// `events`: the job's last ones, shown while it has not ended. `before`: its
// progress some seconds ago, for who holds up others now; empty: over the whole
// attempt.
std::string WhyText(const JobStatus& job, absl::Time now,
                    absl::Span<const JobEvent> events = {},
                    const JobProgress& before = {});

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_TEXT_WHY_TEXT_H_

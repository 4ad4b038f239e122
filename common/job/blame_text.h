#ifndef SYNCLINE_COMMON_JOB_BLAME_TEXT_H_
#define SYNCLINE_COMMON_JOB_BLAME_TEXT_H_

#include <cstddef>
#include <string>
#include <vector>

#include "proto/job.pb.h"

namespace syncline {

// For whom the workers of a job have waited, and who was left behind, one
// worker a line, the one that cost most first: "worker:2 closed 431 clocks
// last, 82 s", "worker:2 was left behind at 120 clocks, 3840 samples that it
// sent too late". The counts are those of the shards as they are now: they
// begin at 0 with an attempt and with a routing, so no total of the job's
// clocks is theirs. At most `lines_max` lines. Empty: nobody.
std::vector<std::string> BlameLines(const JobStatus& job, size_t lines_max);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_BLAME_TEXT_H_

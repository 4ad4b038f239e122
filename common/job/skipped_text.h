#ifndef SYNCLINE_COMMON_JOB_SKIPPED_TEXT_H_
#define SYNCLINE_COMMON_JOB_SKIPPED_TEXT_H_

#include <string>

#include "proto/job.pb.h"

namespace syncline {

// True if a job has succeeded though its model is hardly trained: none of its
// steps was applied, so that the parameters are the initial ones, or as many
// blocks and rows were dropped as it made steps. Users are warned.
bool IsHardlyTrained(const JobStatus& job);

// The job's gradients that had no effect because they were not finite, in one
// line: "12 of 500 steps were skipped: their gradients were not finite". Steps
// of SYNC jobs; in the other modes each worker's push is one. Empty: nothing.
std::string SkippedText(const JobStatus& job);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_SKIPPED_TEXT_H_

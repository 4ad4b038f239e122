#ifndef SYNCLINE_COMMON_JOB_DATA_SPEC_VALIDATOR_H_
#define SYNCLINE_COMMON_JOB_DATA_SPEC_VALIDATOR_H_

#include <string>

#include "absl/strings/string_view.h"
#include "common/job/job_spec_problems.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// The part of ValidateJobSpec that concerns the job's data: sources, feeds, the
// label and the buckets of lengths. Reads the loss too, which decides what a
// label may be. Does not look at files.
void CheckData(const JobSpec& spec, Problems* problems);

// What the user of feeds with large offsets must read before the job trains.
// Empty: there are none.
std::string OffsetNote(const JobSpec& spec);

// True if samples of the source may differ in how many values of the field they
// have: Feed.padding fills them.
bool IsListField(const DataSource& source, absl::string_view field);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_DATA_SPEC_VALIDATOR_H_

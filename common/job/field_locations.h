#ifndef SYNCLINE_COMMON_JOB_FIELD_LOCATIONS_H_
#define SYNCLINE_COMMON_JOB_FIELD_LOCATIONS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/job/job_file_source_map.h"

namespace syncline {

// Puts "label:line: " before each problem ("field.path: what is wrong") whose
// field is in `text`, a job file; before the nearest field around it where the
// field itself is not written there. Those about nothing in the file get
// "label: ".
//   source_map  of `text`, perhaps with fields blanked
std::vector<std::string> LocateProblems(
    absl::string_view text, const JobFileSourceMap& source_map,
    absl::string_view label, const std::vector<std::string>& problems);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_FIELD_LOCATIONS_H_

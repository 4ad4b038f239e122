#ifndef SYNCLINE_SCHEDULER_CTL_FIELD_LOCATIONS_H_
#define SYNCLINE_SCHEDULER_CTL_FIELD_LOCATIONS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace syncline {

// Puts "label:line: " before each problem ("field.path: what is wrong") whose
// field is in `text`, a job file; before the nearest field around it where the
// field itself is not written there. JSON has no locations: its problems get
// "label: ", like those about nothing in the file.
std::vector<std::string> LocateProblems(
    absl::string_view text, absl::string_view label,
    const std::vector<std::string>& problems);

}  // namespace syncline

#endif  // SYNCLINE_SCHEDULER_CTL_FIELD_LOCATIONS_H_

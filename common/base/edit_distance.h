#ifndef SYNCLINE_COMMON_BASE_EDIT_DISTANCE_H_
#define SYNCLINE_COMMON_BASE_EDIT_DISTANCE_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace syncline {

// Changes of one character that lead from `a` to `b` (Levenshtein 1966). Takes
// time in proportion to the product of their lengths: bound what comes from
// outside.
size_t EditDistance(absl::string_view a, absl::string_view b);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_EDIT_DISTANCE_H_

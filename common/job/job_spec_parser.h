#ifndef SYNCLINE_COMMON_JOB_JOB_SPEC_PARSER_H_
#define SYNCLINE_COMMON_JOB_JOB_SPEC_PARSER_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/job/job_file_source_map.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// A job file as far as it can be read: what is wrong with one field does not
// hide what is wrong with the others.
struct JobReading {
  // Without the fields that could not be read. A singular enum that could not
  // be read has kUnreadEnum: what depends on it cannot be judged.
  JobSpec spec;
  // "label:line:column: what", in the order of the text.
  std::vector<std::string> problems;
  // The fields behind the problems, unknown ones included.
  std::vector<std::string> unread_paths;
  // False: the form is broken, and what comes after that place is missing too.
  bool complete = true;
  // Of what was read: indexes are those of `spec`.
  JobFileSourceMap source_map;
};

// No value of any enum.
inline constexpr int kUnreadEnum = 0x7fffffff;

// Reads protobuf text format or JSON (a first non-space '{' means JSON).
JobReading ReadJobSpec(absl::string_view text, absl::string_view label);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_JOB_SPEC_PARSER_H_

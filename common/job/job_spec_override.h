#ifndef SYNCLINE_COMMON_JOB_JOB_SPEC_OVERRIDE_H_
#define SYNCLINE_COMMON_JOB_JOB_SPEC_OVERRIDE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/job_spec.pb.h"

namespace syncline {

// Sets one field of a job over what its file says, and returns the field's
// path. `setting` is "path=value":
//   learning_rate.base=0.1              a number, a bool, the name of an enum
//   name=second try                     text, with or without quotes
//   metrics=[ACCURACY, AUC]             a whole list; a single value is a list
//                                       with one entry
//   model.initialize[0].scale=0.5       an entry of a list; [size] appends one
//   optimizer={kind: ADAM beta1: 0.8}   a message in protobuf's text format; it
//                                       replaces the file's
// Errors: InvalidArgument: "--set SETTING: what is wrong", with the field that
// is probably meant; `spec` may then have empty messages on the way to it. What
// the value means is for the validator.
absl::StatusOr<std::string> OverrideField(absl::string_view setting,
                                          JobSpec* spec);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_JOB_JOB_SPEC_OVERRIDE_H_

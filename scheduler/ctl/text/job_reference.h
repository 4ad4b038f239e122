#ifndef SYNCLINE_SCHEDULER_CTL_TEXT_JOB_REFERENCE_H_
#define SYNCLINE_SCHEDULER_CTL_TEXT_JOB_REFERENCE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace syncline::ctl {

// `synctl help job`: the fields of a job file as proto/job_spec.proto describes
// them, message by message, in lines of at most 80 columns. `what` is a message
// or a field: "OptimizerSpec", "optimizer", "data.train.csv",
// "learning_rate.base"; empty: all messages of JobSpec. Errors: NotFound: there
// is none of this name, with what there is.
absl::StatusOr<std::string> JobReference(absl::string_view what);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_TEXT_JOB_REFERENCE_H_

#ifndef SYNCLINE_SCHEDULER_CTL_EVALUATE_COMMAND_H_
#define SYNCLINE_SCHEDULER_CTL_EVALUATE_COMMAND_H_

// `synctl evaluate`: scores a checkpoint on the cluster, and trains nothing.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job_spec.pb.h"
#include "scheduler/ctl/text/console.h"

namespace syncline::ctl {

struct EvaluateOptions {
  std::string checkpoint = {};  // "j-0042", "j-0042@800", or its folder
  // In place of the files of data.test; empty: those.
  std::string data = {};
  std::string model_file = {};  // empty: the model of the checkpoint's job
  std::vector<std::string> settings = {};  // JobOverrides'
  std::string client_key = {};             // SubmitOptions'
};

// The spec of a job that evaluates `start` of a job with the spec `from`: its
// model, its data, its metrics, and nothing that is about training. Errors:
// InvalidArgument: there is no data.test, or no file of it to replace; a
// setting that is none.
absl::StatusOr<JobSpec> SpecToEvaluate(const JobSpec& from,
                                       const StartSpec& start,
                                       const EvaluateOptions& options);

// Submits that job, waits for its end and prints its evaluation. Returns the
// exit code.
int RunEvaluate(const std::string& scheduler, const EvaluateOptions& options,
                const Console& console);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_EVALUATE_COMMAND_H_

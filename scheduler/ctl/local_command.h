#ifndef SYNCLINE_SCHEDULER_CTL_LOCAL_COMMAND_H_
#define SYNCLINE_SCHEDULER_CTL_LOCAL_COMMAND_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/ctl/job_file.h"
#include "scheduler/ctl/text/console.h"

namespace syncline::ctl {

struct LocalOptions {
  std::string job_file;
  // How many of each; unset: as the job's resources say.
  JobOverrides size;
  // Starts an evaluator too.
  bool evaluator = false;
  // Per worker, where the job does not say; 0: the cores, shared equally.
  int threads = 0;
  // Empty: the job file's folder.
  std::string data_root;
  // The workers read nothing outside of data_root.
  bool bounds_data = false;
  // Empty: syncline-out/<job name>-<time>.
  std::string out_dir;
  // Keeps the scheduler's state and the workers' files too.
  bool keep = false;
  std::string binary_dir;
  JobPlanner planner = nullptr;  // of LoadJobFile
};

// Checks what this command alone can tell before it starts a process, and fills
// in spec->start from the checkpoint that the job file names. Adds to *notes
// what is to be said. Errors: InvalidArgument: with the field, what to do; a
// checkpoint that cannot be read or gone on from.
absl::Status PrepareLocalJob(const LocalOptions& options,
                             const std::string& model_file, JobSpec* spec,
                             std::vector<std::string>* notes);

// `synctl local`: a cluster of child processes for one job, ended with it,
// whatever happens. Returns the exit code.
int RunLocal(const LocalOptions& options, const Console& console);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_LOCAL_COMMAND_H_

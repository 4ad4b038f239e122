#ifndef SYNCLINE_SCHEDULER_CTL_START_COMMAND_H_
#define SYNCLINE_SCHEDULER_CTL_START_COMMAND_H_

// Jobs that start from a checkpoint: `synctl submit --from`, a job file with
// `start`, and `synctl resume`.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"
#include "proto/job_spec.pb.h"
#include "proto/scheduler.pb.h"
#include "scheduler/ctl/interrupt_signals.h"
#include "scheduler/ctl/jobs_client.h"
#include "scheduler/ctl/text/console.h"

namespace syncline::ctl {

// The value of --from: "j-0042", "j-0042@800", or a path.
struct CheckpointReference {
  std::string job_id = {};  // empty: it is a path
  std::optional<int64_t> clock = {};
  std::string path = {};
};
// Errors: InvalidArgument: neither a job's id nor a path.
// `option` names the text in errors.
absl::StatusOr<CheckpointReference> ParseReference(
    absl::string_view text, absl::string_view option = "--from");

// The job's checkpoint at `clock`, or its last one. Errors: NotFound, naming
// the clocks that there are.
absl::StatusOr<CheckpointInfo> ChooseCheckpoint(const JobStatus& job,
                                                std::optional<int64_t> clock);

// The job that has written a checkpoint, as far as is known here.
struct CheckpointJob {
  std::string id = {};
  JobSpec spec = {};
  uint32_t model_crc32c = 0;  // of its model's file; 0: not known
};
CheckpointJob CheckpointJobOf(const JobStatus& job);
// A warning if `model_file` is not that job's model; else empty. A checkpoint
// has the parameters that are trained, and neither the graph nor the others.
// Reads the file, up to kModelBytesMax; one that cannot be read has no warning.
std::string OtherModelNote(const std::string& model_file,
                           const CheckpointJob& of);

// The start of a job that begins with this checkpoint.
StartSpec StartFrom(const CheckpointInfo& checkpoint);
// The same of a checkpoint in a folder that is seen here, as its manifest says,
// with its job. Errors: ReadManifest's.
absl::StatusOr<StartSpec> ReadStart(const std::string& path, CheckpointJob* of);
// Submits `spec` with the model of `job`, which the scheduler has; an empty
// `client_key` means a random one. Errors: NotFound: it has it no more;
// JobsClient's.
absl::StatusOr<SubmitResponse> SubmitAgain(JobsClient* client,
                                           const JobStatus& job,
                                           const JobSpec& spec,
                                           const std::string& client_key,
                                           const Console& console,
                                           InterruptSignals* interrupts);

// Whether a job with `spec` can go on from a checkpoint that a job with `from`
// has written. Adds to *notes what makes it another run than one that was not
// interrupted. Both have their defaults. Errors: InvalidArgument: with the
// field, what --weights-only would allow.
absl::Status CheckGoesOn(const JobSpec& from, const JobSpec& spec,
                         int64_t clock, std::vector<std::string>* notes);

struct StartOptions {
  std::string from = {};  // empty: as the job file says
  bool weights_only = false;
  std::string model_file = {};  // of the job that starts
};
// Fills in spec->start: from `options.from`, or what the job file leaves out of
// its own. Adds to *notes what is to be said. Errors: those above;
// JobsClient's; InvalidArgument: a manifest that cannot be read here,
// weights_only without a start.
absl::Status FillStart(JobsClient* client, const StartOptions& options,
                       JobSpec* spec, std::vector<std::string>* notes);

struct ResumeOptions {
  std::string job_id;
  std::string client_key;  // SubmitOptions'
  bool watch = false;
};
// The job's spec and a start from its last checkpoint. Errors:
// FailedPrecondition: it is not over, or has succeeded; NotFound: it has no
// checkpoint.
absl::StatusOr<JobSpec> SpecToResume(const JobStatus& job);
// Submits a job that goes on where an earlier one has ended. Returns the exit
// code.
int RunResume(const std::string& scheduler, const ResumeOptions& options,
              const Console& console);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_START_COMMAND_H_

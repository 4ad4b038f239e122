#ifndef SYNCLINE_SCHEDULER_CTL_COMMANDS_H_
#define SYNCLINE_SCHEDULER_CTL_COMMANDS_H_

// synctl's commands against a running scheduler. Each returns the exit code.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "scheduler/ctl/interrupt_signals.h"
#include "scheduler/ctl/job_file.h"
#include "scheduler/ctl/jobs_client.h"
#include "scheduler/ctl/start_command.h"
#include "scheduler/ctl/text/console.h"

namespace syncline::ctl {

struct SubmitOptions {
  std::string job_file;
  JobOverrides overrides = {};
  // SubmitBegin.client_key; empty: a random one.
  std::string client_key;
  bool watch = false;
  StartOptions start = {};
  // SubmitBegin.trace_id; empty: that of `traceparent`, the value of
  // TRACEPARENT, else a new one.
  std::string trace_id = {};
  std::string traceparent = {};
  JobPlanner planner = nullptr;  // of LoadJobFile
};
// `scheduler` is its address. Ctrl-C while watching leaves the job alone.
int RunSubmit(const std::string& scheduler, const SubmitOptions& options,
              const Console& console);
int RunWatch(const std::string& scheduler, const std::string& job_id,
             const Console& console);
// `states`: lower-case names; empty: all. `limit` 0: the scheduler's.
int RunList(const std::string& scheduler,
            const std::vector<std::string>& states, uint32_t limit,
            const Console& console);
int RunGet(const std::string& scheduler, const std::string& job_id,
           const Console& console);
// Why the job waits, is slow, went back or has ended.
int RunWhy(const std::string& scheduler, const std::string& job_id,
           const Console& console);
int RunCancel(const std::string& scheduler, const std::string& job_id,
              const std::string& reason, const Console& console);
// Artifacts by name into folder `to`; no names: all results and logs. Where the
// folder has another job's files it is "TO-2", or the next that has not.
int RunDownload(const std::string& scheduler, const std::string& job_id,
                const std::vector<std::string>& names, const std::string& to,
                const Console& console);
// Embedding tables; an empty job is the newest that is running.
int RunTables(const std::string& scheduler, const std::string& job_id,
              const Console& console);
int RunCluster(const std::string& scheduler, const Console& console);

// Makes the folder, or one with a number behind its name ("out-2") where it has
// files already; returns its path.
absl::StatusOr<std::string> MakeNumberedDir(const std::string& path);

// Where the artifacts of `job` may go: `wanted`, made and marked as the job's,
// or the next numbered folder that has no other job's files. Errors: those of
// the file system; NotFound: `names`, as DownloadArtifacts.
absl::StatusOr<std::string> ChooseFolder(const JobStatus& job,
                                         const std::vector<std::string>& names,
                                         const std::string& wanted);

// One that no other submission has.
std::string RandomClientKey();

// Fetches the named artifacts of `job` (none named: all but the model as it was
// submitted) into folder `to`. Errors: NotFound, naming what there is;
// InvalidArgument: a name that would leave the folder.
absl::Status DownloadArtifacts(JobsClient* client, const JobStatus& job,
                               const std::vector<std::string>& names,
                               const std::string& to, const Console& console,
                               InterruptSignals* interrupts);

// Reports progress of a large transfer on a terminal, and stops it at Ctrl-C.
JobsClient::Transferred ShowTransfer(const std::string& what,
                                     const Console& console,
                                     InterruptSignals* interrupts);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_COMMANDS_H_

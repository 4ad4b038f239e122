#include "scheduler/ctl/scale_command.h"

#include <ostream>

#include "absl/strings/str_cat.h"
#include "common/job/lost_workers.h"
#include "scheduler/ctl/jobs_client.h"
#include "scheduler/ctl/text/console.h"
#include "scheduler/ctl/text/exit_codes.h"
#include "scheduler/ctl/text/job_text.h"

namespace syncline::ctl {
namespace {

// Workers that the job could be given now.
uint32_t FreeWorkers(const JobStatus& job, const ClusterStatus& cluster) {
  const bool wants_gpus =
      job.spec().resources().device() == ResourcesSpec::CUDA;
  uint32_t free = 0;
  for (const ClusterStatus::Entry& entry : cluster.members()) {
    const TaskType type = entry.member().task().type();
    if ((type != CHIEF && type != WORKER) || !entry.job_id().empty() ||
        entry.use() != SetMemberUseRequest::USE_UNSPECIFIED) {
      continue;
    }
    free += !wants_gpus || entry.member().has_gpu() ? 1 : 0;
  }
  return free;
}

}  // namespace

std::string ScaleAnswer(const JobStatus& job, const ClusterStatus& cluster,
                        uint32_t workers) {
  const std::string wanted = FormatAmount(workers, "worker");
  const uint32_t had = WorkersLeft(job);
  if (job.state() == QUEUED) {
    return absl::StrCat("job ", job.job_id(), " waits, and begins with ",
                        wanted);
  }
  if (had == workers) {
    const uint32_t before = job.wanted_workers() > 0
                                ? job.wanted_workers()
                                : job.spec().resources().workers();
    return absl::StrCat("job ", job.job_id(), " has ", wanted,
                        before == workers ? " already; nothing changes"
                                          : ", and stays with that");
  }
  std::string text = absl::StrCat("job ", job.job_id(), " has ", had,
                                  ", and goes on with ", wanted);
  const uint32_t free = FreeWorkers(job, cluster);
  if (workers < had || free >= workers - had) {
    absl::StrAppend(&text, " from its next checkpoint on");
    if (job.state() != RUNNING) return text + ", which it writes once it runs";
    // Jobs that wait, and a quota, may hold up one that grows.
    return workers < had ? text + ", which it writes now" : text;
  }
  absl::StrAppend(&text, " when they are free: ");
  return free == 0
             ? absl::StrCat(text, "no worker is free now")
             : absl::StrCat(text, free, " more ", free == 1 ? "is" : "are",
                            " free now, so it goes on with ", had + free,
                            " until then");
}

int RunScale(const ScaleOptions& options, const Console& console) {
  ScaleRequest request;
  request.set_job_id(options.job_id);
  request.set_workers(options.workers);
  request.set_reason(options.reason);
  JobsClient client(options.scheduler);
  const auto before = client.Get(options.job_id);
  if (!before.ok()) return console.PrintError(before.status());
  const auto cluster = client.GetCluster();
  if (!cluster.ok()) return console.PrintError(cluster.status());
  const auto job = client.Scale(request);
  if (!job.ok()) return console.PrintError(job.status());
  if (console.json) {
    console.PrintJson(*job);
    return kExitOk;
  }
  console.out << ScaleAnswer(*before, *cluster, options.workers) << std::endl;
  return kExitOk;
}

}  // namespace syncline::ctl

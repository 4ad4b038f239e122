#include "scheduler/ctl/text/elastic_text.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/job/lost_workers.h"
#include "scheduler/ctl/text/console.h"
#include "scheduler/ctl/text/job_text.h"

namespace syncline::ctl {

std::string ElasticText(const JobStatus& job) {
  if (job.state() != PREPARING && job.state() != RUNNING) return "";
  const uint32_t had = WorkersLeft(job);
  const uint32_t scaled = job.wanted_workers();
  const uint32_t wanted =
      scaled > 0 ? scaled : job.spec().resources().workers();
  if (had == wanted || wanted == 0) return "";
  if (had < wanted) {
    return absl::StrCat("has ", had, " of the ", FormatAmount(wanted, "worker"),
                        " that it should have; it takes more when they are "
                        "free and no job waits for them",
                        scaled > 0 ? ""
                                   : ", --grow-pause-seconds of the scheduler "
                                     "(two minutes) after its last start or "
                                     "loss at the earliest");
  }
  if (scaled > 0) {
    return absl::StrCat("has ", FormatAmount(had, "worker"),
                        ", and goes on with ", wanted,
                        " from its next checkpoint on");
  }
  return absl::StrCat("has ", FormatAmount(had, "worker"), ", ", had - wanted,
                      " more than resources.workers; it gives them back when "
                      "a job waits for them");
}

}  // namespace syncline::ctl

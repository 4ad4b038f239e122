#include "common/job/skipped_text.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/job/lease_rules.h"
#include "common/job/quorum_validator.h"
#include "common/job/worker_groups.h"

namespace syncline {
namespace {

bool IsSync(const JobStatus& job) {
  return IsSyncOrKin(job.spec().consistency().mode());
}

// Workers that push as one.
int64_t GroupSize(const JobStatus& job) {
  const absl::StatusOr<WorkerGroups> groups = WorkerGroups::Of(job);
  return groups.ok() ? groups->size() : 1;
}

// The steps of a job that skipped_clocks may count, skipped or not.
uint64_t StepsDone(const JobStatus& job) {
  int64_t steps = 0;
  // With leased data a clock is one worker's.
  if (IsSync(job) || LeasesData(job.spec())) {
    steps = job.progress().clock();
  } else {
    for (const WorkerProgress& worker : job.progress().workers()) {
      steps += worker.clock();
    }
    steps /= GroupSize(job);
  }
  return steps > 0 ? static_cast<uint64_t>(steps) : 0;
}

std::string Amount(uint64_t count, const char* one, const char* more) {
  return absl::StrCat(count, " ", count == 1 ? one : more);
}

// True if a job has succeeded and `count` is that of its steps, or more.
bool IsOnePerStep(const JobStatus& job, uint64_t count) {
  const uint64_t steps = StepsDone(job);
  return job.state() == SUCCEEDED && steps > 0 && count >= steps;
}

bool AllWereSkipped(const JobStatus& job) {
  return IsOnePerStep(job, job.progress().skipped_clocks());
}

// A part of the model that is never finite is dropped in each step.
bool EachStepDropped(const JobStatus& job) {
  return IsOnePerStep(job, job.progress().dropped_blocks());
}

std::string StepsText(const JobStatus& job) {
  const uint64_t skipped = job.progress().skipped_clocks();
  const uint64_t steps = StepsDone(job);
  const bool in_groups = GroupSize(job) > 1;
  const char* const one = IsSync(job) ? "step"
                          : in_groups ? "push of a group"
                                      : "push of a worker";
  const char* const more = IsSync(job) ? "steps"
                           : in_groups ? "pushes of groups"
                                       : "pushes of workers";
  if (AllWereSkipped(job)) {
    return absl::StrCat(
        steps == 1 ? absl::StrCat("the only ", one, " was")
                   : absl::StrCat("all ", Amount(skipped, one, more), " were"),
        " skipped: ", steps == 1 ? "its" : "their",
        " gradients were not finite. Nothing was trained: the parameters are "
        "the initial ones");
  }
  const bool single = skipped == 1;
  // Members report apart from each other: before the end a ps may have counted
  // more than what the workers are known to have done.
  const std::string amount =
      skipped < steps ? absl::StrCat(skipped, " of ", Amount(steps, one, more))
                      : Amount(skipped, one, more);
  return absl::StrCat(amount, single ? " was" : " were",
                      " skipped: ", single ? "its" : "their",
                      " gradients were not finite");
}

}  // namespace

bool IsHardlyTrained(const JobStatus& job) {
  return AllWereSkipped(job) || EachStepDropped(job);
}

std::string SkippedText(const JobStatus& job) {
  std::string text;
  if (job.progress().skipped_clocks() > 0) text = StepsText(job);
  const uint64_t dropped = job.progress().dropped_blocks();
  if (dropped > 0) {
    absl::StrAppend(&text, text.empty() ? "" : "; ",
                    Amount(dropped, "block of gradients or row of a table was",
                           "blocks of gradients or rows of tables were"),
                    " dropped: ", dropped == 1 ? "it was" : "they were",
                    " not finite");
    if (EachStepDropped(job)) {
      absl::StrAppend(&text,
                      ". That is as many as the job made steps, or more: "
                      "a part of the model may not be trained at all");
    }
  }
  return text;
}

}  // namespace syncline

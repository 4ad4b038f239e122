#include "scheduler/ctl/text/why_text.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/job/blame_text.h"
#include "common/job/checkpoint_trouble.h"
#include "common/job/evaluate_validator.h"
#include "common/job/lost_workers.h"
#include "common/job/quorum_validator.h"
#include "scheduler/ctl/text/elastic_text.h"
#include "scheduler/ctl/text/exit_codes.h"
#include "scheduler/ctl/text/job_text.h"
#include "scheduler/ctl/text/top_text.h"

namespace syncline::ctl {
namespace {

// A smaller share of the time explains nothing.
constexpr double kShareMin = 0.2;

double TotalSeconds(const WorkerProgress& worker) {
  return worker.compute_seconds() + worker.push_seconds() +
         worker.wait_seconds() + worker.pull_seconds() + worker.data_seconds();
}

// The workers that cost most.
constexpr size_t kBlameLinesMax = 4;

std::string NameOf(const JobStatus& job, uint32_t rank) {
  for (const Participant& participant : job.workers()) {
    if (participant.rank() != rank) continue;
    const Member& member = participant.member();
    return absl::StrCat(
        "rank ", rank, ", ",
        absl::AsciiStrToLower(TaskType_Name(member.task().type())), ":",
        member.task().index(), " at ", member.address());
  }
  return absl::StrCat("rank ", rank);
}

// Where steps end without some workers: with how many, and for whom the others
// wait all the same. Empty: that is to be seen as in other modes.
std::string QuorumText(const JobStatus& job) {
  if (!LeavesBehind(job.spec().consistency().mode())) return "";
  if (ChiefHoldsUp(job)) {
    return absl::StrCat("the others wait for ", NameOf(job, 0),
                        ", the chief: they are at the end of an epoch, where "
                        "it evaluates, and it has not come there\n");
  }
  if (!HasBackups(job)) return "";
  if (job.spec().consistency().mode() == ConsistencySpec::SYNC_WITH_TIMEOUT) {
    return absl::StrFormat(
        "a step ends with %d of %d workers %g s after the first one is done: a "
        "slow one holds up the others no longer\n",
        job.spec().consistency().needed(), WorkersLeft(job),
        job.spec().consistency().timeout_seconds());
  }
  return absl::StrFormat(
      "a step ends with %d of %d workers: a slow one holds nobody up\n",
      job.spec().consistency().needed(), WorkersLeft(job));
}

// Empty: the job has backups, or its mode none.
std::string NoBackupText(const JobStatus& job) {
  const ConsistencySpec& consistency = job.spec().consistency();
  if (!LeavesBehind(consistency.mode()) || HasBackups(job)) return "";
  return absl::StrFormat(
      "a step needs %d workers and %d are left: none is a backup, and the "
      "others wait for a slow one\n",
      consistency.needed(), WorkersLeft(job));
}

// Since `before`; empty: since the attempt's start.
std::string StragglerText(const JobStatus& job, const JobProgress& before) {
  const JobProgress& now = job.progress();
  if (now.workers_size() < 2) return "";
  const std::string quorum = QuorumText(job);
  if (!quorum.empty()) return quorum;
  const std::string lead = NoBackupText(job);
  const std::optional<uint32_t> slow = StragglerOf(job, now, before);
  if (!slow.has_value()) return lead + "no worker holds the others up\n";
  const auto shares = WaitShares(now, before);
  double own = 0;
  double others = 0;
  for (int i = 0; i < now.workers_size(); ++i) {
    const double share = shares[static_cast<size_t>(i)].value_or(0);
    (now.workers(i).rank() == *slow ? own : others) += share;
  }
  others /= now.workers_size() - 1;
  return lead + absl::StrFormat(
                    "the others wait for %s: it waits %.0f%% of its time, they "
                    "%.0f%%\n",
                    NameOf(job, *slow), 100 * own, 100 * others);
}

// The phases that most of the workers' time goes into.
std::string PhasesText(const JobProgress& progress) {
  double total = 0;
  std::array<std::pair<double, const char*>, 5> phases = {
      {{0, "computing"},
       {0, "pushing gradients"},
       {0, "waiting for other workers"},
       {0, "pulling values"},
       {0, "waiting for data: read it faster, or compute on more of it"}}};
  for (const WorkerProgress& worker : progress.workers()) {
    total += TotalSeconds(worker);
    phases[0].first += worker.compute_seconds();
    phases[1].first += worker.push_seconds();
    phases[2].first += worker.wait_seconds();
    phases[3].first += worker.pull_seconds();
    phases[4].first += worker.data_seconds();
  }
  if (total <= 0) return "";
  std::sort(phases.rbegin(), phases.rend());
  std::string text;
  for (const auto& [seconds, what] : phases) {
    if (seconds / total < kShareMin) break;
    absl::StrAppendFormat(&text, "%.0f%% of the workers' time is spent %s\n",
                          100 * seconds / total, what);
  }
  return text;
}

std::string RestartsText(const JobStatus& job, absl::Time now) {
  std::string text;
  for (int i = 1; i < job.transitions_size(); ++i) {
    const std::string why = RestartText(job.transitions(i));
    if (why.empty()) continue;
    absl::StrAppend(&text, "went back ",
                    FormatElapsed(now - ToTime(job.transitions(i).time())),
                    " ago: ", why, "\n");
  }
  return text;
}

std::string LossesText(const JobStatus& job, absl::Time now) {
  std::string text;
  for (const JobStatus::Lost& lost : job.lost_workers()) {
    absl::StrAppend(&text, FormatElapsed(now - ToTime(lost.time())),
                    " ago: ", lost.reason(), lost.leases().empty() ? "" : "; ",
                    lost.leases(), "\n");
  }
  return text;
}

std::string CheckpointsText(const JobStatus& job, absl::Time now) {
  if (!job.spec().has_checkpoint()) {
    return HasEnded(job.state())
               ? ""
               : "makes no checkpoints: the loss of a process ends it\n";
  }
  if (job.checkpoints().empty()) return "has no checkpoint yet\n";
  const CheckpointInfo& last = *job.checkpoints().rbegin();
  return absl::StrCat("last checkpoint ",
                      FormatElapsed(now - ToTime(last.time())),
                      " ago: ", CheckpointText(last), "\n");
}

// "has been queued for 1:00", "was cancelled 1:00 ago", "succeeded 1:00 ago".
std::string StateSince(const JobStatus& job, absl::Time now) {
  const absl::Time since = job.transitions().empty()
                               ? now
                               : ToTime(job.transitions().rbegin()->time());
  const std::string state = absl::AsciiStrToLower(JobState_Name(job.state()));
  const std::string time =
      FormatElapsed(std::max(now - since, absl::ZeroDuration()));
  if (!HasEnded(job.state())) {
    return absl::StrCat("has been ", state, " for ", time);
  }
  return absl::StrCat(job.state() == CANCELLED ? "was " : "", state, " ", time,
                      " ago");
}

// The obstacle of a queued job is a sentence: "needs 3 workers and 2 ps; ...".
std::string ObstacleText(const JobStatus& job) {
  if (job.waiting_for().empty()) return "";
  return absl::StrCat(job.state() == QUEUED ? job.waiting_for()
                                            : WaitingForText(job.waiting_for()),
                      "\n");
}

}  // namespace

std::string WhyText(const JobStatus& job, absl::Time now,
                    absl::Span<const JobEvent> events,
                    const JobProgress& before) {
  std::string text =
      absl::StrCat(job.job_id(), " (", job.spec().name(), ") ",
                   StateSince(job, now), "\n", ObstacleText(job));
  if (job.state() == RUNNING && OnlyEvaluates(job.spec())) {
    absl::StrAppend(&text, OnlyEvaluatesText(job.spec()), "\n");
  } else if (job.state() == RUNNING) {
    // Of workers that have ended no step since nothing can be said.
    const JobProgress in_this_time =
        job.progress().clock() != before.clock() ? before : JobProgress();
    absl::StrAppend(&text, ProgressText(job.progress()), "\n",
                    StragglerText(job, in_this_time),
                    PhasesText(job.progress()));
    for (const std::string& line : BlameLines(job, kBlameLinesMax)) {
      absl::StrAppend(&text, line, "\n");
    }
  }
  if (const std::string elastic = ElasticText(job); !elastic.empty()) {
    absl::StrAppend(&text, elastic, "\n");
  }
  if (HasEnded(job.state()) && !job.transitions().empty()) {
    absl::StrAppend(&text, job.transitions().rbegin()->reason(), "\n");
  }
  absl::StrAppend(&text, RestartsText(job, now), LossesText(job, now),
                  CheckpointsText(job, now));
  if (!HasEnded(job.state())) {
    for (const JobEvent& event : events) {
      absl::StrAppend(&text, FormatElapsed(now - ToTime(event.time())),
                      " ago: ", event.kind(), ": ", event.text(), "\n");
    }
  }
  const bool can_resume = (job.state() == FAILED || job.state() == CANCELLED) &&
                          !job.checkpoints().empty();
  if (can_resume) {
    absl::StrAppend(&text, "once the cause is mended: synctl resume ",
                    job.job_id(), "\n");
  }
  return text;
}

}  // namespace syncline::ctl

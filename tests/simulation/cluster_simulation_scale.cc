// Jobs whose number of workers changes: what users ask for, and the promises.

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/job/lost_workers.h"
#include "common/job/step_shares.h"
#include "scheduler/core/describe.h"
#include "scheduler/core/job/restart_policy.h"
#include "tests/simulation/cluster_simulation.h"

namespace syncline {
namespace {

// So many jobs change their workers for no one's sake.
constexpr double kFixed = 0.3;

}  // namespace

void ClusterSimulation::MakeElastic(JobSpec* spec) {
  spec->mutable_training()->set_batch_size(64);
  spec->mutable_checkpoint()->set_every_clocks(1);
  spec->mutable_checkpoint()->set_directory("/c");
  spec->mutable_limits()->set_max_seconds(200);
  ResourcesSpec* const resources = spec->mutable_resources();
  if (Chance(kFixed)) return;
  const uint32_t workers = resources->workers();
  resources->set_min_workers(1 + static_cast<uint32_t>(random_.Below(workers)));
  if (Chance(0.5)) {
    resources->set_max_workers(workers +
                               static_cast<uint32_t>(random_.Below(3)));
  }
}

void ClusterSimulation::ScaleSomething() {
  if (frozen()) return;
  std::vector<std::string> open;
  for (const auto& [id, seen] : seen_) {
    if (!scheduler::IsFinal(seen.state)) open.push_back(id);
  }
  if (open.empty()) return;
  ScaleRequest request;
  request.set_job_id(open[random_.Below(open.size())]);
  const scheduler::Job* const job = *core_->FindJob(request.job_id());
  const ResourcesSpec& resources = job->status().spec().resources();
  const uint32_t least = std::max(1u, resources.min_workers());
  const uint32_t most = std::max({least, 5u, resources.workers()});
  uint32_t workers =
      least + static_cast<uint32_t>(random_.Below(most - least + 1));
  if (resources.max_workers() > 0) {
    workers = std::min(workers, resources.max_workers());
  }
  request.set_workers(workers);
  const std::string before = job->status().SerializeAsString();
  Feed([&](scheduler::ClusterActions* a) {
    const absl::Status status = core_->Scale(request, CoreNow(), a);
    if (status.ok()) {
      ++scaled_;
    } else if (!absl::IsFailedPrecondition(status) ||
               job->status().SerializeAsString() != before) {
      Violation(absl::StrCat("scaling: ", status.ToString()));
    }
  });
}

// Checks the number of workers with which an attempt begins.
void ClusterSimulation::CheckWorkers(const JobStatus& status,
                                     const Seen& seen) {
  const ResourcesSpec& resources = status.spec().resources();
  const auto workers = static_cast<uint32_t>(status.workers_size());
  const uint32_t scaled = status.wanted_workers();
  const uint32_t wanted = scaled > 0 ? scaled : resources.workers();
  uint32_t least = resources.min_workers() > 0
                       ? std::min(resources.min_workers(), wanted)
                       : wanted;
  // One that was scaled up goes on with what it had.
  if (scaled > 0 && seen.workers > 0) least = std::min(least, seen.workers);
  const uint32_t most =
      scaled > 0 ? scaled : std::max(wanted, resources.max_workers());
  if (workers < least || workers > most) {
    Violation(absl::StrCat(status.job_id(), " begins with ", workers,
                           " workers, not ", least, " to ", most));
  }
  if (workers < wanted) ++begun_short_;
  if (workers > seen.workers && seen.workers > 0) ++grown_;
  if (workers <= wanted) return;
  for (const auto& [id, other] : seen_) {
    if (id != status.job_id() && other.state == QUEUED &&
        (*core_->FindJob(id))->IsWaiting()) {
      Violation(absl::StrCat(status.job_id(), " takes ", workers,
                             " workers while ", id, " waits"));
    }
  }
}

// It was not moved for the sake of more workers just after it had begun, but
// for what users have said.
void ClusterSimulation::CheckPause(const JobStatus& status) {
  const int last = status.transitions_size() - 1;
  if (last < 1 || status.state() != QUEUED ||
      !absl::StrContains(status.transitions(last).reason(),
                         "more workers are free")) {
    return;
  }
  const absl::Duration ran =
      scheduler::FromTimestamp(status.transitions(last).time()) -
      scheduler::FromTimestamp(status.transitions(last - 1).time());
  if (ran < CoreOptions().grow_pause) {
    Violation(absl::StrCat(status.job_id(), " is moved after ",
                           absl::FormatDuration(ran)));
  }
}

// An attempt goes on without a worker only where enough are left, the chief
// among them, and no later scheduler waits for that one.
void ClusterSimulation::CheckLosses(const JobStatus& status, const Seen& seen) {
  const bool is_same = seen.attempt == status.attempt();
  if (is_same && WorkersLeft(status) < seen.workers) ++outlived_;
  if (status.lost_workers().empty()) return;
  const ResourcesSpec& resources = status.spec().resources();
  if (resources.min_workers() == 0 ||
      WorkersLeft(status) < resources.min_workers() || IsLost(status, 0)) {
    Violation(absl::StrCat(status.job_id(), " goes on with ",
                           WorkersLeft(status), " workers"));
  }
  if (is_same && WorkersLeft(status) > seen.workers) {
    Violation(absl::StrCat(status.job_id(), " has found a lost worker"));
  }
}

// Its members are told how many they are, and that a clock has its samples.
void ClusterSimulation::CheckSamples(const JobAssignment& assignment) {
  const auto job = core_->FindJob(assignment.job_id());
  if (!job.ok()) return;
  const JobSpec& spec = (*job)->status().spec();
  const auto workers = static_cast<uint32_t>(assignment.workers_size());
  if (assignment.spec().resources().workers() != workers ||
      SharesOf(assignment.spec()).samples != SharesOf(spec).samples) {
    Violation(absl::StrCat(assignment.job_id(), " is told of ",
                           SharesOf(assignment.spec()).samples,
                           " samples a clock, by ", workers, " workers"));
  }
}

}  // namespace syncline

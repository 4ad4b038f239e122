// The promises of the scheduler, checked after every event.

#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/job/lost_workers.h"
#include "common/job/stop_reasons.h"
#include "scheduler/core/describe.h"
#include "scheduler/core/job/job_checkpoints.h"
#include "scheduler/core/job/restart_policy.h"
#include "scheduler/core/job/worker_range.h"
#include "tests/simulation/cluster_simulation.h"

namespace syncline {
namespace {

// A lease, the message that was under way, a tick, and a freeze before it.
constexpr absl::Duration kNoticedWithin = absl::Milliseconds(6800);

}  // namespace

void ClusterSimulation::Check(const scheduler::ClusterActions& actions) {
  for (const scheduler::Job* job : core_->Jobs()) CheckJob(*job);
  // A job's start is on disk before any member or user is told of it.
  std::set<std::string> written;
  for (const scheduler::ClusterAction& action : actions) {
    if (auto* persist = std::get_if<scheduler::PersistJob>(&action)) {
      if (persist->durable) written.insert(persist->job_id);
    }
    auto* send = std::get_if<scheduler::SendCommand>(&action);
    if (send == nullptr || !send->message.has_prepare()) continue;
    const std::string& id = send->message.prepare().assignment().job_id();
    const bool is_repeated = durable_[id].status.state() != QUEUED;
    if (is_repeated) continue;
    if (!written.contains(id)) Violation(absl::StrCat(id, " begins unwritten"));
    // No member that the scheduler takes for free works for an earlier attempt.
    // One that was lost and has come back is being stopped.
    for (const Daemon& daemon : daemons_) {
      if (daemon.alive && daemon.job_id == id && IsFree(daemon.session)) {
        Violation(absl::StrCat(id, " begins while attempt ", daemon.attempt,
                               " runs"));
      }
    }
  }
}

bool ClusterSimulation::IsFree(scheduler::SessionId session) const {
  const auto* const entry = core_->membership().Find(session);
  if (entry == nullptr) return false;
  const ClusterStatus cluster = core_->Cluster(core_now_);
  for (const ClusterStatus::Entry& other : cluster.members()) {
    const Task& task = other.member().task();
    if (task.type() == entry->member.task().type() &&
        task.index() == entry->member.task().index()) {
      return other.job_id().empty();
    }
  }
  return false;
}

bool ClusterSimulation::HasEvaluator() const {
  for (const auto* const entry : core_->membership().All()) {
    if (entry->member.task().type() == EVALUATOR) return true;
  }
  return false;
}

bool ClusterSimulation::FitsIntoTheCluster(const scheduler::Job& job) const {
  uint32_t workers = 0;
  uint32_t ps = 0;
  const ClusterStatus cluster = core_->Cluster(core_now_);
  for (const ClusterStatus::Entry& entry : cluster.members()) {
    const TaskType type = entry.member().task().type();
    if (type == EVALUATOR || absl::StartsWith(entry.job_id(), "(")) continue;
    ++(type == PS ? ps : workers);
  }
  if (job.NeedsEvaluator() && !HasEvaluator()) return false;
  return scheduler::RangeOf(job.status()).least <= workers &&
         job.status().spec().resources().ps() <= ps;
}

// No member is blamed that lives and comes back in time.
void ClusterSimulation::CheckLoss(const std::string& reason) {
  for (const Daemon& daemon : daemons_) {
    if (!daemon.alive ||
        !absl::StartsWith(
            reason,
            absl::StrCat(scheduler::MemberTextWithIncarnation(MemberOf(daemon)),
                         " was lost"))) {
      continue;
    }
    const bool stayed_away =
        daemon.away_until != absl::InfinitePast() &&
        (absl::StrContains(reason, "has not registered again") ||
         absl::StrContains(reason, "has not come back within"));
    if (!stayed_away) Violation(absl::StrCat("wrong blame: ", reason));
  }
}

void ClusterSimulation::CheckJob(const scheduler::Job& job) {
  const JobStatus& status = job.status();
  Seen& seen = seen_[job.id()];
  if (status.state() != seen.state) {
    const bool waits_again =
        status.state() == QUEUED && seen.attempt == status.attempt();
    if (scheduler::IsFinal(seen.state) ||
        (status.state() < seen.state && !waits_again)) {
      Violation(absl::StrCat(job.id(), " went from ", JobState_Name(seen.state),
                             " to ", JobState_Name(status.state())));
    }
    if (status.state() == FAILED || status.state() == QUEUED) {
      CheckLoss(status.transitions().rbegin()->reason());
    }
    if (status.state() == SUCCEEDED && status.attempt() > 1) ++retried_;
    if (status.state() == SUCCEEDED && was_frozen_.contains(job.id())) {
      ++outlived_freezes_;
    }
    if (status.state() == SUCCEEDED && job.NeedsEvaluator()) {
      ++ended_scored_;
      // Nobody but the job's end waits, and that for the last one.
      if (!status.checkpoints().empty() &&
          !answered_[job.id()].contains(
              status.checkpoints().rbegin()->path())) {
        Violation(absl::StrCat(job.id(), " ends without its last evaluation"));
      }
    }
    const auto left = was_left_.find(job.id());
    if (status.state() == SUCCEEDED && left != was_left_.end() &&
        left->second == status.attempt()) {
      ++outlived_restarts_;
    }
    if (seen.state == QUEUED && status.state() == PREPARING) {
      CheckWorkers(status, seen);
      for (const auto& [id, other] : seen_) {
        if (id < job.id() && other.state == QUEUED &&
            (*core_->FindJob(id))->IsWaiting() &&
            FitsIntoTheCluster(**core_->FindJob(id))) {
          Violation(absl::StrCat(job.id(), " overtook ", id));
        }
      }
    }
  }
  if (status.transitions_size() < seen.transitions) {
    Violation(absl::StrCat(job.id(), " forgot a transition"));
  }
  CheckPause(status);
  CheckLosses(status, seen);
  CheckAttempts(status, seen);
  seen = {status.state(), status.transitions_size(), status.attempt(),
          scheduler::NextStart(status).clock, WorkersLeft(status)};
  if (job.stopping() || status.state() == QUEUED) return;
  // A job that goes on has all its members that are not done, and has them to
  // itself.
  const size_t needed = static_cast<size_t>(status.workers_size()) +
                        static_cast<size_t>(status.ps_size()) +
                        (status.has_evaluator() ? 1 : 0);
  const auto done = static_cast<size_t>(status.done_ranks_size());
  const size_t there = job.Participants().size();
  if (there > needed || there + done < needed) {
    Violation(absl::StrCat(job.id(), " goes on without a member"));
  }
  if (status.has_evaluator() && !status.spec().data().has_test()) {
    Violation(absl::StrCat(job.id(), " has nothing to evaluate"));
  }
  for (const scheduler::SessionId session : job.Participants()) {
    if (core_->membership().Find(session) == nullptr) {
      Violation(absl::StrCat(job.id(), " goes on with a lost member"));
    }
    if (scheduler::IsAbsent(session)) continue;  // the window decides
    if (CoreNow() - streams_[session].lost > kNoticedWithin) {
      Violation(absl::StrCat(job.id(), " does not notice a dead member"));
    }
  }
}

// A job has no more attempts than it asks for, but for those in which a
// checkpoint was not readable, and never forgets another checkpoint.
void ClusterSimulation::CheckAttempts(const JobStatus& status,
                                      const Seen& seen) {
  uint32_t most = attempts_max_;
  int moves = 0;
  for (const JobTransition& transition : status.transitions()) {
    most += absl::StrContains(transition.reason(), "cannot be read") ? 1 : 0;
    moves += absl::StartsWith(transition.reason(), kPlannedMove) ? 1 : 0;
  }
  most += static_cast<uint32_t>(moves);
  if (status.transitions_size() > seen.transitions &&
      absl::StartsWith(status.transitions().rbegin()->reason(), kPlannedMove)) {
    ++moved_;
  }
  if (status.attempt() < seen.attempt || status.attempt() > most) {
    Violation(absl::StrCat(status.job_id(), " is at attempt ", status.attempt(),
                           " after ", seen.attempt));
  }
  const int64_t clock = scheduler::NextStart(status).clock;
  if (clock >= seen.checkpoint) return;
  ++unreadable_;
  if (!absl::StrContains(status.transitions().rbegin()->reason(),
                         "cannot be read")) {
    Violation(absl::StrCat(status.job_id(), " goes back from clock ",
                           seen.checkpoint, " to ", clock));
  }
}

void ClusterSimulation::CheckStart(const JobAssignment& assignment) {
  const JobStatus& on_disk = durable_[assignment.job_id()].status;
  if (on_disk.attempt() != assignment.attempt()) return;  // a late command
  const scheduler::StartPoint start = scheduler::NextStart(on_disk);
  if (assignment.start_clock() != start.clock ||
      assignment.has_start_from() != start.from.has_value() ||
      assignment.start_from().clock() != assignment.start_clock()) {
    Violation(absl::StrCat(assignment.job_id(), " begins at clock ",
                           assignment.start_clock(), ", its checkpoint is at ",
                           start.clock));
  }
  resumed_ += assignment.has_start_from() ? 1 : 0;
}

void ClusterSimulation::CheckLate(const DaemonMessage& message,
                                  const std::function<void()>& take) {
  const auto said = [&]() -> std::pair<std::string, uint32_t> {
    if (message.has_prepared()) {
      return {message.prepared().job_id(), message.prepared().attempt()};
    }
    if (message.has_report()) {
      return {message.report().job_id(), message.report().attempt()};
    }
    return {message.done().job_id(), message.done().attempt()};
  }();
  const auto job = core_->FindJob(said.first);
  if (!job.ok() || said.second == 0 ||
      said.second >= (*job)->status().attempt()) {
    return take();
  }
  ++late_;
  const std::string before = (*job)->status().SerializeAsString();
  const size_t members = (*job)->Participants().size();
  take();
  if ((*job)->status().SerializeAsString() != before ||
      (*job)->Participants().size() != members) {
    Violation(absl::StrCat(said.first, " is changed by attempt ", said.second));
  }
}

void ClusterSimulation::CheckEnd() {
  for (const auto& [id, seen] : seen_) {
    if (!scheduler::IsFinal(seen.state)) {
      Violation(absl::StrCat(id, " ends as ", JobState_Name(seen.state)));
    }
  }
  if (core_->membership().size() != daemons_.size()) {
    Violation(absl::StrCat(core_->membership().size(), " members at the end"));
  }
  if (core_->engaged_count() != 0) {
    Violation(absl::StrCat(core_->engaged_count(), " members are never freed"));
  }
  for (const Daemon& daemon : daemons_) {
    if (core_->membership().Find(daemon.session) == nullptr) {
      Violation(absl::StrCat(scheduler::TaskTypeName(daemon.type), daemon.index,
                             " is no member at the end"));
    }
    if (!daemon.job_id.empty()) {
      Violation(absl::StrCat(scheduler::TaskTypeName(daemon.type), daemon.index,
                             " still works for ", daemon.job_id));
    }
  }
}

}  // namespace syncline

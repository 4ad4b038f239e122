// The promises of the scheduler, checked after every event.

#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "scheduler/core/describe.h"
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
    if (!is_repeated && !written.contains(id))
      Violation(absl::StrCat(id, " begins unwritten"));
  }
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
  const ResourcesSpec& need = job.status().spec().resources();
  return need.workers() <= workers && need.ps() <= ps;
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
        absl::StrContains(reason, "has not registered again");
    if (!stayed_away) Violation(absl::StrCat("wrong blame: ", reason));
  }
}

void ClusterSimulation::CheckJob(const scheduler::Job& job) {
  const JobStatus& status = job.status();
  Seen& seen = seen_[job.id()];
  if (status.state() != seen.state) {
    const bool waits_again = status.state() == QUEUED &&
                             seen.attempt == status.attempt() &&
                             status.attempt() < attempts_max_;
    if (scheduler::IsFinal(seen.state) ||
        (status.state() < seen.state && !waits_again)) {
      Violation(absl::StrCat(job.id(), " went from ", JobState_Name(seen.state),
                             " to ", JobState_Name(status.state())));
    }
    if (status.state() == FAILED) {
      CheckLoss(status.transitions().rbegin()->reason());
    }
    if (status.state() == SUCCEEDED && status.attempt() > 1) ++retried_;
    if (status.state() == SUCCEEDED && was_frozen_.contains(job.id())) {
      ++outlived_freezes_;
    }
    if (seen.state == QUEUED && status.state() == PREPARING) {
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
  if (status.attempt() < seen.attempt || status.attempt() > attempts_max_) {
    Violation(absl::StrCat(job.id(), " is at attempt ", status.attempt(),
                           " after ", seen.attempt));
  }
  seen = {status.state(), status.transitions_size(), status.attempt()};
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
    if (CoreNow() - streams_[session].lost > kNoticedWithin) {
      Violation(absl::StrCat(job.id(), " does not notice a dead member"));
    }
  }
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

#include "scheduler/core/job/job_members.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "scheduler/core/describe.h"

namespace syncline::scheduler {
namespace {

using Role = JobMember::Role;
using Stage = JobMember::Stage;

// "worker 1 at HOST:PORT: reading 3 of 7 files".
std::string ActivityText(const JobMember& member) {
  return absl::StrCat(MemberText(member.member()),
                      member.activity.empty() ? "" : ": ", member.activity);
}

}  // namespace

void JobMembers::Add(SessionId session, Role role, Participant participant) {
  members_.push_back({session, std::move(participant), role});
}

JobMember* JobMembers::Find(SessionId session) {
  for (JobMember& member : members_) {
    if (member.session == session && member.stage != Stage::kGone) {
      return &member;
    }
  }
  return nullptr;
}

bool JobMembers::AllAre(Stage stage) const {
  return absl::c_all_of(
      members_, [&](const JobMember& member) { return member.stage == stage; });
}

bool JobMembers::WorkersAreDone() const {
  return absl::c_all_of(members_, [](const JobMember& member) {
    return member.role != Role::kWorker || member.done;
  });
}

bool JobMembers::WorkIsDone() const {
  return absl::c_all_of(members_, [](const JobMember& member) {
    return member.role == Role::kPs || member.done;
  });
}

bool JobMembers::OthersAreDone() const {
  int others = 0;
  for (const JobMember& member : members_) {
    if (member.role != Role::kWorker || member.IsChief() || member.lost) {
      continue;
    }
    if (!member.done) return false;
    ++others;
  }
  return others > 0;
}

bool JobMembers::Evaluates(const JobMember& member) const {
  const bool has_evaluator = absl::c_any_of(
      members_, [](const JobMember& m) { return m.role == Role::kEvaluator; });
  return has_evaluator ? member.role == Role::kEvaluator : member.IsChief();
}

std::vector<SessionId> JobMembers::Sessions() const {
  std::vector<SessionId> sessions;
  for (const JobMember& member : members_) {
    if (member.stage != Stage::kGone) sessions.push_back(member.session);
  }
  return sessions;
}

absl::StatusOr<SessionId> JobMembers::WorkerSession(
    uint32_t rank, const std::string& job_id) const {
  uint32_t workers = 0;
  bool has_evaluator = false;
  for (const JobMember& member : members_) {
    has_evaluator |= member.role == Role::kEvaluator;
    if (member.role != Role::kWorker) continue;
    ++workers;
    if (member.rank() != rank) continue;
    if (member.stage == Stage::kPrepared && !member.done) return member.session;
    return absl::FailedPreconditionError(absl::StrCat(
        "worker ", rank, " of job ", job_id, " has no step to do"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("job ", job_id, " has no worker ", rank, "; it has ",
                   workers, ", and their ranks begin at 0",
                   has_evaluator && rank == workers
                       ? absl::StrCat("; rank ", rank,
                                      " is its evaluator, which does no steps")
                       : ""));
}

std::vector<std::string> JobMembers::Problems() const {
  std::vector<std::string> problems;
  for (const JobMember& member : members_) {
    problems.insert(problems.end(), member.problems.begin(),
                    member.problems.end());
  }
  return problems;
}

std::string JobMembers::ProblemsText() const {
  std::vector<std::string> problems;
  for (const JobMember& member : members_) {
    const std::string who = MemberText(member.member());
    for (const std::string& problem : member.problems) {
      problems.push_back(absl::StrCat(who, ": ", problem));
    }
  }
  return absl::StrJoin(problems, "\n");
}

std::string JobMembers::UnpreparedText() const {
  std::vector<std::string> missing;
  for (const JobMember& member : members_) {
    if (member.stage == Stage::kPreparing) {
      missing.push_back(ActivityText(member));
    }
  }
  return absl::StrJoin(missing, ", ");
}

bool JobMembers::IsWaitedFor(const JobMember& member, JobState state) const {
  if (state == PREPARING && member.stage == Stage::kPreparing) return true;
  if (state == RUNNING && member.role == Role::kEvaluator && !member.done &&
      WorkersAreDone()) {
    return true;
  }
  return !member.activity.empty() && member.stage != Stage::kGone;
}

std::string JobMembers::WaitingText(JobState state) const {
  std::vector<std::string> waited_for;
  for (const JobMember& member : members_) {
    if (IsWaitedFor(member, state)) waited_for.push_back(ActivityText(member));
  }
  return absl::StrJoin(waited_for, "; ");
}

}  // namespace syncline::scheduler

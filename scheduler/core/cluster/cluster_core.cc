#include "scheduler/core/cluster/cluster_core.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/incarnation.h"
#include "common/base/status_macros.h"
#include "common/job/checkpoint_trouble.h"
#include "common/job/evaluate_validator.h"
#include "common/job/profile_limits.h"
#include "scheduler/core/describe.h"
#include "scheduler/core/message_sizes.h"

namespace syncline::scheduler {
namespace {

constexpr char kStreamClosed[] = "stream closed";
constexpr char kNotConfirmed[] = "(not confirmed";

// JobAssignment.attempt of the sender; 0: it does not say, or sends nothing of
// a job.
uint32_t AttemptOf(const DaemonMessage& message) {
  switch (message.event_case()) {
    case DaemonMessage::kPrepared:
      return message.prepared().attempt();
    case DaemonMessage::kReport:
      return message.report().attempt();
    case DaemonMessage::kPsReport:
      return message.ps_report().attempt();
    case DaemonMessage::kUnreachable:
      return message.unreachable().attempt();
    case DaemonMessage::kTakenOut:
      return message.taken_out().attempt();
    default:
      return 0;
  }
}

// True if a registration with the incarnation of `member` is of that process,
// which may not have heard yet which index it was given.
bool IsSameProcess(const Member& member, const Register& request) {
  const Member& other = request.member();
  return other.address() == member.address() &&
         other.hostname() == member.hostname() && other.pid() == member.pid() &&
         other.task().type() == member.task().type() &&
         (request.auto_index() ||
          other.task().index() == member.task().index());
}

}  // namespace

ClusterCore::ClusterCore(Options options)
    : options_(std::move(options)),
      membership_(options_.version),
      address_checks_(options_.confirms_addresses),
      closed_streams_(options_.register_limit),
      reattachment_(options_.reattach_window),
      state_age_(options_.previous_epoch, options_.epoch),
      placement_(options_.settle, options_.expects_evaluator),
      jobs_({options_.prepare_timeout, options_.grace}) {}

void ClusterCore::Restore(std::vector<StoredJob> jobs,
                          const std::vector<std::string>& unreadable,
                          absl::Time now, ClusterActions* actions) {
  placement_.OnStart(now);
  reattachment_.Begin(now);
  for (const std::string& job_id : unreadable) jobs_.Reserve(job_id);
  for (StoredJob& stored : jobs) {
    jobs_.Reserve(stored.status.job_id());
    events_[stored.status.job_id()] =
        JobEventLog(std::move(stored.events), stored.status);
    jobs_.Add(std::move(stored));
  }
  std::vector<Job*> taken_up;
  for (Job* job : jobs_.All()) {
    if (!job->IsOver()) {
      NoteEvent(*job, "scheduler", "a scheduler was started with this job",
                now);
    }
    if (job->status().state() == QUEUED) {
      queue_.Push(job->id());
    } else if (job->CanBeTakenUp()) {
      taken_up.push_back(job);
    } else if (!job->IsOver()) {
      job->OnRestart(now, actions);
      if (job->IsWaiting()) queue_.Push(job->id());
    }
  }
  TakeUp(taken_up, now, actions);
  StartJobs(now, actions);
}

void ClusterCore::TakeUp(const std::vector<Job*>& jobs, absl::Time now,
                         ClusterActions* actions) {
  for (Job* job : jobs) {
    job->TakeUp([this] { return reattachment_.NextSession(); }, now, actions);
  }
  // A member that is done may have ended, and a later job have its task.
  for (const bool done : {false, true}) {
    for (Job* job : jobs) {
      for (const JobMember& member : job->members()) {
        // A lease before the window ends. A worker that was lost stays out.
        if (member.stage == JobMember::Stage::kGone || member.done != done ||
            !membership_.Keep(member.session, member.member(),
                              reattachment_.until() - options_.lease)) {
          continue;
        }
        engaged_[member.session] = {job->id()};
        closed_streams_.Add(member.session, now, reattachment_.until());
      }
    }
  }
  for (Job* job : jobs) {
    for (const SessionId session : job->Participants()) {
      if (membership_.Find(session) != nullptr) continue;
      job->OnGone(session, "another process has its task", now, actions);
    }
    Settle(job, now, actions);
    WaitAgain(job);
  }
  ConfirmAddresses(now, actions);
}

size_t ClusterCore::absent_count() const {
  const std::vector<const Membership::Entry*> all = membership_.All();
  return static_cast<size_t>(absl::c_count_if(
      all,
      [](const Membership::Entry* entry) { return IsAbsent(entry->session); }));
}

bool ClusterCore::CompareState(SessionId session, const Register& request,
                               ClusterActions* actions) {
  StateAge::Known known;
  if (const Job* job = jobs_.Find(request.job_id())) {
    known.attempt_of_job = job->status().attempt();
  }
  for (const Job* job : jobs_.All()) {
    known.largest = std::max(known.largest, job->status().attempt());
  }
  const StateAge::Finding finding = state_age_.OnRegister(request, known);
  if (finding.is_replaced) {
    // The next start on this state begins above it.
    actions->push_back(PersistEpoch{request.scheduler_epoch()});
    actions->push_back(EndSession{
        session, absl::UnavailableError(absl::StrCat(
                     "this scheduler, epoch ", epoch(),
                     ", has been replaced: ", MemberText(request.member()),
                     " has seen one with epoch ", request.scheduler_epoch()))});
    return false;
  }
  jobs_.ReserveNumber(StateAge::JobNumberOf(request));
  for (Job* job : jobs_.All()) {
    job->RaiseAttempt(state_age_.attempt_floor());
  }
  if (!finding.state_is_old) return true;
  actions->push_back(StateIsOld{MemberTextWithIncarnation(request.member())});
  return true;
}

void ClusterCore::OnRegister(SessionId session, const Register& request,
                             absl::Time now, ClusterActions* actions) {
  if (const auto* registered = membership_.Find(session)) {
    actions->push_back(EndSession{
        session, absl::InvalidArgumentError(absl::StrCat(
                     "this stream is that of ",
                     MemberTextWithIncarnation(registered->member)))});
    return OnMemberLost(session, LossCause::kReplaced, "it registered twice",
                        now, actions);
  }
  // The epoch and job that a process tells of count only if it can be a member.
  if (membership_.CheckRequest(request).ok() &&
      !CompareState(session, request, actions)) {
    return;
  }
  const Membership::Entry* same =
      membership_.FindIncarnation(request.member().incarnation());
  if (same != nullptr) {
    if (ResumeStopped(*same, session, request, now, actions) ||
        Resume(*same, session, request, now, actions) ||
        ResumeIdle(*same, session, request, now, actions)) {
      return;
    }
    const SessionId older = same->session;
    const std::string why =
        IsAbsent(older) ? reattachment_.OtherText(WhyNotResumed(*same, request))
                        : "it opened another session";
    EndOlder(older, actions);
    OnMemberLost(older, LossCause::kReplaced, why, now, actions);
  }
  if (MayBeReplacing(request)) {
    actions->push_back(EndSession{
        session,
        absl::UnavailableError(absl::StrCat(
            "a process of this kind on ", request.member().hostname(),
            " has just lost its connection: whether it has ended, so that its "
            "index is free, is known in a moment"))});
    return;
  }
  const auto entry = membership_.Admit(session, request, now);
  if (!entry.ok()) {
    actions->push_back(EndSession{session, entry.status()});
    return;
  }
  address_checks_.Add(session, now);
  Greet(session, request, now, actions);
}

void ClusterCore::Greet(SessionId session, const Register& request,
                        absl::Time now, ClusterActions* actions) {
  Welcome(session, request, actions);
  // The job that it worked for has ended while it was not here.
  if (!request.job_id().empty()) {
    SendStop(session, request.job_id(), /*attempt=*/0,
             "the job is not running any more", now, actions);
  }
  ConfirmAddresses(now, actions);
  StartJobs(now, actions);
}

void ClusterCore::Welcome(SessionId session, const Register& request,
                          ClusterActions* actions) {
  SchedulerMessage reply;
  *reply.mutable_registered()->mutable_task() =
      membership_.Find(session)->member.task();
  reply.mutable_registered()->set_heartbeat_seconds(
      absl::ToDoubleSeconds(options_.heartbeat));
  reply.mutable_registered()->set_lease_seconds(
      absl::ToDoubleSeconds(options_.lease));
  reply.mutable_registered()->set_ends_with_scheduler(
      options_.ends_with_scheduler);
  actions->push_back(SendCommand{session, std::move(reply)});
  if (!shut_down_) return;
  actions->push_back(SendCommand{session, shutdown_});
  told_.insert(request.member().incarnation());
}

std::string ClusterCore::WhyNotResumed(const Membership::Entry& member,
                                       const Register& request) {
  const absl::Status taken = membership_.CheckRequest(request);
  if (!taken.ok()) {
    return absl::StrCat("this scheduler does not take it: ", taken.message());
  }
  const Job* const job = JobOf(member.session);
  if (job != nullptr &&
      (job->stopping() ||
       engaged_.at(member.session).release_by != absl::InfiniteFuture())) {
    return absl::StrCat("job ", job->id(), " is being stopped");
  }
  if (!IsSameProcess(member.member, request)) {
    return "with another address, host, pid or task";
  }
  const std::string expected =
      job == nullptr ? ""
                     : absl::StrCat(" instead of attempt ", job->pass().attempt,
                                    " of job ", job->id());
  if (request.job_id().empty()) {
    return absl::StrCat("has no job", expected);
  }
  return absl::StrCat("has attempt ", request.held().attempt(), " of job ",
                      request.job_id(), expected);
}

bool ClusterCore::Resume(const Membership::Entry& member, SessionId session,
                         const Register& request, absl::Time now,
                         ClusterActions* actions) {
  const SessionId older = member.session;
  Job* const job = JobOf(older);
  if (job == nullptr || job->stopping() ||
      engaged_.at(older).release_by != absl::InfiniteFuture() ||
      !IsSameProcess(member.member, request)) {
    return false;
  }
  // A daemon that names none has not been told of the job yet, or has said that
  // it is done with it, and says so again after this.
  if (!request.job_id().empty() && request.job_id() != job->id()) return false;
  if (!request.job_id().empty() && request.has_held() &&
      !job->IsOfAttempt(request.held().attempt())) {
    return false;
  }
  const bool was_absent = IsAbsent(older);
  if (was_absent && !membership_.CheckRequest(request).ok()) return false;
  if (was_absent) {
    // Its address is confirmed anew, for jobs to come.
    address_checks_.Add(session, now);
    actions->push_back(
        MemberReattached{MemberTextWithIncarnation(member.member), job->id()});
  } else if (!closed_streams_.Contains(older)) {
    EndOlder(older, actions);
  }
  Rebind(older, session, now);
  auto engagement = engaged_.extract(older);
  engagement.key() = session;
  engaged_.insert(std::move(engagement));
  Welcome(session, request, actions);
  job->OnResumed(older, session, /*has_job=*/!request.job_id().empty(),
                 request.held().clock(), now, actions);
  Settle(job, now, actions);
  if (was_absent) ConfirmAddresses(now, actions);
  return true;
}

bool ClusterCore::ResumeIdle(const Membership::Entry& member, SessionId session,
                             const Register& request, absl::Time now,
                             ClusterActions* actions) {
  const SessionId older = member.session;
  if (engaged_.contains(older) || !IsSameProcess(member.member, request) ||
      !membership_.CheckRequest(request).ok()) {
    return false;
  }
  if (!closed_streams_.Contains(older)) EndOlder(older, actions);
  Rebind(older, session, now);
  Greet(session, request, now, actions);
  return true;
}

bool ClusterCore::ResumeStopped(const Membership::Entry& member,
                                SessionId session, const Register& request,
                                absl::Time now, ClusterActions* actions) {
  const SessionId older = member.session;
  const auto engagement = engaged_.find(older);
  if (IsAbsent(older) || engagement == engaged_.end() ||
      engagement->second.release_by == absl::InfiniteFuture() ||
      !IsSameProcess(member.member, request) ||
      !membership_.CheckRequest(request).ok()) {
    return false;
  }
  if (request.job_id() != engagement->second.job_id) {
    // Its last word was lost with its stream.
    Release(older, now, actions);
    return false;
  }
  if (!closed_streams_.Contains(older)) EndOlder(older, actions);
  Rebind(older, session, now);
  auto moved = engaged_.extract(older);
  moved.key() = session;
  const Engagement stopped = engaged_.insert(std::move(moved)).position->second;
  std::string reason = "the job is not running any more";
  if (Job* const job = jobs_.Find(stopped.job_id); job != nullptr) {
    job->Rebind(older, session);
    reason =
        job->stopping() ? job->StopReason() : std::string(job->LeaveReason());
  }
  Welcome(session, request, actions);
  SendStop(session, stopped.job_id, stopped.stopped_attempt, reason, now,
           actions);
  return true;
}

bool ClusterCore::MayBeReplacing(const Register& request) const {
  if (!request.auto_index()) return false;
  return absl::c_any_of(membership_.All(), [&](const Membership::Entry* entry) {
    return closed_streams_.Contains(entry->session) &&
           !engaged_.contains(entry->session) &&
           entry->member.hostname() == request.member().hostname() &&
           entry->member.task().type() == request.member().task().type();
  });
}

void ClusterCore::EndOlder(SessionId older, ClusterActions* actions) {
  actions->push_back(EndSession{
      older, absl::UnavailableError("this process opened another session")});
}

void ClusterCore::Rebind(SessionId older, SessionId session, absl::Time now) {
  membership_.Rebind(older, session, now);
  address_checks_.Rebind(older, session, now);
  closed_streams_.Remove(older);
}

void ClusterCore::ConfirmAddresses(absl::Time now, ClusterActions* actions) {
  for (const auto& due :
       {address_checks_.TakeDue(now), closed_streams_.TakeDue(now)}) {
    for (const SessionId session : due) {
      const Member& member = membership_.Find(session)->member;
      actions->push_back(
          ConfirmAddress{session, member.address(), member.incarnation()});
    }
  }
}

void ClusterCore::OnAddressAnswer(SessionId session, const absl::Status& answer,
                                  absl::Time now, ClusterActions* actions) {
  const Membership::Entry* entry = membership_.Find(session);
  if (entry == nullptr) return;
  if (closed_streams_.Contains(session)) {
    switch (closed_streams_.OnAnswer(session, answer, now)) {
      case ClosedStreams::Outcome::kAlive:
        return membership_.RecordHeartbeat(session, now);
      case ClosedStreams::Outcome::kDead:
        return OnMemberLost(
            session, CauseOfEnd(session),
            IsAbsent(session) ? reattachment_.DeadText() : kStreamClosed, now,
            actions);
      case ClosedStreams::Outcome::kUnknown:
        return;
    }
  }
  using Outcome = AddressChecks::Outcome;
  switch (
      address_checks_.OnAnswer(session, entry->member.address(), answer, now)) {
    case Outcome::kConfirmed:
      // As if it had come just now.
      return StartJobs(now, actions);
    case Outcome::kFirstFailure:
      actions->push_back(
          AddressDoubted{MemberTextWithIncarnation(entry->member),
                         address_checks_.Trouble(session)});
      return;
    case Outcome::kFailure:
    case Outcome::kIgnored:
      return;
  }
}

void ClusterCore::OnMessage(SessionId session, const DaemonMessage& message,
                            absl::Time now, ClusterActions* actions) {
  if (membership_.Find(session) == nullptr) return;
  membership_.RecordHeartbeat(session, now);
  if (message.has_done())
    return OnJobDone(session, message.done(), now, actions);
  // Also of a job that has ended, or that an earlier scheduler ran.
  if (message.has_report()) {
    const WorkerReport& report = message.report();
    const Member& member = membership_.Find(session)->member;
    Job* const reported = jobs_.Find(report.job_id());
    if (reported != nullptr && report.has_activity()) {
      reported->OnKeptResults(member, report.activity(), actions);
    }
    if (reported != nullptr) {
      reported->OnLateReport(member, report, now, actions);
    }
    // A chief that saves the job is given more time to leave it.
    const auto stopped = engaged_.find(session);
    if (stopped != engaged_.end() &&
        stopped->second.release_by != absl::InfiniteFuture() &&
        stopped->second.job_id == report.job_id() &&
        absl::StartsWith(report.activity(), kSavesAlone)) {
      stopped->second.release_by = now + options_.release_timeout;
    }
  }
  Job* job = JobOf(session);
  if (job == nullptr || !job->IsOfAttempt(AttemptOf(message))) return;
  if (message.has_prepared() && message.prepared().job_id() == job->id()) {
    job->OnPrepared(session, message.prepared(), now, actions);
  } else if (message.has_report() && message.report().job_id() == job->id()) {
    job->OnReport(session, message.report(), now, actions);
  } else if (message.has_ps_report() &&
             message.ps_report().job_id() == job->id()) {
    job->OnPsReport(session, message.ps_report(), now, actions);
  } else if (message.has_taken_out() &&
             message.taken_out().job_id() == job->id()) {
    job->OnTakenOut(session, message.taken_out(), now, actions);
  } else if (message.has_unreachable() &&
             message.unreachable().job_id() == job->id()) {
    job->OnUnreachable(session, message.unreachable(), now);
  }
  Settle(job, now, actions);
}

void ClusterCore::OnJobDone(SessionId session, const JobDone& done,
                            absl::Time now, ClusterActions* actions) {
  const auto it = engaged_.find(session);
  if (it == engaged_.end() || it->second.job_id != done.job_id()) return;
  if (it->second.release_by != absl::InfiniteFuture()) {
    const uint32_t stopped = it->second.stopped_attempt;
    // A member that does not name an attempt knows of one alone.
    const bool is_of_stop = stopped == 0 || done.attempt() == stopped ||
                            (done.attempt() == 0 && stopped == 1);
    if (done.released() && is_of_stop) Release(session, now, actions);
    return;
  }
  Job* job = jobs_.Find(done.job_id());
  if (!job->IsOfAttempt(done.attempt())) return;
  job->OnDone(session, done, now, actions);
  Settle(job, now, actions);
}

ClusterCore::LossCause ClusterCore::CauseOfEnd(SessionId session) {
  const Job* const job = JobOf(session);
  return job == nullptr || job->stopping() ? LossCause::kLeft
                                           : LossCause::kDied;
}

void ClusterCore::OnStreamClosed(SessionId session, absl::Time now,
                                 ClusterActions* actions) {
  if (membership_.Find(session) == nullptr) return;  // it was never a member
  if (!options_.confirms_addresses) {
    return OnMemberLost(session, CauseOfEnd(session), kStreamClosed, now,
                        actions);
  }
  closed_streams_.Add(session, now);
  ConfirmAddresses(now, actions);
}

void ClusterCore::OnMemberLost(SessionId session, LossCause cause,
                               absl::string_view why, absl::Time now,
                               ClusterActions* actions) {
  if (membership_.Find(session) == nullptr) return;
  const std::string who =
      MemberTextWithIncarnation(membership_.Find(session)->member);
  if (cause != LossCause::kLeft) {
    const Member& member = membership_.Find(session)->member;
    actions->push_back(
        MemberLost{absl::StrCat(MemberText(member), " on ", member.hostname(),
                                ", process ", member.pid()),
                   std::string(why)});
  }
  ++lost_count_;
  ++losses_[cause];
  placement_.OnMemberLost(now);
  membership_.Remove(session);
  address_checks_.Remove(session);
  closed_streams_.Remove(session);
  const auto engagement = engaged_.find(session);
  if (engagement != engaged_.end()) {
    Job* job = jobs_.Find(engagement->second.job_id);
    engaged_.erase(engagement);
    if (job != nullptr) {
      // A loss that the job outlives is in its record, and told from there.
      if (job->HasMember(session) && !job->GoesOnWithout(session)) {
        NoteEvent(*job, "member", absl::StrCat(who, " was lost: ", why), now);
      }
      job->OnGone(session, why, now, actions);
      Settle(job, now, actions);
      WaitAgain(job);
    }
  }
  StartJobs(now, actions);
}

void ClusterCore::Release(SessionId session, absl::Time now,
                          ClusterActions* actions) {
  const auto engagement = engaged_.find(session);
  Job* job = jobs_.Find(engagement->second.job_id);
  engaged_.erase(engagement);
  if (job != nullptr) {
    job->OnGone(session, /*lost=*/"", now, actions);
    Settle(job, now, actions);
    WaitAgain(job);
  }
  StartJobs(now, actions);
}

void ClusterCore::WaitAgain(const Job* job) {
  if (job->IsWaiting()) queue_.Return(job->id());
}

void ClusterCore::Settle(Job* job, absl::Time now, ClusterActions* actions) {
  for (const std::string& note : job->TakeEvaluationNotes()) {
    NoteEvent(*job, "evaluation", note, now);
  }
  for (const SessionId session : job->TakeLeavers()) {
    const auto it = engaged_.find(session);
    if (it == engaged_.end() || it->second.job_id != job->id() ||
        it->second.release_by != absl::InfiniteFuture()) {
      continue;
    }
    SendStop(session, job->id(), job->pass().attempt, job->LeaveReason(), now,
             actions);
  }
  if (!job->stopping()) return;
  if (job->TakeFailure()) jobs_.NoteRepeatedFault(job);
  for (const SessionId session : job->Participants()) {
    const auto it = engaged_.find(session);
    if (it == engaged_.end() || it->second.job_id != job->id() ||
        it->second.release_by != absl::InfiniteFuture()) {
      continue;
    }
    SendStop(session, job->id(), job->pass().attempt, job->StopReason(), now,
             actions);
  }
}

void ClusterCore::SendStop(SessionId session, const std::string& job_id,
                           uint32_t attempt, absl::string_view reason,
                           absl::Time now, ClusterActions* actions) {
  SchedulerMessage message;
  message.mutable_stop()->set_job_id(job_id);
  message.mutable_stop()->set_attempt(attempt);
  message.mutable_stop()->set_reason(std::string(reason));
  actions->push_back(SendCommand{session, std::move(message)});
  engaged_[session] = {.job_id = job_id,
                       .release_by = now + options_.release_timeout,
                       .stopped_attempt = attempt};
}

void ClusterCore::LoseExpired(absl::Time now, ClusterActions* actions) {
  for (const SessionId session : membership_.Expired(now, options_.lease)) {
    const absl::Duration silence = now - membership_.Find(session)->last_heard;
    if (IsAbsent(session)) {
      OnMemberLost(session, LossCause::kNotBack, reattachment_.NotBackText(),
                   now, actions);
      continue;
    }
    const std::string why = absl::StrCat("silent for ", SecondsText(silence));
    actions->push_back(
        EndSession{session, absl::UnavailableError(absl::StrCat(
                                "lease expired: ", why, ", the lease is ",
                                SecondsText(options_.lease)))});
    // Its host may have ended with it.
    const bool has_left =
        closed_streams_.Contains(session) && !engaged_.contains(session);
    OnMemberLost(session, has_left ? LossCause::kLeft : LossCause::kSilent,
                 has_left ? kStreamClosed : why, now, actions);
  }
  for (const SessionId session : closed_streams_.Overdue(now)) {
    OnMemberLost(
        session, LossCause::kNotBack,
        IsAbsent(session)
            ? reattachment_.NotBackText()
            : absl::StrCat(
                  "it answers at its address, but has not registered again "
                  "within ",
                  SecondsText(options_.register_limit),
                  " of the end of its stream"),
        now, actions);
  }
}

void ClusterCore::OnTick(absl::Time now, ClusterActions* actions) {
  LoseExpired(now, actions);
  std::vector<SessionId> overdue;
  std::set<std::string> running;
  for (const auto& [session, engagement] : engaged_) {
    if (now >= engagement.release_by) overdue.push_back(session);
    if (engagement.release_by == absl::InfiniteFuture()) {
      running.insert(engagement.job_id);
    }
  }
  for (const SessionId session : overdue) {
    const std::string why =
        absl::StrCat("did not release job ", engaged_.at(session).job_id,
                     " within ", SecondsText(options_.release_timeout));
    actions->push_back(EndSession{session, absl::UnavailableError(why)});
    OnMemberLost(session, LossCause::kNotReleased, why, now, actions);
  }
  for (const std::string& job_id : running) {
    Job* job = jobs_.Find(job_id);
    job->OnTick(now, actions);
    Settle(job, now, actions);
  }
  MoveJobs(now, actions);
  ScaleJobs(now, actions);
  ConfirmAddresses(now, actions);
  // A wait for members that may still come may be over.
  if (!queue_.empty()) StartJobs(now, actions);
  jobs_.DeleteOld(options_.keep, now, actions);
}

MemberPool ClusterCore::Pool() const {
  MemberPool pool;
  for (const Membership::Entry* entry : membership_.All()) {
    // One that has a job was confirmed when it was given that, perhaps by an
    // earlier scheduler.
    const bool is_free = !engaged_.contains(entry->session);
    if (is_free && !address_checks_.Confirmed(entry->session)) continue;
    if (!uses_.TakesJobs(entry->member.task())) continue;
    // One whose connection has ended is there, for jobs that wait for it, and
    // can be sent nothing.
    pool.Add(entry->session, entry->member,
             is_free && !closed_streams_.Contains(entry->session));
  }
  return pool;
}

std::vector<const Job*> ClusterCore::ReturningJobs(absl::Time now) {
  std::set<std::string> leaving;
  for (const auto& [session, engagement] : engaged_) {
    leaving.insert(engagement.job_id);
  }
  const MemberPool pool = Pool();
  std::vector<const Job*> returning;
  for (const std::string& job_id : leaving) {
    const Job* const job = jobs_.Find(job_id);
    if (job == nullptr || job->status().state() != QUEUED || job->IsWaiting() ||
        placement_.Decide(*job, pool, now) == JobPlacement::Decision::kPass) {
      continue;
    }
    returning.push_back(job);
  }
  return returning;
}

bool ClusterCore::LeavesRoom(const Job& job, const MemberPool& pool,
                             absl::Span<const Job* const> returning) const {
  Capacity need = NeedOf(job);
  bool is_behind = false;
  for (const Job* other : returning) {
    if (JobNumber(other->id()) > JobNumber(job.id())) continue;
    is_behind = true;
    const Capacity needs_too = NeedOf(*other);
    need.workers += needs_too.workers;
    need.ps += needs_too.ps;
    need.gpu_workers += needs_too.gpu_workers;
  }
  return !is_behind || pool.free().Covers(need);
}

// In the order of submission.
void ClusterCore::StartJobs(absl::Time now, ClusterActions* actions) {
  const std::deque<std::string> waiting = queue_.ids();
  std::map<std::string, TenantAmounts> uses = QuotaUse();
  held_up_.reset();
  std::vector<const Job*> returning;
  if (!waiting.empty()) returning = ReturningJobs(now);
  for (const std::string& job_id : waiting) {
    if (shut_down_) break;
    Job* job = jobs_.Find(job_id);
    // Its tenant's own jobs are what it waits for: others need not.
    if (!WhyQuotaWaits(*job, uses).empty()) continue;
    const MemberPool pool = Pool();
    const JobPlacement::Decision decision = placement_.Decide(*job, pool, now);
    if (decision == JobPlacement::Decision::kHoldUp ||
        (decision == JobPlacement::Decision::kStart &&
         !LeavesRoom(*job, pool, returning))) {
      held_up_ = LeastOf(*job);
      break;
    }
    if (decision == JobPlacement::Decision::kPass) continue;
    std::string secret = options_.new_secret();
    if (secret.empty()) break;
    queue_.Remove(job_id);
    const bool takes_most = returning.empty() && MayTakeMost(*job);
    Place(job, pool, takes_most, std::move(secret), now, actions);
    uses = QuotaUse();
  }
  UpdateQueue(uses, now, actions);
}

void ClusterCore::Place(Job* job, const MemberPool& free, bool takes_most,
                        std::string secret, absl::Time now,
                        ClusterActions* actions) {
  const ResourcesSpec::Device device =
      job->status().spec().resources().device();
  std::vector<Job::Place> chosen;
  if (const auto evaluator = free.EvaluatorFor(device);
      OnlyEvaluates(job->status().spec()) && evaluator.has_value()) {
    chosen.push_back(*evaluator);
  } else {
    const uint32_t count = WorkersToTake(*job, free, takes_most);
    chosen = free.WorkersFor(*job, WithinQuota(*job, count));
  }
  const auto workers = absl::MakeConstSpan(chosen);
  const auto ps = absl::MakeConstSpan(free.ps).first(NeedOf(*job).ps);
  for (const auto& places : {workers, ps}) {
    for (const Job::Place& place : places) {
      engaged_[place.session] = {job->id()};
    }
  }
  std::optional<Job::Place> evaluator;
  if (job->WantsEvaluator()) evaluator = free.EvaluatorFor(device);
  if (evaluator.has_value()) engaged_[evaluator->session] = {job->id()};
  job->Start(workers, ps, evaluator, std::move(secret), now, actions);
}

void ClusterCore::UpdateQueue(const std::map<std::string, TenantAmounts>& uses,
                              absl::Time now, ClusterActions* actions) {
  const MemberPool pool = Pool();
  const std::string unused = UnusedText();
  uint32_t position = 0;
  for (const std::string& job_id : queue_.ids()) {
    Job* job = jobs_.Find(job_id);
    std::string waiting_for = WhyQuotaWaits(*job, uses);
    if (waiting_for.empty()) {
      waiting_for =
          absl::StrCat(placement_.WaitingText(*job, pool, now), unused);
    }
    if (position > 0) {
      waiting_for =
          absl::StrCat(CountText(position, "job"), " ahead; ", waiting_for);
    }
    job->SetQueueState(position, waiting_for, actions);
    ++position;
  }
}

std::map<std::string, TenantAmounts> ClusterCore::QuotaUse() const {
  const auto has_quota = [this](const std::string& job_id) {
    const absl::StatusOr<const Job*> job = FindJob(job_id);
    return job.ok() && quotas_.HasQuota((*job)->status().tenant());
  };
  if (quotas_.empty() || absl::c_none_of(queue_.ids(), has_quota)) return {};
  return UseOfTenants(jobs_.NewestFirst());
}

std::string ClusterCore::WhyQuotaWaits(
    const Job& job, const std::map<std::string, TenantAmounts>& uses) const {
  const auto use = uses.find(job.status().tenant());
  if (use == uses.end()) return "";
  JobDemand demand = DemandOf(job.status().spec(), job.parameters());
  // It grows to what it should have when the quota allows that.
  demand.amounts[Quota::kWorkers] = LeastOf(job).workers;
  // Of a job that goes on, what it has stored is in use already; it would wait
  // for itself.
  if (job.status().attempt() > 0) demand.amounts[Quota::kDisk] = 0;
  return quotas_.WhyWaits(use->first, demand, use->second);
}

absl::Status ClusterCore::CheckQuota(
    const std::string& tenant, const JobSpec& spec,
    absl::Span<const ParameterInfo> parameters) const {
  if (quotas_.empty()) return absl::OkStatus();
  SYNCLINE_RETURN_IF_ERROR(
      quotas_.CheckFits(tenant, DemandOf(spec, parameters)));
  return quotas_.CheckQueue(tenant, UseOfTenants(jobs_.NewestFirst())[tenant]);
}

void ClusterCore::SetQuotas(TenantQuotas quotas, absl::Time now,
                            ClusterActions* actions) {
  quotas_ = std::move(quotas);
  StartJobs(now, actions);
}

absl::Status ClusterCore::CheckAccepting() const {
  if (shut_down_) {
    return absl::UnavailableError("the cluster is shutting down");
  }
  if (queue_.size() >= options_.queue_max) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the queue is full: ", queue_.size(), " jobs wait already"));
  }
  return absl::OkStatus();
}

absl::StatusOr<StoredJob> ClusterCore::Prepare(
    const JobSpec& spec, std::vector<ParameterInfo> parameters,
    std::vector<TableInfo> tables, const std::string& job_id, absl::Time now) {
  SYNCLINE_RETURN_IF_ERROR(CheckAccepting());
  SYNCLINE_RETURN_IF_ERROR(CheckMessageSizes(spec, parameters, tables));
  SYNCLINE_RETURN_IF_ERROR(CheckHasEvaluator(spec));
  StoredJob job;
  job.status.set_job_id(job_id);
  job.status.set_state(QUEUED);
  *job.status.mutable_spec() = spec;
  JobTransition* transition = job.status.add_transitions();
  transition->set_state(QUEUED);
  *transition->mutable_time() = ToTimestamp(now);
  job.parameters = std::move(parameters);
  job.tables = std::move(tables);
  return job;
}

void ClusterCore::Submit(StoredJob stored, absl::Time now,
                         ClusterActions* actions) {
  const std::string job_id = stored.status.job_id();
  SYNCLINE_CHECK(JobNumber(job_id) != 0 && jobs_.Find(job_id) == nullptr);
  jobs_.Add(std::move(stored));
  queue_.Push(job_id);
  StartJobs(now, actions);
}

absl::Status ClusterCore::Cancel(const std::string& job_id,
                                 absl::string_view reason, absl::Time now,
                                 ClusterActions* actions) {
  SYNCLINE_RETURN_IF_ERROR(FindJob(job_id).status());
  Job* job = jobs_.Find(job_id);
  if (job->IsOver()) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job_id, " is ",
                     JobState_Name(job->status().state()), " already"));
  }
  queue_.Remove(job_id);
  placement_.Forget(job_id);
  const bool goes_back = job->stopping();
  job->Cancel(reason, now, actions);
  Settle(job, now, actions);
  // A chief that has been told that the job goes back may still save it.
  for (const SessionId session : job->Participants()) {
    const auto it = engaged_.find(session);
    if (!goes_back || it == engaged_.end() || it->second.job_id != job_id) {
      continue;
    }
    SendStop(session, job_id, it->second.stopped_attempt, job->StopReason(),
             now, actions);
  }
  StartJobs(now, actions);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ClusterCore::Profile(const ProfileRequest& request,
                                                 ClusterActions* actions) {
  SYNCLINE_RETURN_IF_ERROR(FindJob(request.job_id()).status());
  Job* const job = jobs_.Find(request.job_id());
  if (job->status().state() != RUNNING || job->stopping()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", request.job_id(), " is ", JobState_Name(job->status().state()),
        job->stopping() && !job->IsOver() ? " and about to end" : "",
        "; only a running job can be profiled"));
  }
  if (request.steps() < 1 || request.steps() > kProfileStepsMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "steps: ", request.steps(), " is outside 1..", kProfileStepsMax));
  }
  SYNCLINE_ASSIGN_OR_RETURN(const SessionId worker,
                            job->WorkerSession(request.rank()));
  SYNCLINE_ASSIGN_OR_RETURN(
      const SchedulerMessage message,
      job->RequestProfile(request.rank(), request.steps()));
  // A worker whose stream has closed is told when it has registered again.
  actions->push_back(SendCommand{worker, message});
  return message.profile().artifact();
}

absl::Status ClusterCore::ChangeRegime(const ChangeRegimeRequest& request,
                                       ClusterActions* actions) {
  SYNCLINE_RETURN_IF_ERROR(FindJob(request.job_id()).status());
  Job* const job = jobs_.Find(request.job_id());
  if (job->status().state() != RUNNING || job->stopping()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", request.job_id(), " is ", JobState_Name(job->status().state()),
        job->stopping() && !job->IsOver() ? " and about to end" : "",
        "; the regime of a running job alone can change"));
  }
  SYNCLINE_ASSIGN_OR_RETURN(const SessionId chief, job->WorkerSession(0));
  SYNCLINE_ASSIGN_OR_RETURN(SchedulerMessage message,
                            job->RequestRegime(request));
  // A chief whose stream has closed is told when it has registered again.
  actions->push_back(SendCommand{chief, std::move(message)});
  return absl::OkStatus();
}

std::optional<absl::StatusOr<RegimeTransition>> ClusterCore::RegimeOutcome(
    const std::string& job_id) const {
  const absl::StatusOr<const Job*> job = FindJob(job_id);
  if (!job.ok()) return job.status();
  return (*job)->RegimeOutcome();
}

void ClusterCore::Shutdown(int exit_code, absl::string_view reason,
                           ClusterActions* actions) {
  shut_down_ = true;
  shutdown_.mutable_shutdown()->set_exit_code(exit_code);
  shutdown_.mutable_shutdown()->set_reason(std::string(reason));
  for (const Membership::Entry* entry : membership_.All()) {
    if (IsAbsent(entry->session)) continue;  // told when it comes back
    actions->push_back(SendCommand{entry->session, shutdown_});
    told_.insert(entry->member.incarnation());
  }
}

absl::Status ClusterCore::CheckUpload(const UploadBegin& begin) const {
  // A member engaged only to be stopped named the job itself: that is no proof.
  const Membership::Entry* entry =
      membership_.FindIncarnation(begin.incarnation());
  const auto job = FindJob(begin.job_id());
  if (entry != nullptr && job.ok()) {
    const std::vector<SessionId> participants = (*job)->Participants();
    if (absl::c_linear_search(participants, entry->session)) {
      SYNCLINE_RETURN_IF_ERROR(CheckPass((*job)->pass(),
                                         absl::StrCat("job ", begin.job_id()),
                                         begin.attempt(), begin.job_secret()));
      if (!(*job)->WasLetGo(entry->session) ||
          absl::StartsWith(begin.name(), "logs/")) {
        return absl::OkStatus();
      }
      // The worker will be told so: until then it may try again.
      return absl::AbortedError(
          absl::StrCat("job ", begin.job_id(), " has ended early, and ",
                       begin.name(), " is of later values"));
    }
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "job ", begin.job_id(), " is not of the process with incarnation ",
      IncarnationText(begin.incarnation())));
}

absl::Status ClusterCore::CheckFetch(const DownloadRequest& request) const {
  SYNCLINE_ASSIGN_OR_RETURN(const Job* const job, FindJob(request.job_id()));
  const std::string label = absl::StrCat("job ", request.job_id());
  if (job->pass().secret.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(label, " has no members yet; its files are for them"));
  }
  return CheckPass(job->pass(), label, request.attempt(), request.job_secret());
}

absl::Status ClusterCore::AddArtifact(const std::string& job_id,
                                      const Artifact& artifact,
                                      ClusterActions* actions) {
  SYNCLINE_RETURN_IF_ERROR(FindJob(job_id).status());
  jobs_.Find(job_id)->AddArtifact(artifact, actions);
  return absl::OkStatus();
}

Job* ClusterCore::JobOf(SessionId session) {
  const auto it = engaged_.find(session);
  return it == engaged_.end() ? nullptr : jobs_.Find(it->second.job_id);
}

ClusterStatus ClusterCore::Cluster(absl::Time now) const {
  ClusterStatus status;
  for (const Membership::Entry* entry : membership_.All()) {
    ClusterStatus::Entry* out = status.add_members();
    *out->mutable_member() = entry->member;
    out->mutable_member()->clear_incarnation();
    out->set_silent_seconds(
        std::max(0.0, absl::ToDoubleSeconds(now - entry->last_heard)));
    if (const auto* use = uses_.Find(entry->member.task()); use != nullptr) {
      out->set_use(use->use());
      out->set_use_reason(use->reason());
    }
    const auto engagement = engaged_.find(entry->session);
    if (engagement != engaged_.end()) {
      out->set_job_id(engagement->second.job_id);
    } else if (closed_streams_.Contains(entry->session)) {
      out->set_job_id(absl::StrCat(
          kNotConfirmed,
          ": its connection has ended, and it has not registered again)"));
    } else if (!address_checks_.Confirmed(entry->session)) {
      out->set_job_id(absl::StrCat(
          kNotConfirmed, ": ", address_checks_.Trouble(entry->session), ")"));
    }
  }
  if (status.ByteSizeLong() <= kCommandBytesMax) return status;
  // Without the reasons kMembersMax members fit.
  for (ClusterStatus::Entry& entry : *status.mutable_members()) {
    entry.clear_use_reason();
    if (absl::StartsWith(entry.job_id(), kNotConfirmed)) {
      entry.set_job_id(absl::StrCat(kNotConfirmed, ")"));
    }
  }
  return status;
}

}  // namespace syncline::scheduler

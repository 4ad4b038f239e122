#include "scheduler/core/cluster_core.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/incarnation.h"
#include "common/base/status_macros.h"
#include "common/job/profile_limits.h"
#include "google/protobuf/util/message_differencer.h"
#include "scheduler/core/describe.h"
#include "scheduler/core/message_sizes.h"
#include "scheduler/core/repeated_fault.h"

namespace syncline::scheduler {
namespace {

constexpr int kExitRetryable = 138;
constexpr size_t kDifferenceBytesMax = 1000;
constexpr absl::Duration kExpiryPeriod = absl::Seconds(10);
constexpr char kStreamClosed[] = "stream closed";
constexpr char kNotConfirmed[] = "(not confirmed";

Capacity NeedOf(const Job& job) {
  const ResourcesSpec& resources = job.status().spec().resources();
  return {resources.workers(), resources.ps()};
}

// Paths of the fields whose values are not the same; empty: none.
std::string SpecDifference(const JobSpec& a, const JobSpec& b) {
  std::string report;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&report);
  if (differencer.Compare(a, b)) return "";
  return absl::StrJoin(
      absl::StrSplit(absl::string_view(report).substr(0, kDifferenceBytesMax),
                     '\n', absl::SkipEmpty()),
      ", ");
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

bool IsWorker(const Member& member) {
  return member.task().type() == CHIEF || member.task().type() == WORKER;
}

}  // namespace

ClusterCore::ClusterCore(Options options)
    : options_(std::move(options)),
      membership_(options_.version),
      address_checks_(options_.confirms_addresses),
      closed_streams_(options_.register_limit) {}

void ClusterCore::Restore(std::vector<StoredJob> jobs,
                          const std::vector<std::string>& unreadable,
                          absl::Time now, ClusterActions* actions) {
  started_at_ = now;
  settled_at_ = now + options_.settle;
  for (const std::string& job_id : unreadable) {
    next_job_ = std::max(next_job_, JobNumber(job_id) + 1);
  }
  for (StoredJob& stored : jobs) {
    const uint64_t number = JobNumber(stored.status.job_id());
    AddJob(number, std::move(stored));
    next_job_ = std::max(next_job_, number + 1);
  }
  for (auto& [number, job] : jobs_) {
    if (job->status().state() == QUEUED) {
      queue_.Push(job->id());
    } else if (!job->IsOver()) {
      job->OnRestart(now, actions);
    }
  }
  StartJobs(now, actions);
}

void ClusterCore::OnRegister(SessionId session, const Register& request,
                             absl::Time now, ClusterActions* actions) {
  if (const auto* registered = membership_.Find(session)) {
    actions->push_back(EndSession{
        session, absl::InvalidArgumentError(absl::StrCat(
                     "this stream is that of ",
                     MemberTextWithIncarnation(registered->member)))});
    return Lose(session, "it registered twice", now, actions);
  }
  const Membership::Entry* same =
      membership_.FindIncarnation(request.member().incarnation());
  if (same != nullptr) {
    if (Resume(*same, session, request, now, actions)) return;
    const SessionId older = same->session;
    actions->push_back(EndSession{
        older, absl::UnavailableError("this process opened another session")});
    Lose(older, "it opened another session", now, actions);
  }
  const auto entry = membership_.Admit(session, request, now);
  if (!entry.ok()) {
    actions->push_back(EndSession{session, entry.status()});
    return;
  }
  Welcome(session, request, actions);
  // The job that it worked for has ended while it was not here.
  if (!request.job_id().empty()) {
    SendStop(session, request.job_id(), "the job is not running any more", now,
             actions);
  }
  address_checks_.Add(session, now);
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
  if (!closed_streams_.Contains(older)) {
    actions->push_back(EndSession{
        older, absl::UnavailableError("this process opened another session")});
  }
  membership_.Rebind(older, session, now);
  address_checks_.Rebind(older, session, now);
  closed_streams_.Remove(older);
  auto engagement = engaged_.extract(older);
  engagement.key() = session;
  engaged_.insert(std::move(engagement));
  Welcome(session, request, actions);
  job->OnResumed(older, session, /*has_job=*/!request.job_id().empty(),
                 actions);
  return true;
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
        return membership_.Heard(session, now);
      case ClosedStreams::Outcome::kDead:
        return Lose(session, kStreamClosed, now, actions);
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
  membership_.Heard(session, now);
  if (message.has_done())
    return OnJobDone(session, message.done(), now, actions);
  // Also of a job that has ended, or that an earlier scheduler ran.
  if (message.has_report() && message.report().has_activity()) {
    Job* const reported = MutableJob(message.report().job_id());
    if (reported != nullptr) {
      reported->OnKeptResults(membership_.Find(session)->member,
                              message.report().activity(), actions);
    }
  }
  Job* job = JobOf(session);
  if (job == nullptr) return;
  if (message.has_prepared() && message.prepared().job_id() == job->id()) {
    job->OnPrepared(session, message.prepared(), now, actions);
  } else if (message.has_report() && message.report().job_id() == job->id()) {
    job->OnReport(session, message.report(), now, actions);
  } else if (message.has_ps_report() &&
             message.ps_report().job_id() == job->id()) {
    job->OnPsReport(session, message.ps_report(), now, actions);
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
    if (done.released()) Release(session, now, actions);
    return;
  }
  Job* job = MutableJob(done.job_id());
  job->OnDone(session, done, now, actions);
  Settle(job, now, actions);
}

void ClusterCore::OnStreamClosed(SessionId session, absl::Time now,
                                 ClusterActions* actions) {
  const Job* const job = JobOf(session);
  if (!options_.confirms_addresses || job == nullptr || job->stopping()) {
    return Lose(session, kStreamClosed, now, actions);
  }
  closed_streams_.Add(session, now);
  ConfirmAddresses(now, actions);
}

void ClusterCore::Lose(SessionId session, absl::string_view why, absl::Time now,
                       ClusterActions* actions) {
  if (membership_.Find(session) == nullptr) return;
  ++lost_count_;
  settled_at_ = now + options_.settle;
  membership_.Remove(session);
  address_checks_.Remove(session);
  closed_streams_.Remove(session);
  const auto engagement = engaged_.find(session);
  if (engagement != engaged_.end()) {
    Job* job = MutableJob(engagement->second.job_id);
    engaged_.erase(engagement);
    if (job != nullptr) {
      job->OnGone(session, why, now, actions);
      Settle(job, now, actions);
    }
  }
  StartJobs(now, actions);
}

void ClusterCore::Release(SessionId session, absl::Time now,
                          ClusterActions* actions) {
  const auto engagement = engaged_.find(session);
  Job* job = MutableJob(engagement->second.job_id);
  engaged_.erase(engagement);
  if (job != nullptr) job->OnGone(session, /*lost=*/"", now, actions);
  StartJobs(now, actions);
}

void ClusterCore::Settle(Job* job, absl::Time now, ClusterActions* actions) {
  if (!job->stopping()) return;
  if (job->TakeFailure()) NoteRepeatedFault(job);
  for (const SessionId session : job->Participants()) {
    const auto it = engaged_.find(session);
    if (it == engaged_.end() || it->second.job_id != job->id() ||
        it->second.release_by != absl::InfiniteFuture()) {
      continue;
    }
    SendStop(session, job->id(), job->StopReason(), now, actions);
  }
}

void ClusterCore::NoteRepeatedFault(Job* job) {
  if (job->status().exit_code() != kExitRetryable) return;
  const std::string fault = FaultOf(job->status());
  if (fault.empty()) return;
  // The latest earlier run of it.
  for (const Job* earlier : Jobs()) {
    if (JobNumber(earlier->id()) >= JobNumber(job->id()) ||
        !IsSameWork(earlier->status(), job->status())) {
      continue;
    }
    if (FaultOf(earlier->status()) == fault) job->MarkRepeated(earlier->id());
    return;
  }
}

void ClusterCore::SendStop(SessionId session, const std::string& job_id,
                           absl::string_view reason, absl::Time now,
                           ClusterActions* actions) {
  SchedulerMessage message;
  message.mutable_stop()->set_job_id(job_id);
  message.mutable_stop()->set_reason(std::string(reason));
  actions->push_back(SendCommand{session, std::move(message)});
  engaged_[session] = {job_id, now + options_.release_timeout};
}

void ClusterCore::LoseExpired(absl::Time now, ClusterActions* actions) {
  for (const SessionId session : membership_.Expired(now, options_.lease)) {
    const absl::Duration silence = now - membership_.Find(session)->last_heard;
    const std::string why = absl::StrCat("silent for ", SecondsText(silence));
    actions->push_back(
        EndSession{session, absl::UnavailableError(absl::StrCat(
                                "lease expired: ", why, ", the lease is ",
                                SecondsText(options_.lease)))});
    Lose(session, why, now, actions);
  }
  for (const SessionId session : closed_streams_.Overdue(now)) {
    Lose(session,
         absl::StrCat("it answers at its address, but has not registered again "
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
    Lose(session, why, now, actions);
  }
  for (const std::string& job_id : running) {
    Job* job = MutableJob(job_id);
    job->OnTick(now, actions);
    Settle(job, now, actions);
  }
  ConfirmAddresses(now, actions);
  // Perhaps nobody is waited for any more.
  if (!queue_.empty()) StartJobs(now, actions);
  ExpireJobs(now, actions);
}

Capacity ClusterCore::FreeMembers::capacity() const {
  return {static_cast<uint32_t>(workers.size()),
          static_cast<uint32_t>(ps.size())};
}

ClusterCore::FreeMembers ClusterCore::Free() const {
  FreeMembers free;
  for (const Membership::Entry* entry : membership_.All()) {
    if (engaged_.contains(entry->session) ||
        !address_checks_.Confirmed(entry->session)) {
      continue;
    }
    if (IsWorker(entry->member)) {
      free.workers.push_back({entry->session, entry->member});
    } else if (entry->member.task().type() == PS) {
      free.ps.push_back({entry->session, entry->member});
    } else if (entry->member.task().type() == EVALUATOR) {
      free.evaluators.push_back({entry->session, entry->member});
    }
  }
  return free;
}

// In the order of submission. A job that has to wait for running ones holds up
// those behind it, so that it is not starved; one that the members there are
// could never run does not: it keeps its place for when more of them join.
void ClusterCore::StartJobs(absl::Time now, ClusterActions* actions) {
  const Capacity total = Total();
  const std::deque<std::string> waiting = queue_.ids();
  for (const std::string& job_id : waiting) {
    if (shut_down_) break;
    Job* job = MutableJob(job_id);
    const FreeMembers free = Free();
    if (total.Covers(NeedOf(*job))) too_large_since_.erase(job_id);
    if (free.capacity().Covers(NeedOf(*job))) {
      if (AwaitsEvaluator(*job, now)) break;
      queue_.Remove(job_id);
      Place(job, free, now, actions);
    } else if (total.Covers(NeedOf(*job)) || MayComeTogether(*job, now)) {
      break;
    }
  }
  UpdateQueue(Free().capacity(), now, actions);
}

// A member that comes and goes all the time settles nothing: a job that has
// been too large for as long as settling takes is not waited for any longer.
bool ClusterCore::MayComeTogether(const Job& too_large, absl::Time now) {
  const auto since = too_large_since_.try_emplace(too_large.id(), now).first;
  return now < settled_at_ && now < since->second + options_.settle;
}

bool ClusterCore::AwaitsEvaluator(const Job& job, absl::Time now) const {
  if (!options_.expects_evaluator || !job.WantsEvaluator()) return false;
  return now < started_at_ + options_.settle &&
         absl::c_none_of(membership_.All(),
                         [&](const Membership::Entry* entry) {
                           return entry->member.task().type() == EVALUATOR &&
                                  address_checks_.Confirmed(entry->session);
                         });
}

// An evaluator is never waited for once the cluster is there: it is taken if it
// is free.
void ClusterCore::Place(Job* job, const FreeMembers& free, absl::Time now,
                        ClusterActions* actions) {
  const Capacity need = NeedOf(*job);
  const auto workers = absl::MakeConstSpan(free.workers).first(need.workers);
  const auto ps = absl::MakeConstSpan(free.ps).first(need.ps);
  for (const auto& places : {workers, ps}) {
    for (const Job::Place& place : places) {
      engaged_[place.session] = {job->id()};
    }
  }
  std::optional<Job::Place> evaluator;
  if (job->WantsEvaluator() && !free.evaluators.empty()) {
    evaluator = free.evaluators.front();
    engaged_[evaluator->session] = {job->id()};
  }
  job->Start(workers, ps, evaluator, now, actions);
}

void ClusterCore::UpdateQueue(const Capacity& free, absl::Time now,
                              ClusterActions* actions) {
  const Capacity total = Total();
  uint32_t position = 0;
  for (const std::string& job_id : queue_.ids()) {
    Job* job = MutableJob(job_id);
    std::string waiting_for =
        free.Covers(NeedOf(*job)) && AwaitsEvaluator(*job, now)
            ? "the cluster's evaluator, which may still come"
            : WaitingText(NeedOf(*job), free, total);
    if (position > 0) {
      waiting_for =
          absl::StrCat(CountText(position, "job"), " ahead; ", waiting_for);
    }
    job->SetQueueState(position, waiting_for, actions);
    ++position;
  }
}

Capacity ClusterCore::Total() const {
  Capacity total;
  for (const Membership::Entry* entry : membership_.All()) {
    if (!address_checks_.Confirmed(entry->session)) continue;
    total.workers += IsWorker(entry->member) ? 1 : 0;
    total.ps += entry->member.task().type() == PS ? 1 : 0;
  }
  return total;
}

std::string ClusterCore::NextJobId() {
  return absl::StrFormat("j-%04d", next_job_++);
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

void ClusterCore::AddJob(uint64_t number, StoredJob stored) {
  if (!stored.client_key.empty()) by_client_key_[stored.client_key] = number;
  jobs_[number] = std::make_unique<Job>(
      std::move(stored), Job::Timing{options_.prepare_timeout, options_.grace});
}

absl::StatusOr<std::optional<std::string>> ClusterCore::FindRepeated(
    const std::string& client_key, const JobSpec& spec,
    const Artifact& model) const {
  const auto known = by_client_key_.find(client_key);
  if (client_key.empty() || known == by_client_key_.end()) return std::nullopt;
  const JobStatus& first = jobs_.at(known->second)->status();
  std::string differs = SpecDifference(first.spec(), spec);
  for (const Artifact& artifact : first.artifacts()) {
    if (artifact.name() == "model.onnx" &&
        (artifact.size_bytes() != model.size_bytes() ||
         artifact.crc32c() != model.crc32c())) {
      absl::StrAppend(&differs, differs.empty() ? "" : ", ", "the model file");
    }
  }
  if (differs.empty()) return first.job_id();
  return absl::AlreadyExistsError(
      absl::StrCat("client key \"", absl::Utf8SafeCHexEscape(client_key),
                   "\" is that of job ", first.job_id(),
                   ", which is another one; what differs: ", differs,
                   ". Submit with another key"));
}

void ClusterCore::Submit(StoredJob stored, absl::Time now,
                         ClusterActions* actions) {
  const std::string job_id = stored.status.job_id();
  const uint64_t number = JobNumber(job_id);
  SYNCLINE_CHECK(number != 0 && !jobs_.contains(number));
  AddJob(number, std::move(stored));
  queue_.Push(job_id);
  StartJobs(now, actions);
}

absl::Status ClusterCore::Cancel(const std::string& job_id,
                                 absl::string_view reason, absl::Time now,
                                 ClusterActions* actions) {
  SYNCLINE_RETURN_IF_ERROR(FindJob(job_id).status());
  Job* job = MutableJob(job_id);
  if (job->IsOver()) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job_id, " is ",
                     JobState_Name(job->status().state()), " already"));
  }
  queue_.Remove(job_id);
  too_large_since_.erase(job_id);
  job->Cancel(reason, now, actions);
  Settle(job, now, actions);
  StartJobs(now, actions);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ClusterCore::Profile(const ProfileRequest& request,
                                                 ClusterActions* actions) {
  SYNCLINE_RETURN_IF_ERROR(FindJob(request.job_id()).status());
  Job* const job = MutableJob(request.job_id());
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
      job->WishForProfile(request.rank(), request.steps()));
  // A worker whose stream has closed is told when it has registered again.
  actions->push_back(SendCommand{worker, message});
  return message.profile().artifact();
}

void ClusterCore::Shutdown(int exit_code, absl::string_view reason,
                           ClusterActions* actions) {
  shut_down_ = true;
  shutdown_.mutable_shutdown()->set_exit_code(exit_code);
  shutdown_.mutable_shutdown()->set_reason(std::string(reason));
  for (const Membership::Entry* entry : membership_.All()) {
    actions->push_back(SendCommand{entry->session, shutdown_});
    told_.insert(entry->member.incarnation());
  }
}

absl::Status ClusterCore::CheckUpload(const std::string& job_id,
                                      uint64_t incarnation) const {
  // A member engaged only to be stopped named the job itself: that is no proof.
  const Membership::Entry* entry = membership_.FindIncarnation(incarnation);
  const auto job = FindJob(job_id);
  if (entry != nullptr && job.ok()) {
    const std::vector<SessionId> participants = (*job)->Participants();
    if (absl::c_linear_search(participants, entry->session)) {
      return absl::OkStatus();
    }
  }
  return absl::FailedPreconditionError(
      absl::StrCat("job ", job_id, " is not of the process with incarnation ",
                   IncarnationText(incarnation)));
}

absl::Status ClusterCore::AddArtifact(const std::string& job_id,
                                      const Artifact& artifact,
                                      ClusterActions* actions) {
  SYNCLINE_RETURN_IF_ERROR(FindJob(job_id).status());
  MutableJob(job_id)->AddArtifact(artifact, actions);
  return absl::OkStatus();
}

void ClusterCore::ExpireJobs(absl::Time now, ClusterActions* actions) {
  if (now < expire_at_) return;
  expire_at_ = now + kExpiryPeriod;
  for (auto it = jobs_.begin(); it != jobs_.end();) {
    Job* job = it->second.get();
    const bool expired = job->IsOver() && now - job->since() >= options_.keep;
    // The newest record stays: its number must not be given again.
    const bool newest = std::next(it) == jobs_.end();
    if (!expired || (newest && job->status().artifacts().empty())) {
      ++it;
      continue;
    }
    if (newest) job->ClearArtifacts(actions);
    if (!newest) {
      std::erase_if(by_client_key_, [&](const auto& entry) {
        return entry.second == it->first;
      });
    }
    actions->push_back(DeleteJob{job->id(), !newest});
    it = newest ? std::next(it) : jobs_.erase(it);
  }
}

Job* ClusterCore::MutableJob(const std::string& job_id) {
  const auto it = jobs_.find(JobNumber(job_id));
  return it == jobs_.end() || it->second->id() != job_id ? nullptr
                                                         : it->second.get();
}

Job* ClusterCore::JobOf(SessionId session) {
  const auto it = engaged_.find(session);
  return it == engaged_.end() ? nullptr : MutableJob(it->second.job_id);
}

absl::StatusOr<const Job*> ClusterCore::FindJob(
    const std::string& job_id) const {
  const auto it = jobs_.find(JobNumber(job_id));
  if (it == jobs_.end() || it->second->id() != job_id) {
    return absl::NotFoundError(absl::StrCat("no job \"", job_id, "\""));
  }
  return it->second.get();
}

std::vector<const Job*> ClusterCore::Jobs() const {
  std::vector<const Job*> jobs;
  jobs.reserve(jobs_.size());
  for (auto it = jobs_.rbegin(); it != jobs_.rend(); ++it) {
    jobs.push_back(it->second.get());
  }
  return jobs;
}

ClusterStatus ClusterCore::Cluster(absl::Time now) const {
  ClusterStatus status;
  for (const Membership::Entry* entry : membership_.All()) {
    ClusterStatus::Entry* out = status.add_members();
    *out->mutable_member() = entry->member;
    out->mutable_member()->clear_incarnation();
    out->set_silent_seconds(absl::ToDoubleSeconds(now - entry->last_heard));
    const auto engagement = engaged_.find(entry->session);
    if (engagement != engaged_.end()) {
      out->set_job_id(engagement->second.job_id);
    } else if (!address_checks_.Confirmed(entry->session)) {
      out->set_job_id(absl::StrCat(
          kNotConfirmed, ": ", address_checks_.Trouble(entry->session), ")"));
    }
  }
  if (status.ByteSizeLong() <= kCommandBytesMax) return status;
  // Without the reasons kMembersMax members fit.
  for (ClusterStatus::Entry& entry : *status.mutable_members()) {
    if (absl::StartsWith(entry.job_id(), kNotConfirmed)) {
      entry.set_job_id(absl::StrCat(kNotConfirmed, ")"));
    }
  }
  return status;
}

}  // namespace syncline::scheduler

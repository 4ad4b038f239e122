#include "scheduler/service/control_loop.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/base/trace_id.h"
#include "common/job/start_validator.h"
#include "common/system/job_logs.h"
#include "common/system/log.h"
#include "common/system/secret.h"
#include "scheduler/core/describe.h"
#include "scheduler/core/stopping.h"

namespace syncline::scheduler {
namespace {

ClusterCore::Options WithSecrets(ClusterCore::Options options) {
  options.new_secret = [] {
    absl::StatusOr<std::string> secret = NewSecret();
    if (secret.ok()) return *std::move(secret);
    LogWarning("no job is started").Status(secret.status());
    return std::string();
  };
  return options;
}

constexpr char kModelArtifact[] = "model.onnx";
// Also how often a watcher sees progress.
constexpr absl::Duration kTickPeriod = absl::Milliseconds(200);
// A loop that has done nothing for so long is stuck on the disk.
constexpr absl::Duration kHeldUpLimit = absl::Seconds(10);

}  // namespace

ControlLoop::ControlLoop(const Options& options, StateStore::Loaded restored,
                         StateStore* state, ArtifactStore* artifacts,
                         SchedulerMetrics* metrics)
    : idle_limit_(options.idle_limit),
      check_owner_(options.check_owner),
      on_superseded_(options.on_superseded),
      confirmer_(options.confirmer),
      state_(state),
      artifacts_(artifacts),
      metrics_(metrics),
      records_(state, metrics),
      core_(WithSecrets(options.core)),
      thread_("scheduler", 1) {
  std::vector<std::string> unreadable;
  for (const auto& record : restored.unreadable) {
    LogError("job record left out").Job(record.job_id).Status(record.why);
    unreadable.push_back(record.job_id);
  }
  for (const StoredJob& job : restored.jobs) {
    SetJobTrace(job.status.job_id(), job.status.trace_id());
  }
  metrics_->SetUnreadable(unreadable.size());
  std::vector<std::string> taken_ids = std::move(restored.without_record);
  taken_ids.insert(taken_ids.end(), unreadable.begin(), unreadable.end());
  // No other thread is there yet, but the annotations want the lock.
  Handle(
      [&](ClusterCore* core, absl::Time now, ClusterActions* actions) {
        core->RestoreUses(restored.uses);
        core->Restore(std::move(restored.jobs), taken_ids, now, actions);
      },
      clock_.Now());
  size_t absent = 0;
  {
    MutexLock lock(&mu_);
    absent = core_.absent_count();
  }
  if (absent > 0) {
    LogInfo("jobs that were running go on; their members are awaited")
        .Field("members", absent)
        .Field("for", absl::FormatDuration(options.core.reattach_window));
  }
  ticker_.emplace("scheduler-tick", kTickPeriod, [this] { Tick(); });
}

ControlLoop::~ControlLoop() { Stop(); }

void ControlLoop::Stop() {
  ticker_->Stop();
  thread_.Stop();
  EndRegimeWaiters();
  checkpoint_waiters_.AnswerAll(SchedulerStopping());
}

bool ControlLoop::Post(Event event, std::function<void()> after) {
  return thread_.TrySubmit([this, event = std::move(event),
                            after = std::move(after),
                            arrived = MonotonicNow()] {
    Handle(event, clock_.Now());
    metrics_->CountHandled(MonotonicNow() - arrived);
    if (after) after();
  });
}

bool ControlLoop::OwnsState() {
  if (superseded_) return false;
  const absl::Status owner =
      check_owner_ == nullptr ? absl::OkStatus() : check_owner_();
  if (owner.ok()) return true;
  superseded_ = true;
  draining_ = true;
  LogError("this scheduler has been replaced").Status(owner);
  if (on_superseded_ != nullptr) on_superseded_(owner);
  return false;
}

void ControlLoop::Handle(const Event& event, absl::Time now) {
  if (!OwnsState()) return;
  ClusterActions actions;
  {
    MutexLock lock(&mu_);
    event(&core_, now, &actions);
    core_.RecordEvents(now, &actions);
  }
  Execute(actions);
}

void ControlLoop::Tick() {
  // One tick at a time, with the time it was due: after a stall of the disk the
  // daemons' messages that have come meanwhile count before their leases do.
  const absl::Time now = clock_.Now();  // also while the loop is held up
  if (tick_queued_.exchange(true)) return;
  const bool queued = thread_.TrySubmit([this, now] {
    tick_queued_ = false;
    if (!draining_) {
      Handle([](ClusterCore* core, absl::Time now,
                ClusterActions* actions) { core->OnTick(now, actions); },
             now);
    }
    HandleLateAnswers();
    if (!OwnsState()) return;
    records_.Retry([this](const std::string& job_id) { return Record(job_id); },
                   clock_.Now());
    records_.RetryEvents(
        [this](const std::string& job_id) { return Events(job_id, 0); },
        clock_.Now());
    NotifyChanged();
    EndIdle();
    MutexLock lock(&mu_);
    ticked_ = MonotonicNow();
    metrics_->Observe(core_, now);
  });
  if (!queued) tick_queued_ = false;
}

void ControlLoop::Execute(const ClusterActions& actions) {
  for (const ClusterAction& action : actions) {
    if (auto* send = std::get_if<SendCommand>(&action)) {
      SendTo(*send);
    } else if (auto* end = std::get_if<EndSession>(&action)) {
      LogWarning("session ended").Status(end->status);
      if (auto session = FindSession(end->session)) session->End(end->status);
    } else if (auto* persist = std::get_if<PersistJob>(&action)) {
      Persist(persist->job_id, persist->durable);
    } else if (auto* changed = std::get_if<JobChanged>(&action)) {
      watchers_.MarkChanged(changed->job_id);
      if (changed->transition) OnTransition(changed->job_id);
      AnswerRegimeWaiter(changed->job_id);
    } else if (auto* old = std::get_if<DeleteJob>(&action)) {
      Forget(*old);
    } else if (auto* confirm = std::get_if<ConfirmAddress>(&action)) {
      Confirm(*confirm);
    } else if (auto* epoch = std::get_if<PersistEpoch>(&action)) {
      LogInfo("scheduler epoch").Field("epoch", epoch->epoch);
      records_.WriteEpoch(epoch->epoch, clock_.Now());
    } else if (auto* back = std::get_if<MemberReattached>(&action)) {
      LogInfo("a member has come back to its job")
          .Job(back->job_id)
          .Field("member", back->member);
    } else if (auto* lost = std::get_if<MemberLost>(&action)) {
      LogWarning("member lost")
          .Field("member", lost->member)
          .Field("why", lost->why);
    } else if (auto* state = std::get_if<StateIsOld>(&action)) {
      LogWarning(
          "the state of this scheduler is older than its cluster, as after a "
          "restore from a backup: jobs that it does not know are stopped")
          .Field("as_seen_by", state->member);
    } else if (auto* doubted = std::get_if<AddressDoubted>(&action)) {
      LogWarning("member not confirmed: no job is placed on it")
          .Field("member", doubted->member)
          .Field("why", doubted->why);
    } else if (auto* answered = std::get_if<CheckpointAnswered>(&action)) {
      checkpoint_waiters_.Answer(answered->request, answered->outcome);
    } else if (auto* append = std::get_if<AppendEvent>(&action)) {
      records_.WriteEvent(*append, clock_.Now());
    }
  }
}

void ControlLoop::Confirm(const ConfirmAddress& confirm) {
  if (confirmer_ == nullptr) return;
  confirmer_->Confirm(
      confirm.address, confirm.incarnation,
      [this, session = confirm.session](const absl::Status& answer) {
        const auto event = [this, session, answer](ClusterCore* core,
                                                   absl::Time now,
                                                   ClusterActions* actions) {
          // As with the ends of streams: a scheduler that stops loses no
          // member.
          if (draining_) return;
          core->OnAddressAnswer(session, answer, now, actions);
        };
        if (Post(event)) return;
        // The queue is full. A member is asked again only after its answer.
        MutexLock lock(&mu_);
        late_answers_.push_back(event);
      });
}

void ControlLoop::HandleLateAnswers() {
  std::vector<Event> answers;
  {
    MutexLock lock(&mu_);
    answers.swap(late_answers_);
  }
  for (const Event& answer : answers) Handle(answer, clock_.Now());
}

void ControlLoop::SendTo(const SendCommand& send) {
  const std::shared_ptr<Session> session = FindSession(send.session);
  SchedulerMessage message = send.message;
  {
    MutexLock lock(&mu_);
    message.set_scheduler_epoch(core_.epoch());
  }
  if (!message.has_registered()) {
    if (session != nullptr) session->Send(message);
    return;
  }
  LogInfo("member registered").Field("member", MemberOf(send.session));
  if (session == nullptr) return;
  const auto secret = NewSecret();
  if (!secret.ok()) return session->End(secret.status());
  {
    MutexLock lock(&mu_);
    const auto stream = sessions_.find(send.session);
    if (stream != sessions_.end()) stream->second.secret = *secret;
  }
  message.mutable_registered()->set_session_secret(*secret);
  message.mutable_registered()->set_scheduler_epoch(message.scheduler_epoch());
  session->Send(message);
}

void ControlLoop::Persist(const std::string& job_id, bool durable) {
  const auto record = Record(job_id);
  if (!record.ok()) return;
  records_.Write(*record, durable, clock_.Now());
}

absl::StatusOr<JobRecord> ControlLoop::Record(const std::string& job_id) const {
  MutexLock lock(&mu_);
  SYNCLINE_ASSIGN_OR_RETURN(const Job* job, core_.FindJob(job_id));
  return job->Record(clock_.Now());
}

// The files first: those without a record would be kept for ever.
void ControlLoop::Forget(const DeleteJob& job) {
  const absl::Status status = artifacts_->DeleteJob(job.job_id);
  if (status.ok() && job.record) records_.DeleteOld(job.job_id, clock_.Now());
  LogInfo(job.record ? "old job deleted" : "files deleted")
      .Job(job.job_id)
      .Status(status);
}

void ControlLoop::EndIdle() {
  const absl::Time since = clock_.Now() - idle_limit_;
  std::vector<std::shared_ptr<Session>> silent;
  std::vector<std::shared_ptr<Transfer>> transfers;
  {
    MutexLock lock(&mu_);
    for (auto& [id, stream] : sessions_) {
      if (stream.opened > since || core_.membership().Find(id) != nullptr) {
        continue;
      }
      stream.opened = absl::InfiniteFuture();  // told once
      silent.push_back(stream.session);
    }
    std::erase_if(transfers_, [](const auto& t) { return t.expired(); });
    for (const auto& transfer : transfers_) {
      transfers.push_back(transfer.lock());
    }
  }
  for (const auto& session : silent) {
    session->End(absl::DeadlineExceededError(absl::StrCat(
        "no Register came within ", absl::FormatDuration(idle_limit_))));
  }
  for (const auto& transfer : transfers) {
    if (transfer != nullptr) transfer->EndIfIdle(since);
  }
}

void ControlLoop::AddTransfer(std::weak_ptr<Transfer> transfer) {
  MutexLock lock(&mu_);
  transfers_.push_back(std::move(transfer));
}

void ControlLoop::OnTransition(const std::string& job_id) {
  const auto status = Get(job_id);
  if (!status.ok()) return;
  const int last = status->transitions_size() - 1;
  LogInfo("job state")
      .Job(job_id)
      .Field("state", JobState_Name(status->state()))
      .Field("reason", status->transitions(last).reason());
  metrics_->CountTransition(status->state());
  Notify(job_id);
}

void ControlLoop::Notify(const std::string& job_id) {
  auto status = Get(job_id);
  if (!status.ok()) return;
  watchers_.Tell(std::make_shared<const JobStatus>(*std::move(status)));
}

void ControlLoop::NotifyChanged() {
  for (const std::string& job_id : watchers_.TakeChanged(clock_.Now())) {
    Notify(job_id);
  }
}

SessionId ControlLoop::AddSession(std::shared_ptr<Session> session) {
  MutexLock lock(&mu_);
  const SessionId id = next_session_++;
  sessions_[id] = {std::move(session), clock_.Now(), /*secret=*/""};
  return id;
}

void ControlLoop::OnMessage(SessionId id, DaemonMessage message,
                            std::function<void()> next) {
  // A stopped loop answers nothing; the server's end breaks the stream.
  (void)Post(
      [this, id, message = std::move(message)](
          ClusterCore* core, absl::Time now, ClusterActions* actions) {
        if (draining_) return;
        if (message.has_register_()) {
          core->OnRegister(id, message.register_(), now, actions);
        } else {
          core->OnMessage(id, message, now, actions);
        }
      },
      std::move(next));
}

void ControlLoop::OnClosed(SessionId id) {
  {
    MutexLock lock(&mu_);
    if (sessions_.erase(id) == 0) return;
    sessions_changed_.SignalAll();
  }
  // The daemons of a scheduler that stops are not lost: its successor marks the
  // running jobs.
  if (draining_) return;
  if (const std::string member = MemberOf(id); !member.empty()) {
    LogInfo("a member's stream has closed").Field("member", member);
  }
  (void)Post([id](ClusterCore* core, absl::Time now, ClusterActions* actions) {
    core->OnStreamClosed(id, now, actions);
  });
}

bool ControlLoop::OnRevoked(SessionId id, const absl::Status& why) {
  const std::string member = MemberOf(id);
  const bool posted = Post(
      [id, why](ClusterCore* core, absl::Time now, ClusterActions* actions) {
        core->OnRevoked(id, why, now, actions);
      });
  if (!posted) return false;
  LogWarning("a daemon's session ends: its certificate was revoked")
      .Field("member", member)
      .Status(why);
  return true;
}

void ControlLoop::OnCertificateEnded(SessionId id, absl::Time end) const {
  LogWarning(
      "the certificate that a daemon's session began with has ended; if the "
      "daemon has no newer one, others refuse its calls, jobs that it gets "
      "fail, and it leaves when its connection ends")
      .Field("member", MemberOf(id))
      .Field("ended", absl::FormatTime(end, absl::UTCTimeZone()));
}

std::string ControlLoop::MemberOf(SessionId id) const {
  MutexLock lock(&mu_);
  const Membership::Entry* entry = core_.membership().Find(id);
  return entry == nullptr ? "" : MemberTextWithIncarnation(entry->member);
}

std::shared_ptr<ControlLoop::Session> ControlLoop::FindSession(
    SessionId id) const {
  MutexLock lock(&mu_);
  const auto it = sessions_.find(id);
  return it == sessions_.end() ? nullptr : it->second.session;
}

absl::StatusOr<std::optional<std::string>> ControlLoop::FindRepeated(
    const CheckedJob& job, absl::Span<const Artifact> files) const {
  MutexLock lock(&mu_);
  return core_.FindRepeated(job.client_key, job.spec, files);
}

void ControlLoop::Submit(CheckedJob job, FileChunkWriter* model,
                         FileChunkWriter* weights, Submitted done) {
  struct Upload {
    const char* name;
    FileChunkWriter* file;
  };
  std::vector<Upload> uploads = {{kModelArtifact, model}};
  if (weights != nullptr) uploads.push_back({kWeightsArtifact, weights});
  std::vector<Artifact> files;
  for (const Upload& upload : uploads) {
    Artifact& file = files.emplace_back();
    file.set_name(upload.name);
    file.set_size_bytes(upload.file->size_bytes());
    file.set_crc32c(upload.file->crc32c());
  }
  const auto first = FindRepeated(job, files);
  if (!first.ok()) return done(first.status());
  if (first->has_value()) return done(Submission{**first, /*repeated=*/true});
  std::string job_id;
  {
    MutexLock lock(&mu_);
    job_id = core_.NextJobId();
  }
  // The files first: a record without its model would be worse than a file
  // without a record.
  for (size_t i = 0; i < uploads.size(); ++i) {
    auto artifact =
        artifacts_->Commit(uploads[i].file, job_id, uploads[i].name);
    if (!artifact.ok()) {
      artifacts_->DeleteJob(job_id).IgnoreError();
      return done(artifact.status());
    }
    files[i] = *std::move(artifact);
  }
  const bool queued = thread_.TrySubmit(
      [this, job_id, job = std::move(job), files = std::move(files), done] {
        const auto submission = Enqueue(job_id, job, files);
        if (!submission.ok() || submission->repeated) {
          const absl::Status deleted = artifacts_->DeleteJob(job_id);
          if (!deleted.ok()) LogWarning("files left").Status(deleted);
        }
        done(submission);
      });
  if (!queued) done(SchedulerStopping());
}

absl::StatusOr<ControlLoop::Submission> ControlLoop::Enqueue(
    const std::string& job_id, const CheckedJob& job,
    absl::Span<const Artifact> files) {
  // The first one may have come while this one's file was written.
  if (!OwnsState()) return SchedulerStopping();
  SYNCLINE_ASSIGN_OR_RETURN(const auto first, FindRepeated(job, files));
  if (first.has_value()) return Submission{*first, /*repeated=*/true};
  const absl::Time now = clock_.Now();
  StoredJob stored;
  {
    MutexLock lock(&mu_);
    SYNCLINE_RETURN_IF_ERROR(
        core_.CheckQuota(job.tenant, job.spec, job.parameters));
    SYNCLINE_ASSIGN_OR_RETURN(stored, core_.Prepare(job.spec, job.parameters,
                                                    job.tables, job_id, now));
  }
  stored.client_key = job.client_key;
  stored.status.set_tenant(job.tenant);
  stored.status.set_trace_id(job.trace_id.empty() ? NewTraceId()
                                                  : job.trace_id);
  SetJobTrace(job_id, stored.status.trace_id());
  for (const Artifact& file : files) *stored.status.add_artifacts() = file;
  SYNCLINE_RETURN_IF_ERROR(records_.WriteNew(stored, now));
  LogInfo("job queued")
      .Job(job_id)
      .Field("name", job.spec.name())
      .Field("model_bytes", files[0].size_bytes());
  Handle(
      [&stored](ClusterCore* core, absl::Time now, ClusterActions* actions) {
        core->Submit(std::move(stored), now, actions);
      },
      now);
  return Submission{job_id, /*repeated=*/false};
}

void ControlLoop::Cancel(const std::string& job_id, const std::string& reason,
                         std::function<void(absl::StatusOr<JobStatus>)> done) {
  auto outcome = std::make_shared<absl::Status>(SchedulerStopping());
  const bool posted = Post(
      [=](ClusterCore* core, absl::Time now, ClusterActions* actions) {
        *outcome = core->Cancel(job_id, reason, now, actions);
      },
      [=, this] {
        if (outcome->ok() && records_.IsUnwritten(job_id)) {
          return done(absl::ResourceExhaustedError(absl::StrCat(
              "job ", job_id,
              " is cancelled, but the scheduler could not "
              "write that to its state: one that starts before it can would go "
              "on with the job; make room on the disk of --state-dir")));
        }
        if (!outcome->ok()) return done(*outcome);
        done(Get(job_id));
      });
  if (!posted) done(SchedulerStopping());
}

void ControlLoop::Profile(const ProfileRequest& request, Accepted done) {
  auto artifact =
      std::make_shared<absl::StatusOr<std::string>>(SchedulerStopping());
  const bool posted = Post(
      [=](ClusterCore* core, absl::Time, ClusterActions* actions) {
        *artifact = core->Profile(request, actions);
      },
      [=] { done(*artifact); });
  if (!posted) done(SchedulerStopping());
}

void ControlLoop::ChangeRegime(const ChangeRegimeRequest& request,
                               RegimeChanged done) {
  auto asked = std::make_shared<absl::Status>(SchedulerStopping());
  const bool posted = Post(
      [=](ClusterCore* core, absl::Time, ClusterActions* actions) {
        *asked = core->ChangeRegime(request, actions);
      },
      [=, this] {
        if (asked->ok() && draining_) *asked = SchedulerStopping();
        if (!asked->ok()) return done(*asked);
        // No change of this job was under way, so nobody waits for one.
        regime_waiters_[request.job_id()] = done;
      });
  if (!posted) done(SchedulerStopping());
}

void ControlLoop::TakeCheckpoint(const std::string& job_id,
                                 CheckpointWaiters::Done done) {
  auto request =
      std::make_shared<absl::StatusOr<uint64_t>>(SchedulerStopping());
  const bool posted = Post(
      [=, this](ClusterCore* core, absl::Time now, ClusterActions* actions) {
        if (!draining_) *request = core->TakeCheckpoint(job_id, now, actions);
      },
      [=, this] {
        if (!request->ok()) return done(request->status());
        // Before its answer, which a later event brings.
        checkpoint_waiters_.Add(**request, done);
      });
  if (!posted) done(SchedulerStopping());
}

void ControlLoop::AnswerRegimeWaiter(const std::string& job_id) {
  const auto waiter = regime_waiters_.find(job_id);
  if (waiter == regime_waiters_.end()) return;
  std::optional<absl::StatusOr<RegimeTransition>> outcome;
  {
    MutexLock lock(&mu_);
    outcome = core_.RegimeOutcome(job_id);
  }
  if (!outcome.has_value()) return;
  const RegimeChanged done = std::move(waiter->second);
  regime_waiters_.erase(waiter);
  done(*std::move(outcome));
}

void ControlLoop::EndRegimeWaiters() {
  for (const auto& [job_id, done] : std::exchange(regime_waiters_, {})) {
    done(SchedulerStopping());
  }
}

void ControlLoop::SetMemberUse(
    const SetMemberUseRequest& request,
    std::function<void(absl::StatusOr<SetMemberUseResponse>)> done) {
  const bool queued =
      thread_.TrySubmit([=, this] { done(UseMember(request)); });
  if (!queued) done(SchedulerStopping());
}

absl::StatusOr<SetMemberUseResponse> ControlLoop::UseMember(
    const SetMemberUseRequest& request) {
  if (!OwnsState() || draining_) return SchedulerStopping();
  SetMemberUseResponse response;
  {
    MutexLock lock(&mu_);
    SYNCLINE_ASSIGN_OR_RETURN(response,
                              core_.CheckMemberUse(request, clock_.Now()));
  }
  SYNCLINE_RETURN_IF_ERROR(records_.WriteUse(request));
  LogInfo("use of a member")
      .Field("member", TaskText(request.task()))
      .Field("use", SetMemberUseRequest::Use_Name(request.use()))
      .Field("reason", request.reason());
  Handle(
      [&](ClusterCore* core, absl::Time now, ClusterActions* actions) {
        core->SetMemberUse(request, now, actions);
      },
      clock_.Now());
  return response;
}

void ControlLoop::AddArtifact(const std::string& job_id,
                              const Artifact& artifact,
                              std::function<void(absl::Status)> done) {
  auto outcome = std::make_shared<absl::Status>(SchedulerStopping());
  const bool posted = Post(
      [=](ClusterCore* core, absl::Time, ClusterActions* actions) {
        *outcome = core->AddArtifact(job_id, artifact, actions);
      },
      [=, this] {
        if (outcome->ok() && records_.IsUnwritten(job_id)) {
          return done(absl::ResourceExhaustedError(
              absl::StrCat("the scheduler has ", artifact.name(), " of job ",
                           job_id, ", but could not write that to its state")));
        }
        done(*outcome);
      });
  if (!posted) done(SchedulerStopping());
}

void ControlLoop::SetQuotas(TenantQuotas quotas) {
  (void)Post([quotas = std::move(quotas)](ClusterCore* core, absl::Time now,
                                          ClusterActions* actions) {
    core->SetQuotas(quotas, now, actions);
  });
}

void ControlLoop::Shutdown(int exit_code, const std::string& reason) {
  (void)Post([=](ClusterCore* core, absl::Time, ClusterActions* actions) {
    core->Shutdown(exit_code, reason, actions);
  });
}

void ControlLoop::Backup(
    std::function<void(absl::StatusOr<std::unique_ptr<StateBackup>>)> done) {
  const auto jobs = [this] {
    std::vector<JobStatus> all;
    MutexLock lock(&mu_);
    for (const Job* job : core_.Jobs()) all.push_back(job->status());
    return all;
  };
  auto begun = StateBackup::Begin(*artifacts_, jobs());
  if (!begun.ok()) return done(begun.status());
  auto backup =
      std::make_shared<std::unique_ptr<StateBackup>>(*std::move(begun));
  // On the thread that writes records, so that none is written meanwhile.
  const bool queued = thread_.TrySubmit([this, jobs, backup, done] {
    if (!OwnsState()) return done(SchedulerStopping());
    const absl::Status taken =
        (*backup)->TakeMoment(state_, *artifacts_, jobs());
    if (!taken.ok()) return done(taken);
    done(std::move(*backup));
  });
  if (!queued) done(SchedulerStopping());
}

absl::Status ControlLoop::Watch(const std::string& job_id,
                                std::shared_ptr<Watcher> watcher) {
  if (draining_) return SchedulerStopping();
  SYNCLINE_RETURN_IF_ERROR(Get(job_id).status());
  const bool queued = thread_.TrySubmit([=, this] {
    // Drain has ended all watches that there were.
    if (draining_) return watcher->OnDrain();
    auto status = Get(job_id);
    if (!status.ok()) return;
    if (!IsFinal(status->state())) watchers_.Add(job_id, watcher);
    watcher->OnStatus(std::make_shared<const JobStatus>(*std::move(status)));
  });
  return queued ? absl::OkStatus() : SchedulerStopping();
}

void ControlLoop::Unwatch(const std::string& job_id, const Watcher* watcher) {
  // After the Watch that may still be queued.
  (void)thread_.TrySubmit([=, this] { watchers_.Remove(job_id, watcher); });
}

void ControlLoop::Drain() {
  draining_ = true;
  const bool queued = thread_.TrySubmit([this] {
    std::map<SessionId, Stream> sessions;
    {
      MutexLock lock(&mu_);
      sessions = sessions_;
    }
    for (const auto& [id, stream] : sessions)
      stream.session->End(SchedulerStopping());
    watchers_.Drain();
    EndRegimeWaiters();
    checkpoint_waiters_.AnswerAll(SchedulerStopping());
  });
  if (!queued) LogWarning("drained after it was stopped");
}

absl::Status ControlLoop::CheckAccepting(const std::string& client_key) const {
  if (draining_) return SchedulerStopping();
  MutexLock lock(&mu_);
  return core_.HasClientKey(client_key) ? absl::OkStatus()
                                        : core_.CheckAccepting();
}

absl::Status ControlLoop::Healthy() const {
  if (draining_) return SchedulerStopping();
  absl::Duration held_up;
  {
    MutexLock lock(&mu_);
    held_up = MonotonicNow() - ticked_;
  }
  if (held_up > kHeldUpLimit) {
    return absl::UnavailableError(
        absl::StrCat("the scheduler has not come to its next event for ",
                     SecondsText(held_up), ": is its disk slow?"));
  }
  return Annotate(records_.Check(), "job records are not written");
}

absl::Status ControlLoop::CheckUpload(const UploadBegin& begin) const {
  if (draining_) return SchedulerStopping();
  MutexLock lock(&mu_);
  SYNCLINE_RETURN_IF_ERROR(core_.CheckUpload(begin));
  const auto stream = sessions_.find(
      core_.membership().FindIncarnation(begin.incarnation())->session);
  if (stream != sessions_.end() &&
      SecretsEqual(stream->second.secret, begin.session_secret())) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(
      absl::StrCat("the upload for job ", begin.job_id(),
                   " does not name the secret of its process's stream; a ",
                   "process whose stream broke has a new secret when it has ",
                   "registered again"));
}

absl::Status ControlLoop::CheckFetch(const DownloadRequest& request) const {
  MutexLock lock(&mu_);
  return core_.CheckFetch(request);
}

absl::StatusOr<JobStatus> ControlLoop::Get(const std::string& job_id) const {
  MutexLock lock(&mu_);
  SYNCLINE_ASSIGN_OR_RETURN(const Job* job, core_.FindJob(job_id));
  return job->Status(clock_.Now());
}

std::optional<std::string> ControlLoop::TenantOf(
    const std::string& job_id) const {
  MutexLock lock(&mu_);
  const auto job = core_.FindJob(job_id);
  if (!job.ok()) return std::nullopt;
  return (*job)->status().tenant();
}

absl::StatusOr<JobTableStatus> ControlLoop::GetTables(
    const std::string& job_id) const {
  MutexLock lock(&mu_);
  SYNCLINE_ASSIGN_OR_RETURN(const Job* job, core_.FindJob(job_id));
  return job->TableStatus(clock_.Now());
}

absl::StatusOr<ClusterCore::EventList> ControlLoop::Events(
    const std::string& job_id, uint64_t from) const {
  MutexLock lock(&mu_);
  return core_.Events(job_id, from);
}

void ControlLoop::Read(
    const std::function<void(const ClusterCore&, absl::Time now)>& read) const {
  MutexLock lock(&mu_);
  read(core_, clock_.Now());
}

bool ControlLoop::AwaitNoSessions(absl::Time deadline, int told) {
  MutexLock lock(&mu_);
  const auto done = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return sessions_.empty() && core_.shut_down_count() >= told;
  };
  while (!done()) {
    if (!sessions_changed_.WaitUntil(&mu_, deadline)) break;
  }
  return done();
}

}  // namespace syncline::scheduler

#include "scheduler/service/control_loop.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
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

// Also how often a watcher sees progress.
constexpr absl::Duration kTickPeriod = absl::Milliseconds(200);
// A loop that has done nothing for so long is stuck on the disk.
constexpr absl::Duration kHeldUpLimit = absl::Seconds(10);

}  // namespace

ControlLoop::ControlLoop(const Options& options, StateStore::Loaded restored,
                         StateStore* state, ArtifactStore* artifacts,
                         SchedulerMetrics* metrics)
    : idle_limit_(options.idle_limit),
      confirmer_(options.confirmer),
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
  metrics_->SetUnreadable(unreadable.size());
  std::vector<std::string> taken_ids = std::move(restored.without_record);
  taken_ids.insert(taken_ids.end(), unreadable.begin(), unreadable.end());
  // No other thread is there yet, but the annotations want the lock.
  Handle(
      [&](ClusterCore* core, absl::Time now, ClusterActions* actions) {
        core->Restore(std::move(restored.jobs), taken_ids, now, actions);
      },
      clock_.Now());
  ticker_.emplace("scheduler-tick", kTickPeriod, [this] { Tick(); });
}

ControlLoop::~ControlLoop() { Stop(); }

void ControlLoop::Stop() {
  ticker_->Stop();
  thread_.Stop();
}

bool ControlLoop::Post(Event event, std::function<void()> after) {
  return thread_.TrySubmit(
      [this, event = std::move(event), after = std::move(after)] {
        Handle(event, clock_.Now());
        if (after) after();
      });
}

void ControlLoop::Handle(const Event& event, absl::Time now) {
  ClusterActions actions;
  {
    MutexLock lock(&mu_);
    event(&core_, now, &actions);
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
    records_.Retry([this](const std::string& job_id) { return Get(job_id); },
                   clock_.Now());
    NotifyChanged();
    EndIdle();
    MutexLock lock(&mu_);
    ticked_ = MonotonicNow();
    metrics_->Observe(core_);
    metrics_->CountLost(static_cast<double>(core_.lost_count() - lost_seen_));
    lost_seen_ = core_.lost_count();
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
    } else if (auto* old = std::get_if<DeleteJob>(&action)) {
      Forget(*old);
    } else if (auto* confirm = std::get_if<ConfirmAddress>(&action)) {
      Confirm(*confirm);
    } else if (auto* doubted = std::get_if<AddressDoubted>(&action)) {
      LogWarning("member not confirmed: no job is placed on it")
          .Field("member", doubted->member)
          .Field("why", doubted->why);
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
  if (!send.message.has_registered()) {
    if (session != nullptr) session->Send(send.message);
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
  SchedulerMessage message = send.message;
  message.mutable_registered()->set_session_secret(*secret);
  session->Send(message);
}

void ControlLoop::Persist(const std::string& job_id, bool durable) {
  const auto status = Get(job_id);
  if (!status.ok()) return;
  records_.Write(*status, durable, clock_.Now());
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
    const CheckedJob& job, uint64_t model_bytes, uint32_t model_crc32c) const {
  Artifact model;
  model.set_size_bytes(model_bytes);
  model.set_crc32c(model_crc32c);
  MutexLock lock(&mu_);
  return core_.FindRepeated(job.client_key, job.spec, model);
}

void ControlLoop::Submit(CheckedJob job, FileChunkWriter* model,
                         Submitted done) {
  const auto first = FindRepeated(job, model->size_bytes(), model->crc32c());
  if (!first.ok()) return done(first.status());
  if (first->has_value()) return done(Submission{**first, /*repeated=*/true});
  std::string job_id;
  {
    MutexLock lock(&mu_);
    job_id = core_.NextJobId();
  }
  // The file first: a record without its model would be worse than a file
  // without a record.
  const auto artifact = artifacts_->Commit(model, job_id, "model.onnx");
  if (!artifact.ok()) return done(artifact.status());
  const bool queued = thread_.TrySubmit(
      [this, job_id, job = std::move(job), artifact = *artifact, done] {
        const auto submission = Enqueue(job_id, job, artifact);
        metrics_->CountSubmit(submission.ok());
        if (!submission.ok() || submission->repeated) {
          const absl::Status deleted = artifacts_->DeleteJob(job_id);
          if (!deleted.ok()) LogWarning("files left").Status(deleted);
        }
        done(submission);
      });
  if (!queued) done(SchedulerStopping());
}

absl::StatusOr<ControlLoop::Submission> ControlLoop::Enqueue(
    const std::string& job_id, const CheckedJob& job, const Artifact& model) {
  // The first one may have come while this one's file was written.
  SYNCLINE_ASSIGN_OR_RETURN(
      const auto first, FindRepeated(job, model.size_bytes(), model.crc32c()));
  if (first.has_value()) return Submission{*first, /*repeated=*/true};
  const absl::Time now = clock_.Now();
  StoredJob stored;
  {
    MutexLock lock(&mu_);
    SYNCLINE_ASSIGN_OR_RETURN(stored, core_.Prepare(job.spec, job.parameters,
                                                    job.tables, job_id, now));
  }
  stored.client_key = job.client_key;
  *stored.status.add_artifacts() = model;
  SYNCLINE_RETURN_IF_ERROR(records_.WriteNew(stored, now));
  LogInfo("job queued")
      .Job(job_id)
      .Field("name", job.spec.name())
      .Field("model_bytes", model.size_bytes());
  Handle(
      [&stored](ClusterCore* core, absl::Time now, ClusterActions* actions) {
        core->Submit(std::move(stored), now, actions);
      },
      now);
  return Submission{job_id, /*repeated=*/false};
}

void ControlLoop::Cancel(const std::string& job_id, const std::string& reason,
                         std::function<void(absl::StatusOr<JobStatus>)> done) {
  auto outcome = std::make_shared<absl::Status>();
  const bool posted = Post(
      [=](ClusterCore* core, absl::Time now, ClusterActions* actions) {
        *outcome = core->Cancel(job_id, reason, now, actions);
      },
      [=, this] {
        if (!outcome->ok()) return done(*outcome);
        done(Get(job_id));
      });
  if (!posted) done(SchedulerStopping());
}

void ControlLoop::Profile(const ProfileRequest& request, Accepted done) {
  auto artifact = std::make_shared<absl::StatusOr<std::string>>();
  const bool posted = Post(
      [=](ClusterCore* core, absl::Time, ClusterActions* actions) {
        *artifact = core->Profile(request, actions);
      },
      [=] { done(*artifact); });
  if (!posted) done(SchedulerStopping());
}

void ControlLoop::AddArtifact(const std::string& job_id,
                              const Artifact& artifact,
                              std::function<void(absl::Status)> done) {
  auto outcome = std::make_shared<absl::Status>();
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

void ControlLoop::Shutdown(int exit_code, const std::string& reason) {
  (void)Post([=](ClusterCore* core, absl::Time, ClusterActions* actions) {
    core->Shutdown(exit_code, reason, actions);
  });
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

absl::StatusOr<JobStatus> ControlLoop::Get(const std::string& job_id) const {
  MutexLock lock(&mu_);
  SYNCLINE_ASSIGN_OR_RETURN(const Job* job, core_.FindJob(job_id));
  return job->Status(clock_.Now());
}

absl::StatusOr<JobTableStatus> ControlLoop::GetTables(
    const std::string& job_id) const {
  MutexLock lock(&mu_);
  SYNCLINE_ASSIGN_OR_RETURN(const Job* job, core_.FindJob(job_id));
  return job->TableStatus(clock_.Now());
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

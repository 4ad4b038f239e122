#include "scheduler/service/jobs_service.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "common/base/trace_id.h"
#include "common/base/utf8.h"
#include "common/base/version.h"
#include "common/job/job_spec_validator.h"
#include "common/job/start_validator.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/user_calls.h"
#include "common/system/file.h"
#include "scheduler/core/cluster/tenant_rules.h"
#include "scheduler/core/describe.h"
#include "scheduler/core/message_sizes.h"
#include "scheduler/core/stopping.h"
#include "scheduler/service/events_stream.h"
#include "scheduler/service/job_intake.h"
#include "scheduler/service/log_relay.h"
#include "scheduler/service/user_gate.h"

namespace syncline::scheduler {
namespace {

static_assert(kCommandBytesMax < kMessageBytesMax);

constexpr size_t kClientKeyBytesMax = 128;
constexpr uint32_t kListLimit = 100;
constexpr uint32_t kListLimitMax = 10'000;
constexpr char kWatch[] = "/syncline.Jobs/Watch";
// Tag and length of a job in a list.
constexpr size_t kEntryBytes = 6;

// Collects the model, and the weights that the job starts from, in files,
// checks the job, queues it.
class SubmitReactor final : public ReceiveReactor<SubmitRequest> {
 public:
  SubmitReactor(const ServiceContext& context, SubmitResponse* response,
                AuditRecord record, absl::StatusOr<JobScope> scope)
      : ReceiveReactor(context),
        context_(context),
        response_(response),
        record_(std::move(record)),
        scope_(std::move(scope)) {}

 private:
  absl::Status Take(const SubmitRequest& request) override {
    if (request.has_begin()) return Begin(request.begin());
    if (model_ == nullptr) {
      return absl::InvalidArgumentError("the first message is not `begin`");
    }
    if (request.has_weights()) return TakeWeights(request.weights());
    SYNCLINE_RETURN_IF_ERROR(
        context_.artifacts->CheckRoom(request.model().data().size()));
    return Annotate(model_->Append(request.model()), "model.path");
  }

  absl::Status TakeWeights(const FileChunk& chunk) {
    constexpr char kField[] = "start.weights";
    if (!model_->whole() || !StartsFromWeights(spec_)) {
      return absl::InvalidArgumentError(
          absl::StrCat(kField, ": ",
                       model_->whole() ? "is empty, and a file comes"
                                       : "its file comes before the model's "
                                         "last chunk"));
    }
    if (weights_ == nullptr) {
      auto weights = context_.artifacts->BeginUpload(context_.model_bytes_max);
      if (!weights.ok()) return Annotate(weights.status(), kField);
      weights_ = *std::move(weights);
    }
    SYNCLINE_RETURN_IF_ERROR(
        context_.artifacts->CheckRoom(chunk.data().size()));
    return Annotate(weights_->Append(chunk), kField);
  }

  absl::Status Begin(const SubmitBegin& begin) {
    if (model_ != nullptr) {
      return absl::InvalidArgumentError("a second `begin`");
    }
    if (begin.client_key().size() > kClientKeyBytesMax ||
        !IsUtf8(begin.client_key())) {
      return absl::InvalidArgumentError(
          absl::StrCat("client_key: must be UTF-8 of at most ",
                       kClientKeyBytesMax, " bytes"));
    }
    if (!begin.trace_id().empty()) {
      SYNCLINE_RETURN_IF_ERROR(CheckTraceId("trace_id", begin.trace_id()));
    }
    trace_id_ = begin.trace_id();
    SYNCLINE_RETURN_IF_ERROR(scope_.status());
    SYNCLINE_ASSIGN_OR_RETURN(
        client_key_, ScopedClientKey(scope_->tenant, begin.client_key()));
    // Refuses before the upload, which may take long.
    SYNCLINE_RETURN_IF_ERROR(context_.loop->CheckAccepting(client_key_));
    spec_ = begin.spec();
    SYNCLINE_ASSIGN_OR_RETURN(const auto declared, declared_bytes());
    auto model =
        context_.artifacts->BeginUpload(context_.model_bytes_max, declared);
    if (!model.ok()) return Annotate(model.status(), "model.path");
    model_ = *std::move(model);
    return absl::OkStatus();
  }

  void Complete() override {
    if (model_ == nullptr || !model_->whole()) {
      return End(absl::InvalidArgumentError(
          "model.path: the upload ended before the last chunk"));
    }
    if (weights_ != nullptr && !weights_->whole()) {
      return End(absl::InvalidArgumentError(
          "start.weights: the upload ended before the last chunk"));
    }
    if (!context_.intake->TrySubmit([this] { CheckAndQueue(); })) {
      End(TooMuchToDo());
    }
  }

  void CheckAndQueue() {
    auto job = Check();
    if (!job.ok()) return End(job.status());
    job->client_key = client_key_;
    job->trace_id = trace_id_;
    if (cancelled()) return End(absl::CancelledError("the user left"));
    context_.loop->Submit(
        *std::move(job), model_.get(), weights_.get(),
        [this](const auto& submission) {
          record_.outcome = submission.status();
          record_.detail = spec_.name();
          if (submission.ok()) {
            record_.job_id = submission->job_id;
            response_->set_job_id(submission->job_id);
            response_->set_repeated_submission(submission->repeated);
          }
          context_.audit->Add(record_, absl::Now());
          End(submission.status());
        });
  }

  void Drop(const absl::Status& outcome) override {
    model_.reset();
    weights_.reset();
    if (cancelled() || absl::IsCancelled(outcome)) return;  // the user has left
    if (outcome.ok() && response_->repeated_submission()) return;
    context_.loop->CountSubmit(outcome.ok());
  }

  absl::StatusOr<CheckedJob> Check() const {
    SYNCLINE_ASSIGN_OR_RETURN(
        const std::string bytes,
        ReadFile(model_->temp_path(), context_.model_bytes_max));
    SYNCLINE_ASSIGN_OR_RETURN(
        CheckedJob job,
        CheckJob(spec_, bytes,
                 weights_ == nullptr ? "" : weights_->temp_path()));
    absl::Status paths;
    context_.loop->Read([&](const ClusterCore& core, absl::Time) {
      const std::vector<const Job*> jobs = core.Jobs();
      job.tenant =
          scope_->all && scope_->tenant.empty()
              ? TenantOfOperators(job.spec, context_.tenant_checkpoints, jobs)
              : scope_->tenant;
      // Checkpoints and jobs of tenants outlive the last token of a tenant.
      const bool has_tenants =
          scope_->has_tenants || !context_.tenant_checkpoints.empty() ||
          std::any_of(jobs.begin(), jobs.end(), [](const Job* known) {
            return !known->status().tenant().empty();
          });
      if (!has_tenants) return;
      paths =
          CheckTenantPaths(job.spec, job.tenant, context_.tenant_checkpoints,
                           /*of_operator=*/scope_->all, jobs);
    });
    SYNCLINE_RETURN_IF_ERROR(paths);
    return job;
  }

  const ServiceContext context_;
  SubmitResponse* const response_;
  AuditRecord record_;
  const absl::StatusOr<JobScope> scope_;
  JobSpec spec_;
  std::string client_key_;
  std::string trace_id_;
  std::unique_ptr<FileChunkWriter> model_;
  std::unique_ptr<FileChunkWriter> weights_;  // null: none has come
};

// Sends the latest status whenever the last one has left: a slow reader skips
// states in between, but sees the final one.
class WatchReactor final : public grpc::ServerWriteReactor<JobStatus>,
                           public ControlLoop::Watcher {
 public:
  static grpc::ServerWriteReactor<JobStatus>* Start(
      const grpc::CallbackServerContext* call, ControlLoop* loop,
      std::string job_id) {
    std::shared_ptr<WatchReactor> reactor(
        new WatchReactor(call, loop, std::move(job_id)));
    reactor->self_ = reactor;
    const absl::Status status = loop->Watch(reactor->job_id_, reactor);
    if (!status.ok()) reactor->End(status);
    return reactor.get();
  }

  void OnStatus(std::shared_ptr<const JobStatus> status) override {
    MutexLock lock(&mu_);
    if (ended_) return;
    latest_ = std::move(status);
    if (sent_ == nullptr) SendLatest();
  }
  void OnDrain() override { End(SchedulerStopping()); }

 private:
  WatchReactor(const grpc::CallbackServerContext* call, ControlLoop* loop,
               std::string job_id)
      : call_(call), loop_(loop), job_id_(std::move(job_id)) {}

  // Whether the token is still good for the job, with the role and the tenant
  // that it has now.
  absl::Status CheckCaller() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    SYNCLINE_RETURN_IF_ERROR(CheckUser(kWatch, call_->client_metadata()));
    SYNCLINE_ASSIGN_OR_RETURN(const JobScope scope,
                              ScopeOf(call_->client_metadata()));
    if (scope.Sees(latest_->tenant())) return absl::OkStatus();
    return absl::NotFoundError(absl::StrCat("no job \"", job_id_, "\""));
  }

  // A status comes every two seconds or more often: as often the token is
  // looked at.
  void SendLatest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const absl::Status may = CheckCaller();
    if (!may.ok()) return EndLocked(may);
    sent_ = std::move(latest_);
    StartWrite(sent_.get());
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&mu_);
    const bool was_final = IsFinal(sent_->state());
    sent_ = nullptr;
    if (ended_) return;
    if (!ok || was_final) return EndLocked(absl::OkStatus());
    if (latest_ != nullptr) SendLatest();
  }
  void OnCancel() override { End(absl::CancelledError("the user left")); }
  void OnDone() override {
    loop_->Unwatch(job_id_, this);
    const std::shared_ptr<WatchReactor> self = std::move(self_);
  }

  void End(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    if (!ended_) EndLocked(status);
  }
  void EndLocked(const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    ended_ = true;
    Finish(ToGrpcStatus(status));
  }

  const grpc::CallbackServerContext* const call_;
  ControlLoop* const loop_;
  const std::string job_id_;
  std::shared_ptr<WatchReactor> self_;  // until gRPC is done with it

  Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  std::shared_ptr<const JobStatus> sent_ ABSL_GUARDED_BY(mu_);  // being written
  std::shared_ptr<const JobStatus> latest_ ABSL_GUARDED_BY(mu_);
};

grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* call,
                                 const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = call->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

// The answer to a request that names no job because the gate has refused it,
// which puts its reason in place of this one. Such requests do not go to the
// control loop: everyone can send them.
grpc::ServerUnaryReactor* AnswerNoJob(grpc::CallbackServerContext* call) {
  return Answer(call,
                absl::NotFoundError(absl::StrCat("no job \"", kNoJob, "\"")));
}

// The answers to calls without a job that the gate has refused, in the same
// way. They have their line in the audit log.
absl::Status RefusedByGate() {
  return absl::PermissionDeniedError("the user gate has refused the call");
}
class RefusedSubmit final : public grpc::ServerReadReactor<SubmitRequest> {
 public:
  RefusedSubmit() { Finish(ToGrpcStatus(RefusedByGate())); }
  void OnDone() override { delete this; }
};

AuditRecord RecordOf(const grpc::CallbackServerContext& call,
                     absl::string_view action, absl::string_view job_id) {
  AuditRecord record;
  record.who = CallerOf(call);
  record.peer = call.peer();
  record.action = std::string(action);
  record.job_id = std::string(job_id);
  return record;
}

// A call that the gate has refused is in the log already.
void AddRecord(AuditLog* audit, const AuditRecord& record) {
  if (record.job_id != kNoJob) audit->Add(record, absl::Now());
}

absl::string_view UseAction(SetMemberUseRequest::Use use) {
  switch (use) {
    case SetMemberUseRequest::SCHEDULE:
      return "uncordon";
    case SetMemberUseRequest::CORDON:
      return "cordon";
    case SetMemberUseRequest::DRAIN:
      return "drain";
    default:
      return "use";
  }
}
// Sends one moment of the state: the next chunk is made when gRPC has taken the
// last one. Owns itself.
class BackupSender final : public grpc::ServerWriteReactor<FileChunk> {
 public:
  BackupSender(const ServiceContext& context, AuditRecord record)
      : context_(context), record_(std::move(record)) {
    const bool queued = context_.files->TrySubmit([this] { Begin(); });
    if (!queued) End(TooMuchToDo());
  }

 private:
  void Begin() {
    context_.loop->Backup(
        [this](absl::StatusOr<std::unique_ptr<StateBackup>> backup) {
          if (!backup.ok()) return End(backup.status());
          backup_ = *std::move(backup);
          SendNextOnPool();
        });
  }
  void SendNextOnPool() {
    const bool queued = context_.files->TrySubmit([this] {
      const absl::Status made = backup_->Next(&chunk_);
      if (!made.ok()) return End(made);
      StartWrite(&chunk_);
    });
    if (!queued) End(TooMuchToDo());
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return End(absl::CancelledError("the caller left"));
    if (chunk_.last()) return End(absl::OkStatus());
    SendNextOnPool();
  }
  void OnDone() override { delete this; }

  void End(const absl::Status& status) {
    record_.outcome = status;
    context_.audit->Add(record_, absl::Now());
    Finish(ToGrpcStatus(status));
  }

  const ServiceContext context_;
  AuditRecord record_;
  std::unique_ptr<StateBackup> backup_;
  FileChunk chunk_;
};

JobStatus Listed(const Job& job, absl::Time now) {
  JobStatus status = job.Status(now);
  JobSpec spec;
  spec.set_name(status.spec().name());
  *status.mutable_spec() = std::move(spec);
  status.mutable_progress()->clear_workers();
  return status;
}

}  // namespace

absl::StatusOr<ListResponse> ListJobs(const ControlLoop& loop,
                                      const ListRequest& request,
                                      const JobScope& scope) {
  uint64_t before = std::numeric_limits<uint64_t>::max();
  if (!request.page_token().empty()) {
    before = JobNumber(request.page_token());
    if (before == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("page_token: \"",
                       absl::CHexEscape(request.page_token().substr(0, 64)),
                       "\" is none that an answer gave"));
    }
  }
  ListResponse response;
  const int limit = static_cast<int>(
      request.limit() == 0 ? kListLimit
                           : std::min(request.limit(), kListLimitMax));
  size_t bytes = 0;
  loop.Read([&](const ClusterCore& core, absl::Time now) {
    for (const Job* job : core.Jobs()) {
      const auto& states = request.states();
      if (JobNumber(job->id()) >= before) continue;
      if (!scope.Sees(job->status().tenant())) continue;
      if (!states.empty() && std::find(states.begin(), states.end(),
                                       job->status().state()) == states.end()) {
        continue;
      }
      JobStatus listed = Listed(*job, now);
      bytes += listed.ByteSizeLong() + kEntryBytes;
      const int count = response.jobs_size();
      // One always goes: a job's status fits into a message.
      if (count == limit || (count > 0 && bytes > kCommandBytesMax)) {
        response.set_next_page_token(response.jobs(count - 1).job_id());
        break;
      }
      *response.add_jobs() = std::move(listed);
    }
  });
  return response;
}

void JobsService::SetAddress(const std::string& address) {
  MutexLock lock(&mu_);
  address_ = address;
}

grpc::ServerReadReactor<SubmitRequest>* JobsService::Submit(
    grpc::CallbackServerContext* call, SubmitResponse* response) {
  if (context_.user_gate->IsRefused(*call)) return new RefusedSubmit();
  return SubmitReactor::Start(
      call, std::make_shared<SubmitReactor>(context_, response,
                                            RecordOf(*call, "submit", ""),
                                            ScopeOf(call->client_metadata())));
}

grpc::ServerWriteReactor<JobStatus>* JobsService::Watch(
    grpc::CallbackServerContext* call, const WatchRequest* request) {
  return WatchReactor::Start(call, context_.loop, request->job_id());
}

grpc::ServerUnaryReactor* JobsService::Get(grpc::CallbackServerContext* call,
                                           const GetRequest* request,
                                           JobStatus* response) {
  auto status = context_.loop->Get(request->job_id());
  if (status.ok()) *response = std::move(*status);
  return Answer(call, status.status());
}

grpc::ServerUnaryReactor* JobsService::GetTables(
    grpc::CallbackServerContext* call, const GetRequest* request,
    JobTableStatus* response) {
  auto status = context_.loop->GetTables(request->job_id());
  if (status.ok()) *response = std::move(*status);
  return Answer(call, status.status());
}

grpc::ServerUnaryReactor* JobsService::List(grpc::CallbackServerContext* call,
                                            const ListRequest* request,
                                            ListResponse* response) {
  if (context_.user_gate->IsRefused(*call)) {
    return Answer(call, RefusedByGate());
  }
  const auto scope = ScopeOf(call->client_metadata());
  if (!scope.ok()) return Answer(call, scope.status());
  auto page = ListJobs(*context_.loop, *request, *scope);
  if (page.ok()) *response = std::move(*page);
  return Answer(call, page.status());
}

grpc::ServerUnaryReactor* JobsService::Cancel(grpc::CallbackServerContext* call,
                                              const CancelRequest* request,
                                              JobStatus* response) {
  if (request->job_id() == kNoJob) return AnswerNoJob(call);
  grpc::ServerUnaryReactor* reactor = call->DefaultReactor();
  AuditRecord record = RecordOf(*call, "cancel", request->job_id());
  record.detail = request->reason();
  context_.loop->Cancel(
      request->job_id(), request->reason(),
      [=, audit = context_.audit](absl::StatusOr<JobStatus> status) mutable {
        record.outcome = status.status();
        AddRecord(audit, record);
        if (status.ok()) *response = std::move(*status);
        reactor->Finish(ToGrpcStatus(status.status()));
      });
  return reactor;
}

grpc::ServerUnaryReactor* JobsService::Profile(
    grpc::CallbackServerContext* call, const ProfileRequest* request,
    ProfileResponse* response) {
  if (request->job_id() == kNoJob) return AnswerNoJob(call);
  grpc::ServerUnaryReactor* reactor = call->DefaultReactor();
  AuditRecord record = RecordOf(*call, "profile", request->job_id());
  context_.loop->Profile(*request,
                         [=, audit = context_.audit](
                             absl::StatusOr<std::string> artifact) mutable {
                           record.outcome = artifact.status();
                           AddRecord(audit, record);
                           if (artifact.ok()) response->set_artifact(*artifact);
                           reactor->Finish(ToGrpcStatus(artifact.status()));
                         });
  return reactor;
}

grpc::ServerUnaryReactor* JobsService::ChangeRegime(
    grpc::CallbackServerContext* call, const ChangeRegimeRequest* request,
    RegimeTransition* response) {
  if (request->job_id() == kNoJob) return AnswerNoJob(call);
  grpc::ServerUnaryReactor* reactor = call->DefaultReactor();
  AuditRecord record = RecordOf(*call, "regime", request->job_id());
  record.detail = request->reason();
  context_.loop->ChangeRegime(
      *request, [=, audit = context_.audit](
                    absl::StatusOr<RegimeTransition> changed) mutable {
        record.outcome = changed.status();
        AddRecord(audit, record);
        if (changed.ok()) *response = *std::move(changed);
        reactor->Finish(ToGrpcStatus(record.outcome));
      });
  return reactor;
}

grpc::ServerWriteReactor<JobEvent>* JobsService::Events(
    grpc::CallbackServerContext*, const EventsRequest* request) {
  return SendEvents(context_.loop, *request);
}

grpc::ServerUnaryReactor* JobsService::TakeCheckpoint(
    grpc::CallbackServerContext* call, const TakeCheckpointRequest* request,
    CheckpointInfo* response) {
  if (request->job_id() == kNoJob) return AnswerNoJob(call);
  grpc::ServerUnaryReactor* reactor = call->DefaultReactor();
  AuditRecord record = RecordOf(*call, "checkpoint", request->job_id());
  context_.loop->TakeCheckpoint(
      request->job_id(), [=, audit = context_.audit](
                             absl::StatusOr<CheckpointInfo> whole) mutable {
        record.outcome = whole.status();
        AddRecord(audit, record);
        if (whole.ok()) *response = *std::move(whole);
        reactor->Finish(ToGrpcStatus(record.outcome));
      });
  return reactor;
}

grpc::ServerUnaryReactor* JobsService::Scale(grpc::CallbackServerContext* call,
                                             const ScaleRequest* request,
                                             JobStatus* response) {
  if (request->job_id() == kNoJob) return AnswerNoJob(call);
  grpc::ServerUnaryReactor* reactor = call->DefaultReactor();
  AuditRecord record = RecordOf(*call, "scale", request->job_id());
  record.detail =
      absl::StrCat(request->workers(), " workers",
                   request->reason().empty() ? "" : ": ", request->reason());
  context_.loop->Scale(*request, [=, audit = context_.audit](
                                     absl::StatusOr<JobStatus> job) mutable {
    record.outcome = job.status();
    AddRecord(audit, record);
    if (job.ok()) *response = *std::move(job);
    reactor->Finish(ToGrpcStatus(record.outcome));
  });
  return reactor;
}

grpc::ServerUnaryReactor* JobsService::SetMemberUse(
    grpc::CallbackServerContext* call, const SetMemberUseRequest* request,
    SetMemberUseResponse* response) {
  if (context_.user_gate->IsRefused(*call)) {
    return Answer(call, RefusedByGate());
  }
  grpc::ServerUnaryReactor* reactor = call->DefaultReactor();
  AuditRecord record = RecordOf(*call, UseAction(request->use()), "");
  record.detail =
      absl::StrCat(TaskText(request->task()),
                   request->reason().empty() ? "" : ": ", request->reason());
  context_.loop->SetMemberUse(
      *request, [=, audit = context_.audit](
                    absl::StatusOr<SetMemberUseResponse> answer) mutable {
        record.outcome = answer.status();
        if (answer.ok()) {
          record.job_id = answer->job_id();
          *response = *std::move(answer);
        }
        audit->Add(record, absl::Now());
        reactor->Finish(ToGrpcStatus(record.outcome));
      });
  return reactor;
}

grpc::ServerWriteReactor<FileChunk>* JobsService::Download(
    grpc::CallbackServerContext* call, const DownloadRequest* request) {
  AuditRecord record = RecordOf(*call, "download", request->job_id());
  record.detail = request->name();
  return SendArtifact(
      context_, *request,
      [record, audit = context_.audit](const absl::Status& outcome) mutable {
        record.outcome = outcome;
        AddRecord(audit, record);
      });
}

grpc::ServerWriteReactor<FileChunk>* JobsService::BackupState(
    grpc::CallbackServerContext* call, const BackupStateRequest*) {
  if (context_.user_gate->IsRefused(*call)) {
    return RefuseDownload(RefusedByGate());
  }
  return new BackupSender(context_, RecordOf(*call, "backup-state", ""));
}

grpc::ServerWriteReactor<LogLines>* JobsService::Logs(
    grpc::CallbackServerContext* call, const LogsRequest* request) {
  AuditRecord record = RecordOf(*call, "logs", request->job_id());
  if (request->has_task()) record.detail = TaskText(request->task());
  return RelayLogs(
      context_, *request, call,
      [record, audit = context_.audit](const absl::Status& outcome) mutable {
        record.outcome = outcome;
        AddRecord(audit, record);
      });
}

grpc::ServerUnaryReactor* JobsService::GetCluster(
    grpc::CallbackServerContext* call, const GetClusterRequest*,
    ClusterStatus* response) {
  if (context_.user_gate->IsRefused(*call)) {
    return Answer(call, RefusedByGate());
  }
  const auto scope = ScopeOf(call->client_metadata());
  if (!scope.ok()) return Answer(call, scope.status());
  context_.loop->Read([&](const ClusterCore& core, absl::Time now) {
    *response = core.Cluster(now);
    HideOthersJobs(
        [&](const std::string& job_id) {
          const auto job = core.FindJob(job_id);
          return !job.ok() || scope->Sees((*job)->status().tenant());
        },
        response);
  });
  response->set_version(kVersion);
  {
    MutexLock lock(&mu_);
    response->set_scheduler_address(address_);
  }
  return Answer(call, absl::OkStatus());
}

}  // namespace syncline::scheduler

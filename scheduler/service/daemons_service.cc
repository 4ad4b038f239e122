#include "scheduler/service/daemons_service.h"

#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/cluster/cluster_config.h"
#include "common/job/start_validator.h"
#include "common/rpc/transport_security.h"
#include "common/rpc/user_calls.h"
#include "common/system/log.h"

namespace syncline::scheduler {
namespace {

// Commands that a daemon has not read yet: it has stopped reading long before.
constexpr size_t kUnreadMax = 256;
// Bytes that a trained model may have more than the submitted one: names,
// values of initializers that the file only declared.
constexpr uint64_t kUploadSlackBytes = 64 << 20;

// One daemon's stream. Reads the next message when the last one has been
// handled; writes in order.
class SessionReactor final
    : public grpc::ServerBidiReactor<DaemonMessage, SchedulerMessage>,
      public ControlLoop::Session {
 public:
  static SessionReactor* Start(grpc::CallbackServerContext* call,
                               ControlLoop* loop,
                               MemberCertificates* certificates) {
    std::shared_ptr<SessionReactor> reactor(
        new SessionReactor(call, loop, certificates));
    reactor->self_ = reactor;
    reactor->id_ = loop->AddSession(reactor);
    if (ProcessSecurity() != nullptr) {
      certificates->Add(reactor->id_, CertificateOf(*call->auth_context()));
    }
    reactor->ReadNext();
    if (loop->draining()) {
      reactor->End(absl::UnavailableError("the scheduler is stopping"));
    }
    return reactor.get();
  }

  void Send(const SchedulerMessage& message) override {
    MutexLock lock(&mu_);
    if (finished_ || final_status_.has_value()) return;
    outgoing_.push_back(message);
    if (outgoing_.size() == 1) StartWrite(&outgoing_.front());
    if (outgoing_.size() > kUnreadMax) call_->TryCancel();
  }

  void End(const absl::Status& status) override {
    MutexLock lock(&mu_);
    if (finished_ || final_status_.has_value()) return;
    if (outgoing_.empty()) return FinishLocked(status);
    // The peer may never take what is being written.
    final_status_ = status;
    call_->TryCancel();
  }

 private:
  SessionReactor(grpc::CallbackServerContext* call, ControlLoop* loop,
                 MemberCertificates* certificates)
      : call_(call), loop_(loop), certificates_(certificates) {
    const auto security = ProcessSecurity();
    if (security == nullptr) return;
    peers_ = PeersOf(*call->auth_context(), security->cluster());
  }

  // With TLS a process registers as a task that its certificate names.
  absl::Status MayRegister(const Register& registration) const {
    if (!peers_.has_value()) return absl::OkStatus();
    const Task& task = registration.member().task();
    // A peer may send any number.
    const bool known = TaskType_IsValid(task.type());
    return CheckTask(
        *peers_,
        known ? TaskKindName(static_cast<TaskKind>(task.type())) : "unknown",
        registration.auto_index() ? std::nullopt
                                  : std::optional<uint32_t>(task.index()));
  }

  void ReadNext() {
    MutexLock lock(&mu_);
    if (!finished_) StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    if (ok && incoming_.has_register_()) {
      const absl::Status may = MayRegister(incoming_.register_());
      if (!may.ok()) {
        LogWarning("a process may not register").Status(may);
        return End(may);
      }
    }
    if (ok) {
      return loop_->OnMessage(id_, std::move(incoming_),
                              [self = self_] { self->ReadNext(); });
    }
    loop_->OnClosed(id_);
    MutexLock lock(&mu_);
    if (!finished_ && outgoing_.empty()) FinishLocked(absl::OkStatus());
    if (!finished_ && !final_status_.has_value()) {
      final_status_ = absl::OkStatus();
    }
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&mu_);
    outgoing_.pop_front();
    if (finished_) return;
    if (final_status_.has_value()) return FinishLocked(*final_status_);
    if (!ok) {
      // The stream is broken; the read that is under way says so.
      outgoing_.clear();
      return;
    }
    if (!outgoing_.empty()) StartWrite(&outgoing_.front());
  }

  void OnDone() override {
    certificates_->Remove(id_);
    loop_->OnClosed(id_);  // where the end came from us, no read has said so
    const std::shared_ptr<SessionReactor> self = std::move(self_);
  }

  void FinishLocked(const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    finished_ = true;
    Finish(ToGrpcStatus(status));
  }

  grpc::CallbackServerContext* const call_;
  ControlLoop* const loop_;
  MemberCertificates* const certificates_;
  SessionId id_ = 0;
  std::optional<std::vector<PeerIdentity>> peers_;  // with TLS
  std::shared_ptr<SessionReactor> self_;  // until gRPC is done with it
  DaemonMessage incoming_;                // while no message is handled

  Mutex mu_;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  // Ends the stream when the write that is under way is over.
  std::optional<absl::Status> final_status_ ABSL_GUARDED_BY(mu_);
  // The front one is being written.
  std::deque<SchedulerMessage> outgoing_ ABSL_GUARDED_BY(mu_);
};

class UploadReactor final : public ReceiveReactor<UploadRequest> {
 public:
  explicit UploadReactor(const ServiceContext& context)
      : ReceiveReactor(context), context_(context) {}

 private:
  absl::Status Take(const UploadRequest& request) override {
    if (request.has_begin()) return Begin(request.begin());
    if (file_ == nullptr) {
      return absl::InvalidArgumentError("the first message is not `begin`");
    }
    // The disk is the scheduler's too: a full one would stop every job.
    SYNCLINE_RETURN_IF_ERROR(
        context_.artifacts->CheckRoom(request.chunk().data().size()));
    return Annotate(file_->Append(request.chunk()), begin_.name());
  }

  absl::Status Begin(const UploadBegin& begin) {
    if (file_ != nullptr) {
      return absl::InvalidArgumentError("a second `begin`");
    }
    begin_ = begin;
    SYNCLINE_RETURN_IF_ERROR(ArtifactStore::CheckName(begin_.name()));
    if (begin_.name() == "model.onnx" || begin_.name() == kWeightsArtifact) {
      return absl::InvalidArgumentError(
          absl::StrCat(begin_.name(), " is the user's"));
    }
    SYNCLINE_RETURN_IF_ERROR(Owned());
    // Rows may be more than any model has; the disk is the limit.
    const uint64_t bytes_max =
        absl::StartsWith(begin_.name(), "tables/")
            ? std::numeric_limits<uint64_t>::max()
            : context_.model_bytes_max + kUploadSlackBytes;
    SYNCLINE_ASSIGN_OR_RETURN(const auto declared, declared_bytes());
    auto file = context_.artifacts->BeginUpload(bytes_max, declared);
    if (!file.ok()) return Annotate(file.status(), begin_.name());
    file_ = *std::move(file);
    return absl::OkStatus();
  }

  absl::Status Owned() const { return context_.loop->CheckUpload(begin_); }

  void Complete() override {
    auto artifact = Store();
    if (!artifact.ok()) return End(artifact.status());
    context_.loop->AddArtifact(
        begin_.job_id(), *artifact,
        [this](const absl::Status& status) { End(status); });
  }

  void Drop(const absl::Status& /*outcome*/) override { file_.reset(); }

  absl::StatusOr<Artifact> Store() {
    if (file_ == nullptr || !file_->whole()) {
      return absl::InvalidArgumentError(
          absl::StrCat(begin_.name(), ": ended before the last chunk"));
    }
    // Once more: the upload may have outlived the job.
    SYNCLINE_RETURN_IF_ERROR(Owned());
    return context_.artifacts->Commit(file_.get(), begin_.job_id(),
                                      begin_.name());
  }

  const ServiceContext context_;
  UploadBegin begin_;
  std::unique_ptr<FileChunkWriter> file_;
};

// Null: certificates are not revoked.
MemberCertificates::Check RevocationCheck() {
  const auto security = ProcessSecurity();
  if (security == nullptr || !security->has_revocations()) return nullptr;
  return
      [security](absl::string_view pem) { return security->CheckRevoked(pem); };
}

// Null: there is no TLS, and no certificate ends.
MemberCertificates::OnEnded EndsToldTo(ControlLoop* loop) {
  if (ProcessSecurity() == nullptr) return nullptr;
  return [loop](SessionId session, absl::Time end) {
    loop->OnCertificateEnded(session, end);
  };
}

}  // namespace

DaemonsService::DaemonsService(const ServiceContext& context)
    : context_(context),
      certificates_(
          RevocationCheck(),
          [loop = context.loop](SessionId session, const absl::Status& why) {
            return loop->OnRevoked(session, why);
          },
          EndsToldTo(context.loop)) {}

grpc::ServerBidiReactor<DaemonMessage, SchedulerMessage>*
DaemonsService::Session(grpc::CallbackServerContext* call) {
  return SessionReactor::Start(call, context_.loop, &certificates_);
}

grpc::ServerWriteReactor<FileChunk>* DaemonsService::FetchArtifact(
    grpc::CallbackServerContext* call, const DownloadRequest* request) {
  const absl::Status may = context_.loop->CheckFetch(*request);
  if (absl::IsPermissionDenied(may)) {
    context_.audit->AddRefused({.who = CallerOf(*call),
                                .peer = call->peer(),
                                .action = "fetch",
                                .job_id = request->job_id(),
                                .outcome = may,
                                .detail = request->name()},
                               absl::Now());
  }
  if (!may.ok()) return RefuseDownload(may);
  return SendArtifact(context_, *request, /*on_end=*/nullptr);
}

grpc::ServerReadReactor<UploadRequest>* DaemonsService::UploadArtifact(
    grpc::CallbackServerContext* call, UploadResponse*) {
  return UploadReactor::Start(call, std::make_shared<UploadReactor>(context_));
}

}  // namespace syncline::scheduler

#include "scheduler/service/jobs_service.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/base/version.h"
#include "common/job/job_spec_validator.h"
#include "common/rpc/grpc_channel.h"
#include "common/system/file.h"
#include "scheduler/core/describe.h"
#include "scheduler/core/message_sizes.h"
#include "scheduler/core/stopping.h"
#include "scheduler/service/job_intake.h"

namespace syncline::scheduler {
namespace {

static_assert(kCommandBytesMax < kMessageBytesMax);

constexpr size_t kClientKeyBytesMax = 128;
constexpr uint32_t kListLimit = 100;
constexpr uint32_t kListLimitMax = 10'000;
// Tag and length of a job in a list.
constexpr size_t kEntryBytes = 6;

// Collects the model in a file, checks the job, queues it.
class SubmitReactor final : public ReceiveReactor<SubmitRequest> {
 public:
  SubmitReactor(const ServiceContext& context, SubmitResponse* response)
      : ReceiveReactor(context), context_(context), response_(response) {}

 private:
  absl::Status Take(const SubmitRequest& request) override {
    if (request.has_begin()) return Begin(request.begin());
    if (model_ == nullptr) {
      return absl::InvalidArgumentError("the first message is not `begin`");
    }
    SYNCLINE_RETURN_IF_ERROR(
        context_.artifacts->CheckRoom(request.model().data().size()));
    return Annotate(model_->Append(request.model()), "model.path");
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
    client_key_ = begin.client_key();
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
    if (!context_.intake->TrySubmit([this] { CheckAndQueue(); })) {
      End(TooMuchToDo());
    }
  }

  void CheckAndQueue() {
    auto job = Check();
    if (!job.ok()) return End(job.status());
    job->client_key = client_key_;
    if (cancelled()) return End(absl::CancelledError("the user left"));
    context_.loop->Submit(
        *std::move(job), model_.get(), [this](const auto& submission) {
          if (submission.ok()) {
            response_->set_job_id(submission->job_id);
            response_->set_repeated_submission(submission->repeated);
          }
          End(submission.status());
        });
  }

  void Drop() override { model_.reset(); }

  absl::StatusOr<CheckedJob> Check() const {
    SYNCLINE_ASSIGN_OR_RETURN(
        const std::string bytes,
        ReadFile(model_->temp_path(), context_.model_bytes_max));
    return CheckJob(spec_, bytes);
  }

  const ServiceContext context_;
  SubmitResponse* const response_;
  JobSpec spec_;
  std::string client_key_;
  std::unique_ptr<FileChunkWriter> model_;
};

// Sends the latest status whenever the last one has left: a slow reader skips
// states in between, but sees the final one.
class WatchReactor final : public grpc::ServerWriteReactor<JobStatus>,
                           public ControlLoop::Watcher {
 public:
  static grpc::ServerWriteReactor<JobStatus>* Start(ControlLoop* loop,
                                                    std::string job_id) {
    std::shared_ptr<WatchReactor> reactor(
        new WatchReactor(loop, std::move(job_id)));
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
  WatchReactor(ControlLoop* loop, std::string job_id)
      : loop_(loop), job_id_(std::move(job_id)) {}

  void SendLatest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
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
                                      const ListRequest& request) {
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
  return SubmitReactor::Start(
      call, std::make_shared<SubmitReactor>(context_, response));
}

grpc::ServerWriteReactor<JobStatus>* JobsService::Watch(
    grpc::CallbackServerContext*, const WatchRequest* request) {
  return WatchReactor::Start(context_.loop, request->job_id());
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
  auto page = ListJobs(*context_.loop, *request);
  if (page.ok()) *response = std::move(*page);
  return Answer(call, page.status());
}

grpc::ServerUnaryReactor* JobsService::Cancel(grpc::CallbackServerContext* call,
                                              const CancelRequest* request,
                                              JobStatus* response) {
  grpc::ServerUnaryReactor* reactor = call->DefaultReactor();
  context_.loop->Cancel(request->job_id(), request->reason(),
                        [=](absl::StatusOr<JobStatus> status) {
                          if (status.ok()) *response = std::move(*status);
                          reactor->Finish(ToGrpcStatus(status.status()));
                        });
  return reactor;
}

grpc::ServerUnaryReactor* JobsService::Profile(
    grpc::CallbackServerContext* call, const ProfileRequest* request,
    ProfileResponse* response) {
  grpc::ServerUnaryReactor* reactor = call->DefaultReactor();
  context_.loop->Profile(*request, [=](absl::StatusOr<std::string> artifact) {
    if (artifact.ok()) response->set_artifact(*artifact);
    reactor->Finish(ToGrpcStatus(artifact.status()));
  });
  return reactor;
}

grpc::ServerWriteReactor<FileChunk>* JobsService::Download(
    grpc::CallbackServerContext*, const DownloadRequest* request) {
  return SendArtifact(context_, *request);
}

grpc::ServerUnaryReactor* JobsService::GetCluster(
    grpc::CallbackServerContext* call, const GetClusterRequest*,
    ClusterStatus* response) {
  context_.loop->Read([&](const ClusterCore& core, absl::Time now) {
    *response = core.Cluster(now);
  });
  response->set_version(kVersion);
  {
    MutexLock lock(&mu_);
    response->set_scheduler_address(address_);
  }
  return Answer(call, absl::OkStatus());
}

}  // namespace syncline::scheduler

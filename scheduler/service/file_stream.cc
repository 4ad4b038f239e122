#include "scheduler/service/file_stream.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "scheduler/core/describe.h"

namespace syncline::scheduler {
namespace {

// The record of the artifact. Errors: NotFound, saying what there is.
absl::StatusOr<Artifact> FindArtifact(const JobStatus& job,
                                      const std::string& name) {
  for (const Artifact& artifact : job.artifacts()) {
    if (artifact.name() == name) return artifact;
  }
  if (job.artifacts().empty() && IsFinal(job.state())) {
    return absl::NotFoundError(
        absl::StrCat("the files of job ", job.job_id(),
                     " were deleted: it ended longer ago than files are kept"));
  }
  return absl::NotFoundError(absl::StrCat(
      "job ", job.job_id(), " has no \"", name, "\"; it has: ",
      absl::StrJoin(job.artifacts(), ", ",
                    [](std::string* out, const Artifact& artifact) {
                      out->append(artifact.name());
                    })));
}

class FileSender final : public grpc::ServerWriteReactor<FileChunk> {
 public:
  FileSender(const ServiceContext& context, const DownloadRequest& request,
             std::function<void(const absl::Status&)> on_end)
      : context_(context), request_(request), on_end_(std::move(on_end)) {
    OnPool([this] { Begin(); });
  }

 private:
  void Begin() {
    const absl::Status opened = Open();
    if (!opened.ok()) return End(opened);
    SendNext();
  }

  absl::Status Open() {
    SYNCLINE_ASSIGN_OR_RETURN(const JobStatus job,
                              context_.loop->Get(request_.job_id()));
    SYNCLINE_ASSIGN_OR_RETURN(artifact_, FindArtifact(job, request_.name()));
    SYNCLINE_ASSIGN_OR_RETURN(
        reader_, context_.artifacts->Read(request_.job_id(), request_.name()));
    return absl::OkStatus();
  }

  void SendNext() {
    absl::Status status = reader_->Next(&chunk_);
    if (status.ok() && chunk_.last() &&
        (chunk_.crc32c() != artifact_.crc32c() ||
         reader_->size_bytes() != artifact_.size_bytes())) {
      status = absl::DataLossError(
          absl::StrCat(request_.name(), " of job ", request_.job_id(),
                       " is not what was stored: checksum mismatch"));
    }
    if (!status.ok()) return End(status);
    StartWrite(&chunk_);
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return End(absl::CancelledError("the caller left"));
    if (chunk_.last()) return End(absl::OkStatus());
    OnPool([this] { SendNext(); });
  }
  void OnDone() override { delete this; }

  void OnPool(ThreadPool::Task task) {
    if (context_.files->TrySubmit(std::move(task))) return;
    End(TooMuchToDo());
  }

  void End(const absl::Status& status) {
    if (on_end_ != nullptr) on_end_(status);
    Finish(ToGrpcStatus(status));
  }

  const ServiceContext context_;
  const DownloadRequest request_;
  const std::function<void(const absl::Status&)> on_end_;
  Artifact artifact_;
  std::unique_ptr<FileChunkReader> reader_;
  FileChunk chunk_;
};

class RefusedDownload final : public grpc::ServerWriteReactor<FileChunk> {
 public:
  explicit RefusedDownload(const absl::Status& status) {
    Finish(ToGrpcStatus(status));
  }

 private:
  void OnDone() override { delete this; }
};

}  // namespace

uint64_t TransferGate::NewTicket() {
  MutexLock lock(&mu_);
  return next_ticket_++;
}

absl::Status TransferGate::Enter(uint64_t ticket, absl::string_view client,
                                 std::function<void()> start) {
  {
    MutexLock lock(&mu_);
    SYNCLINE_RETURN_IF_ERROR(queue_.Add(ticket, client));
    starts_[ticket] = std::move(start);
  }
  GiveTurns();
  return absl::OkStatus();
}

void TransferGate::Leave(uint64_t ticket) {
  std::function<void()> start;  // destroyed unlocked: it holds its call
  {
    MutexLock lock(&mu_);
    queue_.Remove(ticket);
    const auto found = starts_.find(ticket);
    if (found != starts_.end()) {
      start = std::move(found->second);
      starts_.erase(found);
    }
  }
  GiveTurns();
}

void TransferGate::GiveTurns() {
  std::vector<std::function<void()>> starts;
  {
    MutexLock lock(&mu_);
    for (const uint64_t ticket : queue_.NextTurns()) {
      const auto found = starts_.find(ticket);
      starts.push_back(std::move(found->second));
      starts_.erase(found);
    }
  }
  for (const auto& start : starts) start();
}

grpc::ServerWriteReactor<FileChunk>* SendArtifact(
    const ServiceContext& context, const DownloadRequest& request,
    std::function<void(const absl::Status&)> on_end) {
  return new FileSender(context, request, std::move(on_end));
}

grpc::ServerWriteReactor<FileChunk>* RefuseDownload(
    const absl::Status& status) {
  return new RefusedDownload(status);
}

}  // namespace syncline::scheduler

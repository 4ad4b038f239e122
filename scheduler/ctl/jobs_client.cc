#include "scheduler/ctl/jobs_client.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/cluster/declared_size.h"
#include "common/cluster/file_chunks.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "scheduler/core/stopping.h"
#include "scheduler/ctl/folder_claim.h"
#include "scheduler/ctl/text/exit_codes.h"

namespace syncline::ctl {
namespace {

constexpr absl::Duration kCallTimeout = absl::Seconds(10);
// How long a submission whose answer was lost is asked for again.
constexpr absl::Duration kRepeatFor = absl::Seconds(10);
// Where the user asks for no other number.
constexpr uint32_t kListLimit = 100;
constexpr absl::Duration kIdleInterval = absl::Milliseconds(200);
// One stream of a watch; it is followed by the next.
constexpr absl::Duration kStreamTimeout = absl::Hours(1);
constexpr uint64_t kAnySize = std::numeric_limits<uint64_t>::max();

// Long enough for any line that is worth using, and still an end.
absl::Time TransferDeadline(uint64_t bytes) {
  return MonotonicNow() + absl::Minutes(2) + absl::Seconds(bytes / 500000);
}

// Ours never cancel without saying so: the scheduler ends its calls.
bool IsStopping(const absl::Status& status) {
  return absl::IsCancelled(status) ||
         (absl::IsUnavailable(status) &&
          absl::StrContains(status.message(), scheduler::kSchedulerStopping));
}

bool IsOutOfReach(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

absl::Status OutOfReach(const std::string& address,
                        const absl::Status& status) {
  return absl::UnavailableError(absl::StrCat("no scheduler answers at ",
                                             address, ": ", status.message()));
}

void Pause(absl::Duration duration) {
  const absl::Time until = MonotonicNow() + duration;
  Mutex mu;
  CondVar never;
  MutexLock lock(&mu);
  while (MonotonicNow() < until) never.WaitUntil(&mu, until);
}

// The file has on the disk what came from the scheduler.
absl::Status CheckWritten(const std::string& path,
                          const FileChunkWriter& written) {
  SYNCLINE_ASSIGN_OR_RETURN(const auto reader, FileChunkReader::Open(path));
  FileChunk chunk;
  while (!chunk.last()) SYNCLINE_RETURN_IF_ERROR(reader->Next(&chunk));
  if (reader->size_bytes() == written.size_bytes() &&
      chunk.crc32c() == written.crc32c()) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(
      path, " is not what was written to it: has another process used it?"));
}

// The status of a unary call, with the address where that is what failed.
absl::Status CallStatus(const std::string& address,
                        const grpc::Status& grpc_status) {
  const absl::Status status = FromGrpcStatus(grpc_status);
  if (IsStopping(status))
    return OutOfReach(address, scheduler::SchedulerStopping());
  // Something answers that is no scheduler.
  const bool is_another = absl::IsUnimplemented(status);
  return IsOutOfReach(status) || is_another ? OutOfReach(address, status)
                                            : status;
}

}  // namespace

JobsClient::JobsClient(const std::string& scheduler_address)
    : address_(scheduler_address),
      stub_(Jobs::NewStub(MakeChannel(scheduler_address))) {}

absl::StatusOr<SubmitResponse> JobsClient::Submit(
    const JobSpec& spec, const std::string& model_file,
    const std::string& client_key, const Transferred& transferred) {
  SubmitBegin begin;
  *begin.mutable_spec() = spec;
  begin.set_client_key(client_key);
  // A scheduler that is not there at all is told at once.
  const absl::Status reached = GetCluster().status();
  if (IsOutOfReach(reached)) return reached;
  absl::Time give_up = absl::InfiniteFuture();  // once an answer was lost
  for (bool repeated = false;; repeated = true) {
    auto response = SubmitOnce(begin, model_file, transferred);
    // An answer that was lost is ours, not an earlier submission's.
    if (response.ok() && repeated) response->set_repeated_submission(false);
    if (client_key.empty() || !IsOutOfReach(response.status())) return response;
    const absl::Time now = MonotonicNow();
    give_up = std::min(give_up, now + kRepeatFor);
    if (now >= give_up) return response;
    Pause(kIdleInterval);
  }
}

absl::StatusOr<SubmitResponse> JobsClient::SubmitOnce(
    const SubmitBegin& begin, const std::string& model_file,
    const Transferred& transferred) {
  SYNCLINE_ASSIGN_OR_RETURN(const auto model,
                            FileChunkReader::Open(model_file));
  const uint64_t total_bytes = model->size_bytes();
  const auto context = MakeContext(TransferDeadline(total_bytes));
  DeclareFileBytes(total_bytes, context.get());
  SubmitResponse response;
  const auto writer = stub_->Submit(context.get(), &response);

  SubmitRequest request;
  *request.mutable_begin() = begin;
  absl::Status read;
  // A failed write ends the upload; Finish knows why.
  while (writer->Write(request)) {
    const FileChunk& sent = request.model();
    if (sent.last()) break;
    if (!transferred(sent.offset() + sent.data().size(), total_bytes)) {
      read = absl::CancelledError("interrupted; nothing was submitted");
      break;
    }
    read = model->Next(request.mutable_model());
    if (!read.ok()) break;
  }
  if (read.ok()) {
    writer->WritesDone();
  } else {
    context->TryCancel();
  }
  const absl::Status answered = CallStatus(address_, writer->Finish());
  SYNCLINE_RETURN_IF_ERROR(read);
  SYNCLINE_RETURN_IF_ERROR(answered);
  return response;
}

absl::StatusOr<JobStatus> JobsClient::Get(const std::string& job_id) {
  const auto context = MakeContext(MonotonicNow() + kCallTimeout);
  GetRequest request;
  request.set_job_id(job_id);
  JobStatus job;
  SYNCLINE_RETURN_IF_ERROR(
      CallStatus(address_, stub_->Get(context.get(), request, &job)));
  return job;
}

absl::StatusOr<ListResponse> JobsClient::List(ListRequest request) {
  if (request.limit() == 0) request.set_limit(kListLimit);
  const uint32_t limit = request.limit();
  ListResponse all;
  do {
    const auto context = MakeContext(MonotonicNow() + kCallTimeout);
    ListResponse page;
    SYNCLINE_RETURN_IF_ERROR(
        CallStatus(address_, stub_->List(context.get(), request, &page)));
    // A page without jobs that promises more would go on for ever.
    if (page.jobs_size() == 0) break;
    for (JobStatus& job : *page.mutable_jobs()) {
      *all.add_jobs() = std::move(job);
    }
    request.set_page_token(page.next_page_token());
    request.set_limit(limit - std::min<uint32_t>(limit, all.jobs_size()));
  } while (!request.page_token().empty() && request.limit() > 0);
  return all;
}

absl::StatusOr<JobStatus> JobsClient::Cancel(const std::string& job_id,
                                             const std::string& reason) {
  const auto context = MakeContext(MonotonicNow() + kCallTimeout);
  CancelRequest request;
  request.set_job_id(job_id);
  request.set_reason(reason);
  JobStatus job;
  SYNCLINE_RETURN_IF_ERROR(
      CallStatus(address_, stub_->Cancel(context.get(), request, &job)));
  return job;
}

absl::StatusOr<ClusterStatus> JobsClient::GetCluster() {
  const auto context = MakeContext(MonotonicNow() + kCallTimeout);
  ClusterStatus cluster;
  SYNCLINE_RETURN_IF_ERROR(CallStatus(
      address_,
      stub_->GetCluster(context.get(), GetClusterRequest(), &cluster)));
  return cluster;
}

absl::StatusOr<JobTableStatus> JobsClient::GetTables(
    const std::string& job_id) {
  const auto context = MakeContext(MonotonicNow() + kCallTimeout);
  GetRequest request;
  request.set_job_id(job_id);
  JobTableStatus tables;
  SYNCLINE_RETURN_IF_ERROR(
      CallStatus(address_, stub_->GetTables(context.get(), request, &tables)));
  return tables;
}

absl::StatusOr<std::string> JobsClient::Profile(const ProfileRequest& request) {
  const auto context = MakeContext(MonotonicNow() + kCallTimeout);
  ProfileResponse response;
  SYNCLINE_RETURN_IF_ERROR(
      CallStatus(address_, stub_->Profile(context.get(), request, &response)));
  return response.artifact();
}

absl::Status JobsClient::Download(const std::string& job_id,
                                  const Artifact& artifact,
                                  const std::string& to_file,
                                  const Transferred& transferred) {
  const auto context = MakeContext(TransferDeadline(artifact.size_bytes()));
  DownloadRequest request;
  request.set_job_id(job_id);
  request.set_name(artifact.name());
  const std::string part = PartName(to_file);
  SYNCLINE_ASSIGN_OR_RETURN(const auto file,
                            FileChunkWriter::Create(part, kAnySize));
  const auto reader = stub_->Download(context.get(), request);
  FileChunk chunk;
  absl::Status received;
  while (received.ok() && reader->Read(&chunk)) {
    received = file->Append(chunk);
    if (received.ok() &&
        !transferred(file->size_bytes(), artifact.size_bytes())) {
      received = absl::CancelledError("interrupted");
    }
  }
  if (!received.ok()) context->TryCancel();
  const absl::Status finished = CallStatus(address_, reader->Finish());
  SYNCLINE_RETURN_IF_ERROR(received);
  SYNCLINE_RETURN_IF_ERROR(finished);
  if (!file->whole()) {
    return absl::DataLossError("the scheduler sent only a part of it");
  }
  SYNCLINE_RETURN_IF_ERROR(CheckWritten(part, *file));
  return file->Commit(to_file);
}

absl::StatusOr<JobStatus> JobsClient::Watch(const std::string& job_id,
                                            const WatchOptions& options,
                                            InterruptSignals* interrupts) {
  JobStatus latest;
  absl::Time give_up = MonotonicNow() + options.reconnect_for;
  absl::Time heard_at = MonotonicNow();
  bool stopping = false;  // it was told to end, rather than lost
  for (;;) {
    const absl::Time heard_before = heard_at;
    const absl::Status ended = FollowOnce(job_id, options, &latest, &heard_at);
    if (ended.ok()) return latest;
    if (!IsOutOfReach(ended)) return ended;
    stopping = (stopping && heard_at == heard_before) || IsStopping(ended);
    const absl::Time now = MonotonicNow();
    if (heard_at > heard_before) give_up = now + options.reconnect_for;
    if (now >= give_up || now - heard_at >= options.silence_max) {
      if (!stopping) return OutOfReach(address_, ended);
      return absl::AbortedError(
          absl::StrCat(scheduler::kSchedulerStopping, " (", address_,
                       "), and none has come in its place"
                       "; the outcome of job ",
                       job_id, " is known when one is there again"));
    }
    SYNCLINE_RETURN_IF_ERROR(options.on_idle());
    if (interrupts->WaitFor(kIdleInterval)) {
      return absl::CancelledError("interrupted");
    }
  }
}

absl::Status JobsClient::FollowOnce(const std::string& job_id,
                                    const WatchOptions& options,
                                    JobStatus* latest, absl::Time* heard_at) {
  enum : intptr_t { kStarted = 1, kRead, kFinished };
  const auto tag = [](intptr_t event) {
    return reinterpret_cast<void*>(event);
  };
  const auto context = MakeContext(MonotonicNow() + kStreamTimeout);
  WatchRequest request;
  request.set_job_id(job_id);
  grpc::CompletionQueue queue;
  const auto reader =
      stub_->AsyncWatch(context.get(), request, &queue, tag(kStarted));

  JobStatus message;
  std::string told;  // the last message, as bytes
  grpc::Status finished;
  absl::Status stopped;
  for (bool open = true; open;) {
    if (stopped.ok()) {
      stopped = options.on_idle();
      const absl::Duration silence = MonotonicNow() - *heard_at;
      if (stopped.ok() && silence >= options.silence_told &&
          options.on_silence != nullptr) {
        options.on_silence(silence);
      }
      if (stopped.ok() && silence >= options.silence_max) {
        stopped = absl::UnavailableError(
            absl::StrCat("no news for ", absl::ToInt64Seconds(silence), " s"));
      }
      if (!stopped.ok()) context->TryCancel();
    }
    void* event = nullptr;
    bool ok = false;
    if (queue.AsyncNext(&event, &ok,
                        ToGrpcTime(MonotonicNow() + kIdleInterval)) !=
        grpc::CompletionQueue::GOT_EVENT) {
      continue;
    }
    if (event == tag(kFinished)) {
      open = false;
    } else if (!ok) {
      reader->Finish(&finished, tag(kFinished));
    } else {
      if (event == tag(kRead)) {
        *heard_at = MonotonicNow();
        const bool changed = message.SerializeAsString() != told;
        told = message.SerializeAsString();
        *latest = message;
        if (stopped.ok() && changed) options.on_status(message);
      }
      reader->Read(&message, tag(kRead));
    }
  }
  queue.Shutdown();
  SYNCLINE_RETURN_IF_ERROR(stopped);
  if (HasEnded(latest->state())) return absl::OkStatus();
  const absl::Status status = FromGrpcStatus(finished);
  if (IsStopping(status)) return scheduler::SchedulerStopping();
  return status.ok() ? absl::UnavailableError("the watch ended early") : status;
}

}  // namespace syncline::ctl

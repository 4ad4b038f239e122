#include "scheduler/ctl/jobs_client.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/base/trace_id.h"
#include "common/cluster/declared_size.h"
#include "common/cluster/file_chunks.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/user_calls.h"
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
// Of a state whose size is not known.
constexpr absl::Duration kBackupTimeout = absl::Hours(24);
// Of all logs that there are, and of a job that is followed.
constexpr absl::Duration kLogsTimeout = absl::Minutes(30);
constexpr absl::Duration kFollowTimeout = absl::Hours(7 * 24);
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

// Reads a stream that the scheduler sends, with a turn at least every
// kIdleInterval; returns the call's status. Blocks until the call has ended.
//   start        begins the call on this queue, with this tag
//   on_turn      runs on this thread before each event, and where none comes;
//                it may cancel the call
//   on_message   sees every message, also what comes after a cancellation
template <typename Message>
grpc::Status ReadStream(
    absl::FunctionRef<std::unique_ptr<grpc::ClientAsyncReader<Message>>(
        grpc::CompletionQueue* queue, void* tag)>
        start,
    absl::FunctionRef<void()> on_turn,
    absl::FunctionRef<void(const Message&)> on_message) {
  enum : intptr_t { kStarted = 1, kRead, kFinished };
  const auto tag = [](intptr_t event) {
    return reinterpret_cast<void*>(event);
  };
  grpc::CompletionQueue queue;
  const auto reader = start(&queue, tag(kStarted));
  Message message;
  grpc::Status finished;
  for (bool open = true; open;) {
    on_turn();
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
      if (event == tag(kRead)) on_message(message);
      reader->Read(&message, tag(kRead));
    }
  }
  queue.Shutdown();
  return finished;
}

// Cancels a call at Ctrl-C. Both outlive it.
class Interruption {
 public:
  Interruption(InterruptSignals* interrupts, grpc::ClientContext* context)
      : interrupts_(*interrupts), context_(*context) {}

  void Look() {
    if (has_come_ || !interrupts_.Take()) return;
    has_come_ = true;
    context_.TryCancel();
  }
  bool has_come() const { return has_come_; }

 private:
  InterruptSignals& interrupts_;
  grpc::ClientContext& context_;
  bool has_come_ = false;
};

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

// Appends all that the scheduler at `address` sends to `file`. Errors: those of
// the call and of the file, Cancelled: `transferred` said so, DataLoss: the end
// is missing.
absl::Status ReceiveFile(const std::string& address,
                         grpc::ClientReader<FileChunk>* reader,
                         grpc::ClientContext* context, uint64_t total_bytes,
                         const JobsClient::Transferred& transferred,
                         FileChunkWriter* file) {
  FileChunk chunk;
  absl::Status received;
  while (received.ok() && reader->Read(&chunk)) {
    received = file->Append(chunk);
    if (received.ok() && !transferred(file->size_bytes(), total_bytes)) {
      received = absl::CancelledError("interrupted");
    }
  }
  if (!received.ok()) context->TryCancel();
  const absl::Status finished = CallStatus(address, reader->Finish());
  SYNCLINE_RETURN_IF_ERROR(received);
  SYNCLINE_RETURN_IF_ERROR(finished);
  if (!file->whole()) {
    return absl::DataLossError("the scheduler sent only a part of it");
  }
  return absl::OkStatus();
}

}  // namespace

JobsClient::JobsClient(const std::string& scheduler_address)
    : address_(scheduler_address),
      stub_(Jobs::NewStub(
          MakeChannel(scheduler_address, ExpectedPeer::kScheduler))) {}

absl::StatusOr<SubmitResponse> JobsClient::Submit(
    const JobSpec& spec, const std::string& model_file,
    const std::string& client_key, const Transferred& transferred,
    const std::string& trace_id, const std::string& weights_file) {
  SubmitBegin begin;
  *begin.mutable_spec() = spec;
  begin.set_client_key(client_key);
  begin.set_trace_id(trace_id.empty() ? NewTraceId() : trace_id);
  // A scheduler that is not there at all is told at once.
  const absl::Status reached = GetCluster().status();
  if (IsOutOfReach(reached)) return reached;
  absl::Time give_up = absl::InfiniteFuture();  // once an answer was lost
  for (bool repeated = false;; repeated = true) {
    auto response = SubmitOnce(begin, model_file, weights_file, transferred);
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
    const std::string& weights_file, const Transferred& transferred) {
  SYNCLINE_ASSIGN_OR_RETURN(const auto model,
                            FileChunkReader::Open(model_file));
  std::unique_ptr<FileChunkReader> weights;
  if (!weights_file.empty()) {
    SYNCLINE_ASSIGN_OR_RETURN(weights, FileChunkReader::Open(weights_file));
  }
  const uint64_t model_bytes = model->size_bytes();
  const uint64_t total_bytes =
      model_bytes + (weights == nullptr ? 0 : weights->size_bytes());
  SYNCLINE_ASSIGN_OR_RETURN(
      const auto context,
      MakeUserContext(address_, TransferDeadline(total_bytes)));
  DeclareFileBytes(model_bytes, context.get());
  SubmitResponse response;
  const auto writer = stub_->Submit(context.get(), &response);

  SubmitRequest request;
  *request.mutable_begin() = begin;
  absl::Status read;
  // A failed write ends the upload; Finish knows why.
  while (writer->Write(request)) {
    const bool model_is_sent = request.has_weights() || request.model().last();
    const FileChunk& sent =
        request.has_weights() ? request.weights() : request.model();
    if (model_is_sent && (weights == nullptr || request.weights().last())) {
      break;
    }
    const uint64_t before = request.has_weights() ? model_bytes : 0;
    if (!transferred(before + sent.offset() + sent.data().size(),
                     total_bytes)) {
      read = absl::CancelledError("interrupted; nothing was submitted");
      break;
    }
    read = model_is_sent ? weights->Next(request.mutable_weights())
                         : model->Next(request.mutable_model());
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
  SYNCLINE_ASSIGN_OR_RETURN(
      const auto context,
      MakeUserContext(address_, MonotonicNow() + kCallTimeout));
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
    SYNCLINE_ASSIGN_OR_RETURN(
        const auto context,
        MakeUserContext(address_, MonotonicNow() + kCallTimeout));
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
  SYNCLINE_ASSIGN_OR_RETURN(
      const auto context,
      MakeUserContext(address_, MonotonicNow() + kCallTimeout));
  CancelRequest request;
  request.set_job_id(job_id);
  request.set_reason(reason);
  JobStatus job;
  SYNCLINE_RETURN_IF_ERROR(
      CallStatus(address_, stub_->Cancel(context.get(), request, &job)));
  return job;
}

absl::StatusOr<ClusterStatus> JobsClient::GetCluster() {
  SYNCLINE_ASSIGN_OR_RETURN(
      const auto context,
      MakeUserContext(address_, MonotonicNow() + kCallTimeout));
  ClusterStatus cluster;
  SYNCLINE_RETURN_IF_ERROR(CallStatus(
      address_,
      stub_->GetCluster(context.get(), GetClusterRequest(), &cluster)));
  return cluster;
}

absl::StatusOr<JobTableStatus> JobsClient::GetTables(
    const std::string& job_id) {
  SYNCLINE_ASSIGN_OR_RETURN(
      const auto context,
      MakeUserContext(address_, MonotonicNow() + kCallTimeout));
  GetRequest request;
  request.set_job_id(job_id);
  JobTableStatus tables;
  SYNCLINE_RETURN_IF_ERROR(
      CallStatus(address_, stub_->GetTables(context.get(), request, &tables)));
  return tables;
}

absl::Status JobsClient::Events(
    const std::string& job_id, bool follow,
    const std::function<void(const JobEvent&)>& on_event,
    InterruptSignals* interrupts) {
  SYNCLINE_ASSIGN_OR_RETURN(
      const auto context,
      MakeUserContext(
          address_, MonotonicNow() + (follow ? kStreamTimeout : kCallTimeout)));
  EventsRequest request;
  request.set_job_id(job_id);
  request.set_follow(follow);
  Interruption interruption(interrupts, context.get());
  const grpc::Status finished = ReadStream<JobEvent>(
      [&](grpc::CompletionQueue* queue, void* tag) {
        return stub_->AsyncEvents(context.get(), request, queue, tag);
      },
      [&] { interruption.Look(); }, on_event);
  if (interruption.has_come()) return absl::CancelledError("interrupted");
  return CallStatus(address_, finished);
}

absl::StatusOr<CheckpointInfo> JobsClient::TakeCheckpoint(
    const std::string& job_id, absl::Duration timeout) {
  // A scheduler that is not there at all is told at once.
  SYNCLINE_RETURN_IF_ERROR(GetCluster().status());
  SYNCLINE_ASSIGN_OR_RETURN(
      const auto context, MakeUserContext(address_, MonotonicNow() + timeout));
  TakeCheckpointRequest request;
  request.set_job_id(job_id);
  CheckpointInfo whole;
  const grpc::Status status =
      stub_->TakeCheckpoint(context.get(), request, &whole);
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", job_id, " has made no checkpoint within ",
        absl::FormatDuration(timeout), "; it may still do so: `synctl get ",
        job_id, "` lists what it has saved"));
  }
  SYNCLINE_RETURN_IF_ERROR(CallStatus(address_, status));
  return whole;
}

absl::StatusOr<SetMemberUseResponse> JobsClient::SetMemberUse(
    const SetMemberUseRequest& request) {
  SYNCLINE_ASSIGN_OR_RETURN(
      const auto context,
      MakeUserContext(address_, MonotonicNow() + kCallTimeout));
  SetMemberUseResponse response;
  SYNCLINE_RETURN_IF_ERROR(CallStatus(
      address_, stub_->SetMemberUse(context.get(), request, &response)));
  return response;
}

absl::StatusOr<JobStatus> JobsClient::Scale(const ScaleRequest& request) {
  SYNCLINE_ASSIGN_OR_RETURN(
      const auto context,
      MakeUserContext(address_, MonotonicNow() + kCallTimeout));
  JobStatus job;
  SYNCLINE_RETURN_IF_ERROR(
      CallStatus(address_, stub_->Scale(context.get(), request, &job)));
  return job;
}

absl::StatusOr<std::string> JobsClient::Profile(const ProfileRequest& request) {
  SYNCLINE_ASSIGN_OR_RETURN(
      const auto context,
      MakeUserContext(address_, MonotonicNow() + kCallTimeout));
  ProfileResponse response;
  SYNCLINE_RETURN_IF_ERROR(
      CallStatus(address_, stub_->Profile(context.get(), request, &response)));
  return response.artifact();
}

absl::StatusOr<RegimeTransition> JobsClient::ChangeRegime(
    const ChangeRegimeRequest& request, absl::Duration timeout) {
  // A scheduler that is not there at all is told at once.
  SYNCLINE_RETURN_IF_ERROR(GetCluster().status());
  SYNCLINE_ASSIGN_OR_RETURN(
      const auto context, MakeUserContext(address_, MonotonicNow() + timeout));
  RegimeTransition changed;
  const grpc::Status status =
      stub_->ChangeRegime(context.get(), request, &changed);
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return FromGrpcStatus(status);
  }
  SYNCLINE_RETURN_IF_ERROR(CallStatus(address_, status));
  return changed;
}

absl::Status JobsClient::Download(const std::string& job_id,
                                  const Artifact& artifact,
                                  const std::string& to_file,
                                  const Transferred& transferred) {
  SYNCLINE_ASSIGN_OR_RETURN(
      const auto context,
      MakeUserContext(address_, TransferDeadline(artifact.size_bytes())));
  DownloadRequest request;
  request.set_job_id(job_id);
  request.set_name(artifact.name());
  const std::string part = PartName(to_file);
  SYNCLINE_ASSIGN_OR_RETURN(const auto file,
                            FileChunkWriter::Create(part, kAnySize));
  const auto reader = stub_->Download(context.get(), request);
  SYNCLINE_RETURN_IF_ERROR(ReceiveFile(address_, reader.get(), context.get(),
                                       artifact.size_bytes(), transferred,
                                       file.get()));
  SYNCLINE_RETURN_IF_ERROR(CheckWritten(part, *file));
  return file->Commit(to_file);
}

absl::Status JobsClient::BackupState(const std::string& to_file,
                                     const Transferred& transferred) {
  SYNCLINE_ASSIGN_OR_RETURN(
      const auto context,
      MakeUserContext(address_, MonotonicNow() + kBackupTimeout));
  const std::string part = PartName(to_file);
  SYNCLINE_ASSIGN_OR_RETURN(const auto file,
                            FileChunkWriter::Create(part, kAnySize));
  // It has the secrets of jobs that run.
  std::error_code error;
  std::filesystem::permissions(
      part,
      std::filesystem::perms::owner_read | std::filesystem::perms::owner_write,
      error);
  if (error) {
    return absl::PermissionDeniedError(absl::StrCat(
        part, " cannot be made its owner's alone: ", error.message()));
  }
  const auto reader = stub_->BackupState(context.get(), BackupStateRequest());
  SYNCLINE_RETURN_IF_ERROR(ReceiveFile(address_, reader.get(), context.get(),
                                       /*total_bytes=*/0, transferred,
                                       file.get()));
  SYNCLINE_RETURN_IF_ERROR(CheckWritten(part, *file));
  return file->Commit(to_file);
}

absl::Status JobsClient::Logs(
    const LogsRequest& request,
    const std::function<bool(const LogLines&)>& on_lines,
    InterruptSignals* interrupts) {
  SYNCLINE_ASSIGN_OR_RETURN(
      const auto context,
      MakeUserContext(
          address_,
          MonotonicNow() + (request.follow() ? kFollowTimeout : kLogsTimeout)));
  Interruption interruption(interrupts, context.get());
  bool enough = false;
  const grpc::Status finished = ReadStream<LogLines>(
      [&](grpc::CompletionQueue* queue, void* tag) {
        return stub_->AsyncLogs(context.get(), request, queue, tag);
      },
      [&] { interruption.Look(); },
      [&](const LogLines& lines) {
        if (interruption.has_come() || enough || on_lines(lines)) return;
        enough = true;
        context->TryCancel();
      });
  if (interruption.has_come()) return absl::CancelledError("interrupted");
  if (enough) return absl::OkStatus();
  // A stream whose token is not good any more is cut off, and does not say why;
  // a call of its own does.
  if (finished.error_code() == grpc::StatusCode::CANCELLED) {
    SYNCLINE_RETURN_IF_ERROR(Get(request.job_id()).status());
  }
  return CallStatus(address_, finished);
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
  SYNCLINE_ASSIGN_OR_RETURN(
      const auto context,
      MakeUserContext(address_, MonotonicNow() + kStreamTimeout));
  WatchRequest request;
  request.set_job_id(job_id);
  std::string told;  // the last message, as bytes
  absl::Status stopped;
  const auto on_turn = [&] {
    if (!stopped.ok()) return;
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
  };
  const grpc::Status finished = ReadStream<JobStatus>(
      [&](grpc::CompletionQueue* queue, void* tag) {
        return stub_->AsyncWatch(context.get(), request, queue, tag);
      },
      on_turn,
      [&](const JobStatus& message) {
        *heard_at = MonotonicNow();
        *latest = message;
        std::string bytes = message.SerializeAsString();
        if (stopped.ok() && bytes != told) options.on_status(message);
        told = std::move(bytes);
      });
  SYNCLINE_RETURN_IF_ERROR(stopped);
  if (HasEnded(latest->state())) return absl::OkStatus();
  const absl::Status status = FromGrpcStatus(finished);
  if (IsStopping(status)) return scheduler::SchedulerStopping();
  return status.ok() ? absl::UnavailableError("the watch ended early") : status;
}

}  // namespace syncline::ctl

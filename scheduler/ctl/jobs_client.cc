#include "scheduler/ctl/jobs_client.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/crc32c.h"
#include "common/base/file.h"
#include "common/base/status_macros.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "scheduler/ctl/exit_codes.h"

namespace syncline {
namespace {

constexpr absl::Duration kCallTimeout = absl::Seconds(10);
constexpr absl::Duration kIdleInterval = absl::Milliseconds(200);
// One stream of a watch; it is followed by the next.
constexpr absl::Duration kStreamTimeout = absl::Hours(1);
constexpr size_t kChunkBytes = 1 << 20;

// Long enough for any line that is worth using, and still an end.
absl::Time TransferDeadline(uint64_t bytes) {
  return absl::Now() + absl::Minutes(2) + absl::Seconds(bytes / 500000);
}

bool IsOutOfReach(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

absl::Status OutOfReach(const std::string& address,
                        const absl::Status& status) {
  return absl::UnavailableError(absl::StrCat("no scheduler answers at ",
                                             address, ": ", status.message()));
}

// The status of a unary call, with the address where that is what failed.
absl::Status CallStatus(const std::string& address,
                        const grpc::Status& grpc_status) {
  const absl::Status status = FromGrpcStatus(grpc_status);
  return IsOutOfReach(status) ? OutOfReach(address, status) : status;
}

// Sends `file` as chunks into `write`; false from it ends early, with OK: the
// stream's own status then says why.
absl::Status SendChunks(const std::string& file, uint64_t total_bytes,
                        const JobsClient::Transferred& transferred,
                        const std::function<bool(FileChunk)>& write) {
  std::ifstream in(file, std::ios::binary);
  std::string data(kChunkBytes, '\0');
  uint64_t offset = 0;
  uint32_t crc32c = 0;
  do {
    in.read(data.data(), static_cast<std::streamsize>(std::min<uint64_t>(
                             kChunkBytes, total_bytes - offset)));
    const auto got = static_cast<size_t>(in.gcount());
    if (got == 0 && offset < total_bytes) {
      return absl::AbortedError(
          absl::StrCat(file, " changed or failed while it was read"));
    }
    crc32c = ExtendCrc32c(crc32c, absl::string_view(data.data(), got));
    FileChunk chunk;
    chunk.set_offset(offset);
    chunk.set_data(data.data(), got);
    offset += got;
    chunk.set_last(offset == total_bytes);
    if (chunk.last()) chunk.set_crc32c(crc32c);
    if (!write(std::move(chunk))) return absl::OkStatus();
    if (!transferred(offset, total_bytes)) {
      return absl::CancelledError("interrupted");
    }
  } while (offset < total_bytes);
  return absl::OkStatus();
}

// Receives chunks into a file that takes its name only when it is complete.
class ChunkReceiver {
 public:
  explicit ChunkReceiver(std::string to_file)
      : to_file_(std::move(to_file)),
        part_file_(absl::StrCat(to_file_, ".part")),
        out_(part_file_, std::ios::binary | std::ios::trunc) {}
  ~ChunkReceiver() {
    std::error_code ignored;
    if (!finished_) std::filesystem::remove(part_file_, ignored);
  }

  absl::Status Append(const FileChunk& chunk) {
    if (chunk.offset() != received_bytes_ || complete_) {
      return absl::DataLossError(absl::StrCat(
          "chunk at ", chunk.offset(), " where ", received_bytes_, " follows"));
    }
    out_.write(chunk.data().data(),
               static_cast<std::streamsize>(chunk.data().size()));
    if (!out_) {
      return absl::ResourceExhaustedError(
          absl::StrCat("cannot write ", part_file_));
    }
    received_bytes_ += chunk.data().size();
    crc32c_ = ExtendCrc32c(crc32c_, chunk.data());
    if (chunk.last() && chunk.crc32c() != crc32c_) {
      return absl::DataLossError(absl::StrCat(to_file_, ": wrong checksum"));
    }
    complete_ = chunk.last();
    return absl::OkStatus();
  }

  absl::Status Finish() {
    out_.close();
    if (!complete_ || !out_) {
      return absl::DataLossError(absl::StrCat(to_file_, ": it ended early"));
    }
    std::error_code error;
    std::filesystem::rename(part_file_, to_file_, error);
    finished_ = !error;
    return finished_ ? absl::OkStatus()
                     : FileError(error.value(), "rename", part_file_);
  }

  uint64_t received_bytes() const { return received_bytes_; }

 private:
  const std::string to_file_;
  const std::string part_file_;
  std::ofstream out_;
  uint64_t received_bytes_ = 0;
  uint32_t crc32c_ = 0;
  bool complete_ = false;
  bool finished_ = false;
};

}  // namespace

JobsClient::JobsClient(const std::string& scheduler_address)
    : address_(scheduler_address),
      stub_(Jobs::NewStub(MakeChannel(scheduler_address))) {}

absl::StatusOr<std::string> JobsClient::Submit(const JobSpec& spec,
                                               const std::string& model_file,
                                               const Transferred& transferred) {
  SYNCLINE_ASSIGN_OR_RETURN(const uint64_t bytes, FileSize(model_file));
  const auto context = MakeContext(TransferDeadline(bytes));
  SubmitResponse response;
  const auto writer = stub_->Submit(context.get(), &response);
  SubmitRequest request;
  *request.mutable_begin()->mutable_spec() = spec;
  absl::Status sent;
  if (writer->Write(request)) {
    sent = SendChunks(model_file, bytes, transferred, [&](FileChunk chunk) {
      SubmitRequest part;
      *part.mutable_model() = std::move(chunk);
      return writer->Write(part);
    });
  }
  if (sent.ok()) {
    writer->WritesDone();
  } else {
    context->TryCancel();
  }
  const absl::Status answered = CallStatus(address_, writer->Finish());
  SYNCLINE_RETURN_IF_ERROR(sent);
  SYNCLINE_RETURN_IF_ERROR(answered);
  return response.job_id();
}

absl::StatusOr<JobStatus> JobsClient::Get(const std::string& job_id) {
  const auto context = MakeContext(absl::Now() + kCallTimeout);
  GetRequest request;
  request.set_job_id(job_id);
  JobStatus job;
  SYNCLINE_RETURN_IF_ERROR(
      CallStatus(address_, stub_->Get(context.get(), request, &job)));
  return job;
}

absl::StatusOr<ListResponse> JobsClient::List(const ListRequest& request) {
  const auto context = MakeContext(absl::Now() + kCallTimeout);
  ListResponse response;
  SYNCLINE_RETURN_IF_ERROR(
      CallStatus(address_, stub_->List(context.get(), request, &response)));
  return response;
}

absl::StatusOr<JobStatus> JobsClient::Cancel(const std::string& job_id,
                                             const std::string& reason) {
  const auto context = MakeContext(absl::Now() + kCallTimeout);
  CancelRequest request;
  request.set_job_id(job_id);
  request.set_reason(reason);
  JobStatus job;
  SYNCLINE_RETURN_IF_ERROR(
      CallStatus(address_, stub_->Cancel(context.get(), request, &job)));
  return job;
}

absl::StatusOr<ClusterStatus> JobsClient::GetCluster() {
  const auto context = MakeContext(absl::Now() + kCallTimeout);
  ClusterStatus cluster;
  SYNCLINE_RETURN_IF_ERROR(CallStatus(
      address_,
      stub_->GetCluster(context.get(), GetClusterRequest(), &cluster)));
  return cluster;
}

absl::Status JobsClient::Download(const std::string& job_id,
                                  const Artifact& artifact,
                                  const std::string& to_file,
                                  const Transferred& transferred) {
  const auto context = MakeContext(TransferDeadline(artifact.size_bytes()));
  DownloadRequest request;
  request.set_job_id(job_id);
  request.set_name(artifact.name());
  ChunkReceiver receiver(to_file);
  const auto reader = stub_->Download(context.get(), request);
  FileChunk chunk;
  absl::Status received;
  while (received.ok() && reader->Read(&chunk)) {
    received = receiver.Append(chunk);
    if (received.ok() &&
        !transferred(receiver.received_bytes(), artifact.size_bytes())) {
      received = absl::CancelledError("interrupted");
    }
  }
  if (!received.ok()) context->TryCancel();
  const absl::Status finished = CallStatus(address_, reader->Finish());
  SYNCLINE_RETURN_IF_ERROR(received);
  SYNCLINE_RETURN_IF_ERROR(finished);
  return receiver.Finish();
}

absl::StatusOr<JobStatus> JobsClient::Watch(const std::string& job_id,
                                            const WatchOptions& options,
                                            InterruptSignals* interrupts) {
  JobStatus latest;
  absl::Time give_up = absl::Now() + options.reconnect_for;
  for (;;) {
    bool heard = false;
    const absl::Status ended = FollowOnce(job_id, options, &latest, &heard);
    if (ended.ok()) return latest;
    if (!IsOutOfReach(ended)) return ended;
    if (heard) give_up = absl::Now() + options.reconnect_for;
    if (absl::Now() >= give_up) return OutOfReach(address_, ended);
    SYNCLINE_RETURN_IF_ERROR(options.on_idle());
    if (interrupts->WaitFor(kIdleInterval)) {
      return absl::CancelledError("interrupted");
    }
  }
}

absl::Status JobsClient::FollowOnce(const std::string& job_id,
                                    const WatchOptions& options,
                                    JobStatus* latest, bool* heard) {
  enum : intptr_t { kStarted = 1, kRead, kFinished };
  const auto tag = [](intptr_t event) {
    return reinterpret_cast<void*>(event);  // NOLINT: gRPC's tags
  };
  const auto context = MakeContext(absl::Now() + kStreamTimeout);
  WatchRequest request;
  request.set_job_id(job_id);
  grpc::CompletionQueue queue;
  const auto reader =
      stub_->AsyncWatch(context.get(), request, &queue, tag(kStarted));

  JobStatus message;
  grpc::Status finished;
  absl::Status stopped;
  for (bool open = true; open;) {
    if (stopped.ok()) {
      stopped = options.on_idle();
      if (!stopped.ok()) context->TryCancel();
    }
    void* event = nullptr;
    bool ok = false;
    if (queue.AsyncNext(&event, &ok,
                        absl::ToChronoTime(absl::Now() + kIdleInterval)) !=
        grpc::CompletionQueue::GOT_EVENT) {
      continue;
    }
    if (event == tag(kFinished)) {
      open = false;
    } else if (!ok) {
      reader->Finish(&finished, tag(kFinished));
    } else {
      if (event == tag(kRead)) {
        *heard = true;
        *latest = message;
        if (stopped.ok()) options.on_status(message);
      }
      reader->Read(&message, tag(kRead));
    }
  }
  queue.Shutdown();
  SYNCLINE_RETURN_IF_ERROR(stopped);
  if (IsFinal(latest->state())) return absl::OkStatus();
  const absl::Status status = FromGrpcStatus(finished);
  return status.ok() ? absl::UnavailableError("the watch ended early") : status;
}

}  // namespace syncline

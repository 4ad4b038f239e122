// FetchArtifact and UploadArtifact of scheduler_session.h.

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/cluster/declared_size.h"
#include "common/cluster/file_chunks.h"
#include "common/cluster/scheduler_session.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "proto/scheduler.grpc.pb.h"

namespace syncline {
namespace {

// No limit of its own: the scheduler has checked what it stores.
constexpr uint64_t kAnySize = ~0ull;

std::string What(absl::string_view verb, const std::string& job_id,
                 const std::string& name, const std::string& address) {
  return absl::StrCat(verb, " ", name, " of job ", job_id, ", scheduler ",
                      address);
}

absl::Status Fetch(Daemons::Stub* stub, const DownloadRequest& request,
                   const std::string& to_file, absl::Time deadline,
                   Cancellation* cancellation) {
  SYNCLINE_ASSIGN_OR_RETURN(
      auto writer,
      FileChunkWriter::Create(
          absl::StrCat(to_file, ".", absl::Hex(EntropySeed()), ".tmp"),
          kAnySize));
  const auto context = MakeContext(deadline);
  const Cancellation::Scope scope(cancellation,
                                  [&context] { context->TryCancel(); });
  const auto reader = stub->FetchArtifact(context.get(), request);
  absl::Status local;
  for (FileChunk chunk; local.ok() && reader->Read(&chunk);) {
    local = writer->Append(chunk);
  }
  if (!local.ok()) context->TryCancel();
  const grpc::Status remote = reader->Finish();
  SYNCLINE_RETURN_IF_ERROR(local);
  if (!remote.ok()) return FromGrpcStatus(remote);
  if (!writer->whole()) return absl::DataLossError("the last chunk is missing");
  return writer->Commit(to_file);
}

absl::Status Upload(Daemons::Stub* stub, const UploadBegin& begin,
                    const std::string& from_file, absl::Time deadline,
                    Cancellation* cancellation) {
  SYNCLINE_ASSIGN_OR_RETURN(auto reader, FileChunkReader::Open(from_file));
  const auto context = MakeContext(deadline);
  DeclareFileBytes(reader->size_bytes(), context.get());
  const Cancellation::Scope scope(cancellation,
                                  [&context] { context->TryCancel(); });
  UploadResponse response;
  const auto writer = stub->UploadArtifact(context.get(), &response);
  UploadRequest request;
  *request.mutable_begin() = begin;
  absl::Status local;
  // A write that fails means the scheduler has answered already: Finish has it.
  bool going_on = writer->Write(request);
  while (going_on && local.ok()) {
    local = reader->Next(request.mutable_chunk());
    going_on = local.ok() && writer->Write(request) && !request.chunk().last();
  }
  if (!local.ok()) context->TryCancel();
  writer->WritesDone();
  const grpc::Status remote = writer->Finish();
  SYNCLINE_RETURN_IF_ERROR(local);
  return FromGrpcStatus(remote);
}

}  // namespace

absl::Status FetchArtifact(const std::string& scheduler_address,
                           const DownloadRequest& download,
                           const std::string& to_file, absl::Time deadline,
                           Cancellation* cancellation) {
  const auto stub = Daemons::NewStub(
      MakeChannel(scheduler_address, ExpectedPeer::kScheduler));
  return Annotate(
      Fetch(stub.get(), download, to_file, deadline, cancellation),
      What("fetching", download.job_id(), download.name(), scheduler_address));
}

absl::Status UploadArtifact(const std::string& scheduler_address,
                            const UploadBegin& upload,
                            const std::string& from_file, absl::Time deadline,
                            Cancellation* cancellation) {
  const auto stub = Daemons::NewStub(
      MakeChannel(scheduler_address, ExpectedPeer::kScheduler));
  return Annotate(
      Upload(stub.get(), upload, from_file, deadline, cancellation),
      What("storing", upload.job_id(), upload.name(), scheduler_address));
}

}  // namespace syncline

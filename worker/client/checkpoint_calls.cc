#include "worker/client/checkpoint_calls.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "common/system/log.h"

namespace syncline::worker {
namespace {

// A checkpoint that takes longer is given up: its disk stands still.
constexpr absl::Duration kWriteMax = absl::Hours(1);
// How much longer than its wait a call may take.
constexpr absl::Duration kAnswerTime = absl::Seconds(10);
// A manifest is small, but older checkpoints are deleted after it.
constexpr absl::Duration kCommitTimeout = absl::Minutes(5);

}  // namespace

CheckpointCalls::CheckpointCalls(Options options)
    : options_(std::move(options)) {}

absl::Status CheckpointCalls::Call(
    const Options::Shard& shard, absl::string_view method,
    absl::FunctionRef<grpc::Status(ParameterServer::Stub* stub,
                                   grpc::ClientContext* context)>
        call) {
  const bool commits = method == "CommitCheckpoint";
  const auto stub = ParameterServer::NewStub(
      MakeChannel(shard.peer.address, ExpectedPeer::kPs));
  const auto context =
      MakeContext(MonotonicNow() +
                  (commits ? kCommitTimeout : options_.wait + kAnswerTime));
  absl::Status status;
  {
    const Cancellation::Scope scope(&cancellation_,
                                    [&] { context->TryCancel(); });
    status = FromGrpcStatus(call(stub.get(), context.get()));
  }
  if (cancellation_.cancelled()) {
    return absl::CancelledError("the job has ended, or was stopped");
  }
  return Annotate(status,
                  absl::StrCat(shard.peer.name, " at ", shard.peer.address,
                               ", job ", options_.job_id, ", ", method));
}

absl::StatusOr<CheckpointWriting::Part> CheckpointCalls::AwaitPart(
    const Options::Shard& shard, absl::Time deadline) {
  AwaitCheckpointRequest request;
  *request.mutable_caller() = shard.caller;
  request.set_cut_id(options_.cut_id);
  request.set_wait_seconds(absl::ToDoubleSeconds(options_.wait));
  AwaitCheckpointResponse response;
  while (true) {
    const absl::Status status =
        Call(shard, "AwaitCheckpoint", [&](auto* stub, auto* context) {
          return stub->AwaitCheckpoint(context, request, &response);
        });
    if (status.ok()) break;
    // It is still being written.
    if (!absl::IsDeadlineExceeded(status) || MonotonicNow() >= deadline) {
      return status;
    }
  }
  if (response.file().empty()) {
    return absl::InternalError(absl::StrCat(
        shard.peer.name, " at ", shard.peer.address, ", job ", options_.job_id,
        ", AwaitCheckpoint: answered without a file's name"));
  }
  return Part{.file = response.file(),
              .bytes = response.bytes(),
              .crc32c = response.crc32c()};
}

absl::StatusOr<std::vector<CheckpointWriting::Part>>
CheckpointCalls::AwaitParts() {
  const absl::Time deadline = MonotonicNow() + kWriteMax;
  std::vector<Part> parts;
  // All of them write at the same time, whoever is asked first.
  for (const Options::Shard& shard : options_.shards) {
    Part& part = parts.emplace_back();
    if (!shard.takes_part) continue;
    SYNCLINE_ASSIGN_OR_RETURN(part, AwaitPart(shard, deadline));
  }
  return parts;
}

absl::StatusOr<CheckpointWriting::Whole> CheckpointCalls::Commit(
    const std::string& manifest) {
  Whole whole;
  SYNCLINE_RETURN_IF_ERROR(CommitAtAll(manifest, &whole));
  // It is whole everywhere, so older ones may go: that is what a repeat does.
  if (const absl::Status repeated = CommitAtAll(manifest, &whole);
      !repeated.ok()) {
    LogWarning("older checkpoints not deleted")
        .Job(options_.job_id)
        .Status(repeated);
  }
  return whole;
}

absl::Status CheckpointCalls::CommitAtAll(const std::string& manifest,
                                          Whole* whole) {
  std::set<std::string> told;
  // Every ps has deleted its own part.
  std::set<std::string> deleted(whole->deleted.begin(), whole->deleted.end());
  for (const Options::Shard& shard : options_.shards) {
    if (!shard.takes_part) continue;
    if (!told.insert(shard.peer.address).second) continue;
    CommitCheckpointRequest request;
    *request.mutable_caller() = shard.caller;
    request.set_manifest(manifest);
    CommitCheckpointResponse answer;
    SYNCLINE_RETURN_IF_ERROR(
        Call(shard, "CommitCheckpoint", [&](auto* stub, auto* context) {
          return stub->CommitCheckpoint(context, request, &answer);
        }));
    if (whole->path.empty()) whole->path = answer.path();
    deleted.insert(answer.deleted().begin(), answer.deleted().end());
    whole->deleted.assign(deleted.begin(), deleted.end());
    if (!options_.own_folders) break;
  }
  return absl::OkStatus();
}

}  // namespace syncline::worker

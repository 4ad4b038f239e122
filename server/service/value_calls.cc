#include "server/service/value_calls.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/fault_points.h"
#include "common/base/status_macros.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "grpcpp/server_context.h"
#include "proto/parameter_server.pb.h"
#include "server/service/answer_frame.h"

namespace syncline::ps {
namespace {

using grpc::ByteBuffer;
using grpc::CallbackServerContext;

// True if gradients are checked before they are used: the memory that holds
// them must not change in between.
bool ChecksGradients(const JobEntry& job) {
  return job.config.update.on_non_finite != OnNonFinite::kFailJob;
}

// True if the answer shows that the gradients that the call pushed have been
// applied.
bool PullsWhatItPushes(const PushPullHeader& header) {
  return header.push().tables().empty() && header.pull().cut_id() == 0 &&
         header.pull().clock() > header.push().clock() &&
         std::includes(
             header.pull().blocks().begin(), header.pull().blocks().end(),
             header.push().blocks().begin(), header.push().blocks().end());
}

}  // namespace

absl::Time ParkDeadline(const CallbackServerContext& context,
                        absl::Duration wait) {
  const absl::Time now = MonotonicNow();
  const absl::Duration left = FromGrpcTime(context.deadline()) - now;
  const absl::Duration margin = std::min(left / 10, absl::Milliseconds(500));
  return now + std::min(wait, left - margin);
}

absl::Status ValueCalls::Init(const ByteBuffer* request, ByteBuffer* response,
                              ShardReactor* reactor) const {
  InitHeader header;
  CallPayload payload;
  PayloadPart part;
  SYNCLINE_RETURN_IF_ERROR(reader_->Read(
      request, [] { return false; }, &header, &payload, &part));
  SYNCLINE_ASSIGN_OR_RETURN(const auto job, jobs_->Find(header.caller()));
  absl::StatusOr<std::vector<BlockIndex>> blocks =
      job->shard->layout().CheckInit(header, part.bytes);
  if (!blocks.ok()) return Annotate(blocks.status(), job->config.label);
  job->shard->Init(header.caller(), *std::move(blocks), header.total_clocks(),
                   std::move(payload),
                   [response, reactor](absl::Status status, PullValues) {
                     *response = EmptyMessage();
                     reactor->Answer(status);
                   });
  return absl::OkStatus();
}

absl::Status ValueCalls::PushPull(const CallbackServerContext& context,
                                  const ByteBuffer* request,
                                  ByteBuffer* response,
                                  ShardReactor* reactor) const {
  PushPullHeader header;
  CallPayload payload;
  PayloadPart part;
  SYNCLINE_RETURN_IF_ERROR(reader_->Read(
      request,
      [&] {
        const auto job = jobs_->Find(header.push().caller());
        // Compressed blocks are copied once they are checked.
        if (!header.push().block_bytes().empty()) return true;
        return PullsWhatItPushes(header) && job.ok() && !ChecksGradients(**job);
      },
      &header, &payload, &part));
  const Caller& caller = header.push().caller();
  SYNCLINE_ASSIGN_OR_RETURN(const auto job, jobs_->Find(caller));
  SYNCLINE_RETURN_IF_ERROR(AtFaultPoint(FaultPoint::kPushReceived));
  CheckedPush push;
  CheckedPull pull;
  SYNCLINE_RETURN_IF_ERROR(
      Annotate(job->shard->layout().CheckPushPull(header, part, &push, &pull),
               job->config.label));
  SYNCLINE_RETURN_IF_ERROR(
      Annotate(reader_->Expand(header.push(), push.facts.blocks,
                               job->shard->layout(), part, &payload),
               job->config.label));
  SYNCLINE_ASSIGN_OR_RETURN(payload.pushed,
                            reader_->HoldRows(std::move(push.rows)));
  if (payload.pushed != nullptr) payload.pushed->values = payload.values;
  SYNCLINE_ASSIGN_OR_RETURN(payload.pulled,
                            reader_->HoldRows(std::move(pull.rows)));
  SYNCLINE_RETURN_IF_ERROR(reader_->HoldPull(pull.facts, &payload));
  ShardCall call;
  call.rank = caller.rank();
  call.incarnation = caller.incarnation();
  call.deadline =
      ParkDeadline(context, absl::Seconds(header.pull().wait_seconds()));
  call.push = std::move(push.facts);
  call.pull = std::move(pull.facts);
  if (header.push().has_for_rank()) {
    return absl::InvalidArgumentError(absl::StrCat(
        job->config.label, ": push.for_rank is ", header.push().for_rank(),
        " in a PushPull, must be unset: such a push pulls nothing"));
  }
  StartPull(job, std::move(call), std::move(payload), response, reactor);
  return absl::OkStatus();
}

absl::Status ValueCalls::Push(const CallbackServerContext& context,
                              const ByteBuffer* request, ByteBuffer* response,
                              ShardReactor* reactor) const {
  PushHeader header;
  CallPayload payload;
  PayloadPart part;
  SYNCLINE_RETURN_IF_ERROR(reader_->Read(
      request, [] { return false; }, &header, &payload, &part));
  SYNCLINE_ASSIGN_OR_RETURN(const auto job, jobs_->Find(header.caller()));
  SYNCLINE_RETURN_IF_ERROR(AtFaultPoint(FaultPoint::kPushReceived));
  absl::StatusOr<CheckedPush> push =
      job->shard->layout().CheckPush(header, part);
  if (!push.ok()) return Annotate(push.status(), job->config.label);
  SYNCLINE_RETURN_IF_ERROR(
      Annotate(reader_->Expand(header, push->facts.blocks, job->shard->layout(),
                               part, &payload),
               job->config.label));
  SYNCLINE_ASSIGN_OR_RETURN(payload.pushed,
                            reader_->HoldRows(std::move(push->rows)));
  if (payload.pushed != nullptr) payload.pushed->values = payload.values;
  ShardCall call;
  call.rank =
      header.has_for_rank() ? header.for_rank() : header.caller().rank();
  call.for_lost = header.has_for_rank();
  call.incarnation = header.caller().incarnation();
  call.deadline = ParkDeadline(context, job->config.wait_max);
  call.push = std::move(push->facts);
  const CallToken token = job->shard->Call(
      std::move(call), std::move(payload), nullptr,
      [response, reactor](absl::Status status, const PullValues& answer) {
        *response = OutcomeMessage(answer.dropped ? PushResponse::DROPPED
                                                  : PushResponse::ACCEPTED);
        status.Update(AtFaultPoint(FaultPoint::kPushAnswer));
        reactor->Answer(status);
      });
  reactor->CancelWith(job->shard, token);
  return absl::OkStatus();
}

absl::Status ValueCalls::Pull(const CallbackServerContext& context,
                              const ByteBuffer* request, ByteBuffer* response,
                              ShardReactor* reactor) const {
  PullHeader header;
  CallPayload payload;
  PayloadPart part;
  SYNCLINE_RETURN_IF_ERROR(reader_->Read(
      request, [] { return true; }, &header, &payload, &part));
  SYNCLINE_ASSIGN_OR_RETURN(const auto job, jobs_->Find(header.caller()));
  absl::StatusOr<CheckedPull> pull =
      job->shard->layout().CheckPull(header, part);
  if (!pull.ok()) return Annotate(pull.status(), job->config.label);
  CallPayload keys;
  SYNCLINE_ASSIGN_OR_RETURN(keys.pulled,
                            reader_->HoldRows(std::move(pull->rows)));
  SYNCLINE_RETURN_IF_ERROR(reader_->HoldPull(pull->facts, &keys));
  ShardCall call;
  call.rank = header.caller().rank();
  call.incarnation = header.caller().incarnation();
  call.deadline = ParkDeadline(context, absl::Seconds(header.wait_seconds()));
  call.pull = std::move(pull->facts);
  keys.answer = std::move(payload.answer);
  StartPull(job, std::move(call), std::move(keys), response, reactor);
  return absl::OkStatus();
}

void ValueCalls::StartPull(const std::shared_ptr<const JobEntry>& job,
                           ShardCall call, CallPayload payload,
                           ByteBuffer* response, ShardReactor* reactor) const {
  JobShard::Taken taken;
  if (payload.fills_window) taken = reactor->SayTaken();
  const uint32_t rank = call.rank;
  const bool pushes = call.push.has_value();
  const CallToken token = job->shard->Call(
      std::move(call), std::move(payload), std::move(taken),
      [this, job, rank, pushes, response, reactor](absl::Status status,
                                                   PullValues values) {
        if (pushes) status.Update(AtFaultPoint(FaultPoint::kPushAnswer));
        if (status.ok()) {
          metrics_->Sent(values.bytes, values.area.data != nullptr
                                           ? PsMetrics::Path::kSharedMemory
                                           : PsMetrics::Path::kNetwork);
          *response = PullFrame(job->shard.get(), rank, std::move(values));
        }
        reactor->Answer(status);
      });
  reactor->CancelWith(job->shard, token);
}

absl::Status ValueCalls::Scan(const ByteBuffer* request, ByteBuffer* response,
                              ShardReactor* reactor) const {
  ScanTableHeader header;
  CallPayload payload;
  PayloadPart part;
  SYNCLINE_RETURN_IF_ERROR(reader_->Read(
      request, [] { return true; }, &header, &payload, &part));
  SYNCLINE_ASSIGN_OR_RETURN(const auto job, jobs_->Find(header.caller()));
  InFlightBudget::Hold room;
  SYNCLINE_RETURN_IF_ERROR(reader_->Hold(kChunkBytesMax, &room));
  job->shard->Scan(
      header.caller(), header.table(), header.cut_id(), header.cursor(),
      [this, job, room = std::move(room), response,
       reactor](absl::StatusOr<EmbeddingTables::Scanned> rows) mutable {
        if (rows.ok()) {
          *response = ScanFrame(std::move(*rows), std::move(room));
          metrics_->Sent(response->Length(), PsMetrics::Path::kNetwork);
        }
        reactor->Answer(rows.status());
      });
  return absl::OkStatus();
}

}  // namespace syncline::ps

#include "server/service/parameter_service.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/cord.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/job/step_limits.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "common/wire/frame.h"
#include "grpcpp/server_context.h"
#include "proto/parameter_server.grpc.pb.h"

namespace syncline::ps {
namespace {

static_assert(std::endian::native == std::endian::little,
              "payloads are little-endian and used as they are");

using grpc::ByteBuffer;
using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

// The payload of a received frame, as the shard sees it.
class PayloadSource : public FloatSource, public ByteSource {
 public:
  explicit PayloadSource(PayloadView view) : view_(std::move(view)) {}
  void CopyTo(size_t first, size_t count, float* out) const override {
    view_.CopyTo(first * sizeof(float), count * sizeof(float), out);
  }
  void CopyBytes(size_t first, size_t count, void* out) const override {
    view_.CopyTo(first, count, out);
  }

 protected:
  const PayloadView view_;
};

// The same of one whose values are written in 16 bits.
class NarrowSource : public PayloadSource {
 public:
  NarrowSource(PayloadView view, ElementType type)
      : PayloadSource(std::move(view)), type_(type) {}
  void CopyTo(size_t first, size_t count, float* out) const override {
    uint16_t piece[DenseShard::kPieceElements];
    while (count > 0) {
      const size_t n = std::min(count, DenseShard::kPieceElements);
      view_.CopyTo(first * sizeof(uint16_t), n * sizeof(uint16_t), piece);
      Widen(type_, piece, out, n);
      first += n;
      out += n;
      count -= n;
    }
  }

 private:
  const ElementType type_;
};

std::shared_ptr<const PayloadSource> MakeSource(PayloadView view,
                                                WireType type) {
  switch (type) {
    case WIRE_BFLOAT16:
      return std::make_shared<NarrowSource>(std::move(view),
                                            ElementType::kBfloat16);
    case WIRE_FLOAT16:
      return std::make_shared<NarrowSource>(std::move(view),
                                            ElementType::kFloat16);
    default:  // what else it says is refused with its header
      return std::make_shared<PayloadSource>(std::move(view));
  }
}

// The type in which a request's payload is written. Initial values are always
// float32.
WireType PayloadType(const PushPullHeader& header) {
  return header.push().wire_type();
}
WireType PayloadType(const PushHeader& header) { return header.wire_type(); }
template <typename Header>
WireType PayloadType(const Header&) {
  return WIRE_FLOAT32;
}

constexpr size_t kActivityBytesMax = 64;
// Rough number of bytes that a call takes besides its lists.
constexpr uint64_t kWaitingCallBytes = 1024;

// A message without any field.
ByteBuffer EmptyMessage() {
  const grpc::Slice slice;
  return ByteBuffer(&slice, 1);
}

// A slice over the values that owns them, with their part of the budget.
grpc::Slice ToSlice(PullValues values) {
  auto* owner = new PullValues(std::move(values));
  return grpc::Slice(
      owner->floats(), owner->bytes,
      [](void* p) { delete static_cast<PullValues*>(p); }, owner);
}

// A slice over a vector that it owns, with a part of the budget.
template <typename T>
grpc::Slice ToSlice(std::vector<T> values, InFlightBudget::Hold hold) {
  struct Owner {
    std::vector<T> values;
    InFlightBudget::Hold hold;
  };
  auto* owner = new Owner{std::move(values), std::move(hold)};
  return grpc::Slice(
      owner->values.data(), owner->values.size() * sizeof(T),
      [](void* p) { delete static_cast<Owner*>(p); }, owner);
}

// An answer whose values travel, or lie where the caller wants them.
ByteBuffer ToFrame(const PullResponseHeader& header, PullValues values) {
  FrameParts parts;
  header.SerializeToString(&parts.header);
  if (values.area.data != nullptr && values.bytes > 0) {
    SharedRange* const range = parts.shared.add_payload();
    *range = values.area.range;
    range->set_size(values.bytes);
  } else if (values.bytes > 0) {
    parts.payload.push_back(ToSlice(std::move(values)));
  }
  return JoinFrame(std::move(parts));
}

// A caller whose memory was used must know that it is not used any more.
absl::Status WithEnd(absl::Status status) {
  if (!status.ok() && !status.GetPayload(kSharedMemoryDetail).has_value()) {
    status.SetPayload(kSharedMemoryDetail, absl::Cord("ended"));
  }
  return status;
}

// One call that the shard answers, possibly much later. Deletes itself.
class ShardReactor : public ServerUnaryReactor {
 public:
  ShardReactor(PsRpc rpc, PsMetrics* metrics)
      : rpc_(rpc), metrics_(metrics), start_(MonotonicNow()) {}

  // Before the call is handed to gRPC.
  // The job's memory does not wait for gRPC to be done with its calls.
  void CancelWith(std::weak_ptr<JobShard> shard, CallToken token) {
    shard_ = std::move(shard);
    token_ = token;
  }
  // Sends the initial metadata, before the answer or not at all. What it
  // returns may be called once, at any time, also when this is gone.
  JobShard::Taken SayTaken() {
    return [this, early = early_] {
      if (!early->Begin()) return;
      StartSendInitialMetadata();
      if (!early->End()) Finish(ToGrpcStatus(early->status));
    };
  }
  void Answer(const absl::Status& status) {
    metrics_->Answered(rpc_, status.code(), MonotonicNow() - start_);
    early_->status = WithEnd(status);
    if (early_->Answer()) Finish(ToGrpcStatus(early_->status));
  }

 private:
  // gRPC does not let metadata and answer be sent at the same time: the one
  // that comes while the other sends leaves the rest to it.
  class Early {
   public:
    // False: answered already, and the reactor may be gone.
    bool Begin() {
      State open = State::kOpen;
      return state_.compare_exchange_strong(open, State::kSending);
    }
    // False: answered meanwhile, with `status`.
    bool End() {
      State sending = State::kSending;
      return state_.compare_exchange_strong(sending, State::kOpen);
    }
    // False: the caller of Begin finishes the call.
    bool Answer() { return state_.exchange(State::kAnswered) == State::kOpen; }
    absl::Status status;  // set before Answer

   private:
    enum class State { kOpen, kSending, kAnswered };
    std::atomic<State> state_{State::kOpen};
  };

  void OnCancel() override {
    if (const auto shard = shard_.lock()) shard->Cancel(token_);
  }
  void OnDone() override { delete this; }

  const PsRpc rpc_;
  PsMetrics* const metrics_;
  const absl::Time start_;
  const std::shared_ptr<Early> early_ = std::make_shared<Early>();
  std::weak_ptr<JobShard> shard_;
  CallToken token_ = 0;
};

// The same of one that waits for a fold of statistics.
class FoldReactor : public ShardReactor {
 public:
  explicit FoldReactor(PsMetrics* metrics)
      : ShardReactor(PsRpc::kFoldStatistics, metrics) {}
  void CancelWith(std::weak_ptr<PendingReductions> statistics, uint64_t token) {
    statistics_ = std::move(statistics);
    token_ = token;
  }

 private:
  void OnCancel() override {
    if (const auto statistics = statistics_.lock()) statistics->Cancel(token_);
  }

  std::weak_ptr<PendingReductions> statistics_;
  uint64_t token_ = 0;
};

// For how long nothing has come forward includes folds of statistics.
ShardStatus::Job StatusOf(const JobEntry& job) {
  ShardStatus::Job status = job.shard->Status();
  if (job.statistics == nullptr) return status;
  const absl::Time moved_at = job.statistics->moved_at();
  if (moved_at == absl::InfinitePast()) return status;
  const double quiet = absl::ToDoubleSeconds(
      std::max(MonotonicNow() - moved_at, absl::Duration()));
  if (status.quiet_seconds() < 0 || quiet < status.quiet_seconds()) {
    status.set_quiet_seconds(quiet);
  }
  return status;
}

void AddTables(const CallRows& rows, PullResponseHeader* header) {
  for (const RowList& list : rows.lists) {
    TableRows* table = header->add_tables();
    table->set_table(list.table);
    table->set_rows(static_cast<uint32_t>(list.keys.size()));
  }
}

// When a parked call is answered: after `wait`, and somewhat before the caller
// stops listening, so that it hears who is missing.
absl::Time ParkDeadline(const CallbackServerContext& context,
                        absl::Duration wait) {
  const absl::Time now = MonotonicNow();
  const absl::Duration left = FromGrpcTime(context.deadline()) - now;
  const absl::Duration margin = std::min(left / 10, absl::Milliseconds(500));
  return now + std::min(wait, left - margin);
}

// True if gradients are checked before they are used: the memory that holds
// them must not change in between.
bool LooksTwice(const JobEntry& job) {
  return job.config.shard.on_non_finite != OnNonFinite::kFailJob;
}

// Then its answer shows that what it pushed has been applied.
bool PullsWhatItPushes(const PushPullHeader& header) {
  return header.push().tables().empty() && header.pull().cut_id() == 0 &&
         header.pull().clock() > header.push().clock() &&
         std::includes(
             header.pull().blocks().begin(), header.pull().blocks().end(),
             header.push().blocks().begin(), header.push().blocks().end());
}

using MemoryMethods = ParameterServer::WithCallbackMethod_OfferMemory<
    ParameterServer::WithCallbackMethod_AttachMemory<ParameterServer::Service>>;
using FoldMethods = ParameterServer::WithCallbackMethod_FoldNorm<
    ParameterServer::WithCallbackMethod_FoldStatistics<
        ParameterServer::WithRawCallbackMethod_ScanTable<
            ParameterServer::WithCallbackMethod_GetShardStatus<
                MemoryMethods>>>>;
using Service = ParameterServer::WithRawCallbackMethod_Init<
    ParameterServer::WithRawCallbackMethod_PushPull<
        ParameterServer::WithRawCallbackMethod_Push<
            ParameterServer::WithRawCallbackMethod_Pull<
                ParameterServer::WithCallbackMethod_BeginCut<
                    ParameterServer::WithCallbackMethod_EndCut<
                        ParameterServer::WithCallbackMethod_ReportActivity<
                            FoldMethods>>>>>>>;

class ParameterService final : public Service {
 public:
  ParameterService(JobRegistry* jobs, InFlightBudget* budget,
                   SharedRegions* shared, PsMetrics* metrics)
      : jobs_(jobs), budget_(budget), shared_(shared), metrics_(metrics) {}

  ServerUnaryReactor* Init(CallbackServerContext* context,
                           const ByteBuffer* request,
                           ByteBuffer* response) override {
    auto* reactor = new ShardReactor(PsRpc::kInit, metrics_);
    return Started(reactor, StartInit(request, response, reactor));
  }
  ServerUnaryReactor* PushPull(CallbackServerContext* context,
                               const ByteBuffer* request,
                               ByteBuffer* response) override {
    auto* reactor = new ShardReactor(PsRpc::kPushPull, metrics_);
    return Started(reactor, StartPushPull(context, request, response, reactor));
  }
  ServerUnaryReactor* Push(CallbackServerContext* context,
                           const ByteBuffer* request,
                           ByteBuffer* response) override {
    auto* reactor = new ShardReactor(PsRpc::kPush, metrics_);
    return Started(reactor, StartPush(context, request, response, reactor));
  }
  ServerUnaryReactor* Pull(CallbackServerContext* context,
                           const ByteBuffer* request,
                           ByteBuffer* response) override {
    auto* reactor = new ShardReactor(PsRpc::kPull, metrics_);
    return Started(reactor, StartPull(context, request, response, reactor));
  }
  ServerUnaryReactor* BeginCut(CallbackServerContext* context,
                               const BeginCutRequest* request,
                               BeginCutResponse* response) override {
    return Now(context, PsRpc::kBeginCut, DoBeginCut(*request));
  }
  ServerUnaryReactor* EndCut(CallbackServerContext* context,
                             const EndCutRequest* request,
                             EndCutResponse* response) override {
    return Now(context, PsRpc::kEndCut, DoEndCut(*request));
  }
  ServerUnaryReactor* ReportActivity(CallbackServerContext* context,
                                     const ActivityRequest* request,
                                     ActivityResponse* response) override {
    return Now(context, PsRpc::kReportActivity, DoReportActivity(*request));
  }
  ServerUnaryReactor* GetShardStatus(CallbackServerContext* context,
                                     const ShardStatusRequest* request,
                                     ShardStatus* response) override {
    return Now(context, PsRpc::kGetShardStatus, DoStatus(*request, response));
  }
  ServerUnaryReactor* OfferMemory(CallbackServerContext* context,
                                  const OfferMemoryRequest* request,
                                  OfferMemoryResponse* response) override {
    return Now(context, PsRpc::kOfferMemory, DoOfferMemory(*request, response));
  }
  ServerUnaryReactor* AttachMemory(CallbackServerContext* context,
                                   const AttachMemoryRequest* request,
                                   AttachMemoryResponse* response) override {
    return Now(context, PsRpc::kAttachMemory,
               DoAttachMemory(*request, response));
  }
  ServerUnaryReactor* FoldNorm(CallbackServerContext* context,
                               const FoldNormRequest* request,
                               FoldNormResponse* response) override;
  ServerUnaryReactor* FoldStatistics(
      CallbackServerContext* context, const FoldStatisticsRequest* request,
      FoldStatisticsResponse* response) override {
    auto* reactor = new FoldReactor(metrics_);
    return Started(reactor, StartFold(context, *request, response, reactor));
  }
  ServerUnaryReactor* ScanTable(CallbackServerContext* context,
                                const ByteBuffer* request,
                                ByteBuffer* response) override {
    auto* reactor = new ShardReactor(PsRpc::kScanTable, metrics_);
    return Started(reactor, StartScan(request, response, reactor));
  }

 private:
  static ServerUnaryReactor* Started(ShardReactor* reactor,
                                     const absl::Status& status) {
    if (!status.ok()) reactor->Answer(status);
    return reactor;
  }
  ServerUnaryReactor* Now(CallbackServerContext* context, PsRpc rpc,
                          const absl::Status& status) {
    auto* reactor = new ShardReactor(rpc, metrics_);
    reactor->Answer(status);
    return reactor;
  }

  // Takes the frame apart and leaves nothing in `request`: gRPC would keep it
  // for as long as the call is parked. A payload in shared memory stays there
  // if its caller is answered when lanes have read it, and they read it once,
  // which `stays` says once the header has been read; else the caller might use
  // that memory again too soon, and it is copied.
  template <typename Header>
  absl::Status Receive(const ByteBuffer* request,
                       absl::FunctionRef<bool()> stays, Header* header,
                       JobShard::Payload* payload, PayloadPart* part);
  // Moves a payload out of shared memory.
  absl::Status CopyOut(PayloadView* view, JobShard::Payload* payload);

  absl::Status StartInit(const ByteBuffer* request, ByteBuffer* response,
                         ShardReactor* reactor);
  absl::Status StartPushPull(CallbackServerContext* context,
                             const ByteBuffer* request, ByteBuffer* response,
                             ShardReactor* reactor);
  absl::Status StartPush(CallbackServerContext* context,
                         const ByteBuffer* request, ByteBuffer* response,
                         ShardReactor* reactor);
  absl::Status StartPull(CallbackServerContext* context,
                         const ByteBuffer* request, ByteBuffer* response,
                         ShardReactor* reactor);
  absl::Status StartScan(const ByteBuffer* request, ByteBuffer* response,
                         ShardReactor* reactor);
  absl::Status StartFold(CallbackServerContext* context,
                         const FoldStatisticsRequest& request,
                         FoldStatisticsResponse* response,
                         FoldReactor* reactor);
  // Keeps the rows of a call, and room for what was copied of them; null if
  // there are none.
  absl::StatusOr<std::shared_ptr<CallRows>> Keep(std::vector<RowList> lists);
  // Takes room for a pull that may have to wait.
  absl::Status HoldPull(const PullFacts& pull, JobShard::Payload* payload);
  // Hands a checked call with a pull to its shard.
  void StartRead(const std::shared_ptr<const JobEntry>& job, ShardCall call,
                 JobShard::Payload payload, ByteBuffer* response,
                 ShardReactor* reactor);

  absl::Status DoBeginCut(const BeginCutRequest& request);
  absl::Status DoEndCut(const EndCutRequest& request);
  absl::Status DoReportActivity(const ActivityRequest& request);
  absl::Status DoStatus(const ShardStatusRequest& request,
                        ShardStatus* response);
  absl::Status DoOfferMemory(const OfferMemoryRequest& request,
                             OfferMemoryResponse* response);
  absl::Status DoAttachMemory(const AttachMemoryRequest& request,
                              AttachMemoryResponse* response);

  JobRegistry* const jobs_;
  InFlightBudget* const budget_;
  SharedRegions* const shared_;
  PsMetrics* const metrics_;
};

template <typename Header>
absl::Status ParameterService::Receive(const ByteBuffer* request,
                                       absl::FunctionRef<bool()> stays,
                                       Header* header,
                                       JobShard::Payload* payload,
                                       PayloadPart* part) {
  SYNCLINE_RETURN_IF_ERROR(budget_->Acquire(request->Length(), &payload->hold));
  PayloadView view;
  SharedMemory shared;
  SYNCLINE_RETURN_IF_ERROR(DecodeFrame(*request, header, &view, &shared));
  const_cast<ByteBuffer*>(request)->Clear();
  const bool is_shared = shared.payload_size() > 0;
  if (is_shared) {
    SYNCLINE_ASSIGN_OR_RETURN(view, shared_->Payload(shared));
    if (!stays()) {
      SYNCLINE_RETURN_IF_ERROR(CopyOut(&view, payload));
    }
  }
  if (shared.has_answer()) {
    SYNCLINE_ASSIGN_OR_RETURN(payload->answer,
                              shared_->Answer(shared.answer()));
  }
  part->bytes = view.size_bytes();
  metrics_->Received(view.size_bytes(), is_shared
                                            ? PsMetrics::Path::kSharedMemory
                                            : PsMetrics::Path::kNetwork);
  payload->fills_window = !is_shared;
  if (view.size_bytes() > 0) {
    const auto source = MakeSource(std::move(view), PayloadType(*header));
    part->source = source.get();
    payload->values = source;
  }
  return absl::OkStatus();
}

absl::Status ParameterService::CopyOut(PayloadView* view,
                                       JobShard::Payload* payload) {
  SYNCLINE_RETURN_IF_ERROR(
      budget_->Acquire(view->size_bytes(), &payload->hold));
  grpc::Slice copy(view->size_bytes());
  view->CopyTo(0, copy.size(), const_cast<uint8_t*>(copy.begin()));
  std::vector<grpc::Slice> slices;
  slices.push_back(std::move(copy));
  *view = PayloadView(std::move(slices));
  return absl::OkStatus();
}

absl::Status ParameterService::StartInit(const ByteBuffer* request,
                                         ByteBuffer* response,
                                         ShardReactor* reactor) {
  InitHeader header;
  JobShard::Payload payload;
  PayloadPart part;
  SYNCLINE_RETURN_IF_ERROR(Receive(
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

absl::Status ParameterService::StartPushPull(CallbackServerContext* context,
                                             const ByteBuffer* request,
                                             ByteBuffer* response,
                                             ShardReactor* reactor) {
  PushPullHeader header;
  JobShard::Payload payload;
  PayloadPart part;
  SYNCLINE_RETURN_IF_ERROR(Receive(
      request,
      [&] {
        const auto job = jobs_->Find(header.push().caller());
        return PullsWhatItPushes(header) && job.ok() && !LooksTwice(**job);
      },
      &header, &payload, &part));
  const Caller& caller = header.push().caller();
  SYNCLINE_ASSIGN_OR_RETURN(const auto job, jobs_->Find(caller));
  CheckedPush push;
  CheckedPull pull;
  SYNCLINE_RETURN_IF_ERROR(
      Annotate(job->shard->layout().CheckPushPull(header, part, &push, &pull),
               job->config.label));
  SYNCLINE_ASSIGN_OR_RETURN(payload.pushed, Keep(std::move(push.rows)));
  if (payload.pushed != nullptr) payload.pushed->values = payload.values;
  SYNCLINE_ASSIGN_OR_RETURN(payload.pulled, Keep(std::move(pull.rows)));
  SYNCLINE_RETURN_IF_ERROR(HoldPull(pull.facts, &payload));
  ShardCall call;
  call.rank = caller.rank();
  call.incarnation = caller.incarnation();
  call.deadline =
      ParkDeadline(*context, absl::Seconds(header.pull().wait_seconds()));
  call.push = std::move(push.facts);
  call.pull = std::move(pull.facts);
  StartRead(job, std::move(call), std::move(payload), response, reactor);
  return absl::OkStatus();
}

absl::Status ParameterService::StartPull(CallbackServerContext* context,
                                         const ByteBuffer* request,
                                         ByteBuffer* response,
                                         ShardReactor* reactor) {
  PullHeader header;
  JobShard::Payload payload;
  PayloadPart part;
  SYNCLINE_RETURN_IF_ERROR(Receive(
      request, [] { return true; }, &header, &payload, &part));
  SYNCLINE_ASSIGN_OR_RETURN(const auto job, jobs_->Find(header.caller()));
  absl::StatusOr<CheckedPull> pull =
      job->shard->layout().CheckPull(header, part);
  if (!pull.ok()) return Annotate(pull.status(), job->config.label);
  JobShard::Payload keys;
  SYNCLINE_ASSIGN_OR_RETURN(keys.pulled, Keep(std::move(pull->rows)));
  SYNCLINE_RETURN_IF_ERROR(HoldPull(pull->facts, &keys));
  ShardCall call;
  call.rank = header.caller().rank();
  call.incarnation = header.caller().incarnation();
  call.deadline = ParkDeadline(*context, absl::Seconds(header.wait_seconds()));
  call.pull = std::move(pull->facts);
  keys.answer = std::move(payload.answer);
  StartRead(job, std::move(call), std::move(keys), response, reactor);
  return absl::OkStatus();
}

absl::Status ParameterService::HoldPull(const PullFacts& pull,
                                        JobShard::Payload* payload) {
  // The shard and its controller keep the list, each its own.
  return budget_->Acquire(
      kWaitingCallBytes + 2 * sizeof(BlockIndex) * pull.blocks.size(),
      &payload->pull_hold);
}

void ParameterService::StartRead(const std::shared_ptr<const JobEntry>& job,
                                 ShardCall call, JobShard::Payload payload,
                                 ByteBuffer* response, ShardReactor* reactor) {
  JobShard::Taken taken;
  if (payload.fills_window) taken = reactor->SayTaken();
  const uint32_t rank = call.rank;
  const CallToken token = job->shard->Call(
      std::move(call), std::move(payload), std::move(taken),
      [this, job, rank, response, reactor](absl::Status status,
                                           PullValues values) {
        if (status.ok()) {
          PullResponseHeader header;
          for (const BlockIndex block : values.blocks) {
            if (!job->shard->layout().is_dense(block)) break;
            header.add_blocks(job->shard->layout().ids()[block]);
          }
          if (values.rows != nullptr) AddTables(*values.rows, &header);
          header.set_min_clock(values.min_clock);
          header.set_max_clock(values.max_clock);
          header.set_waited_seconds(absl::ToDoubleSeconds(values.waited));
          header.set_non_finite(job->shard->non_finite().CountOf(rank));
          metrics_->Sent(values.bytes, values.area.data != nullptr
                                           ? PsMetrics::Path::kSharedMemory
                                           : PsMetrics::Path::kNetwork);
          *response = ToFrame(header, std::move(values));
        }
        reactor->Answer(status);
      });
  reactor->CancelWith(job->shard, token);
}

absl::Status ParameterService::StartPush(CallbackServerContext* context,
                                         const ByteBuffer* request,
                                         ByteBuffer* response,
                                         ShardReactor* reactor) {
  PushHeader header;
  JobShard::Payload payload;
  PayloadPart part;
  SYNCLINE_RETURN_IF_ERROR(Receive(
      request, [] { return false; }, &header, &payload, &part));
  SYNCLINE_ASSIGN_OR_RETURN(const auto job, jobs_->Find(header.caller()));
  absl::StatusOr<CheckedPush> push =
      job->shard->layout().CheckPush(header, part);
  if (!push.ok()) return Annotate(push.status(), job->config.label);
  SYNCLINE_ASSIGN_OR_RETURN(payload.pushed, Keep(std::move(push->rows)));
  if (payload.pushed != nullptr) payload.pushed->values = payload.values;
  ShardCall call;
  call.rank = header.caller().rank();
  call.incarnation = header.caller().incarnation();
  call.deadline = ParkDeadline(*context, job->config.wait_max);
  call.push = std::move(push->facts);
  const CallToken token =
      job->shard->Call(std::move(call), std::move(payload), nullptr,
                       [response, reactor](absl::Status status, PullValues) {
                         PushResponse accepted;
                         accepted.set_outcome(PushResponse::ACCEPTED);
                         const grpc::Slice slice(accepted.SerializeAsString());
                         *response = ByteBuffer(&slice, 1);
                         reactor->Answer(status);
                       });
  reactor->CancelWith(job->shard, token);
  return absl::OkStatus();
}

absl::Status ParameterService::StartScan(const ByteBuffer* request,
                                         ByteBuffer* response,
                                         ShardReactor* reactor) {
  ScanTableHeader header;
  JobShard::Payload payload;
  PayloadPart part;
  SYNCLINE_RETURN_IF_ERROR(Receive(
      request, [] { return true; }, &header, &payload, &part));
  SYNCLINE_ASSIGN_OR_RETURN(const auto job, jobs_->Find(header.caller()));
  InFlightBudget::Hold room;
  SYNCLINE_RETURN_IF_ERROR(budget_->Acquire(kChunkBytesMax, &room));
  job->shard->Scan(
      header.caller(), header.table(), header.cut_id(), header.cursor(),
      [this, job, room = std::move(room), response,
       reactor](absl::StatusOr<EmbeddingTables::Scanned> rows) mutable {
        if (rows.ok()) {
          ScanTableResponseHeader header;
          header.set_rows(static_cast<uint32_t>(rows->keys.size()));
          header.set_next_cursor(rows->next_cursor);
          std::vector<grpc::Slice> slices;
          if (!rows->keys.empty()) {
            slices.push_back(ToSlice(std::move(rows->keys), {}));
            slices.push_back(ToSlice(std::move(rows->values), std::move(room)));
          }
          *response = EncodeFrame(header, std::move(slices));
          metrics_->Sent(response->Length(), PsMetrics::Path::kNetwork);
        }
        reactor->Answer(rows.status());
      });
  return absl::OkStatus();
}

absl::Status ParameterService::StartFold(CallbackServerContext* context,
                                         const FoldStatisticsRequest& request,
                                         FoldStatisticsResponse* response,
                                         FoldReactor* reactor) {
  SYNCLINE_ASSIGN_OR_RETURN(const auto job, jobs_->Find(request.caller()));
  if (job->statistics == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(job->config.label,
                     ": statistics are not folded here, but by rank 0 of ",
                     "a job with training.sync_batch_statistics"));
  }
  if (!request.absent() && !(request.wait_seconds() > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat(job->config.label, ": wait_seconds is ",
                     request.wait_seconds(), ", must be > 0"));
  }
  InFlightBudget::Hold room;
  SYNCLINE_RETURN_IF_ERROR(budget_->Acquire(request.ByteSizeLong(), &room));
  const uint64_t token = job->statistics->Reduce(
      request, ParkDeadline(*context, absl::Seconds(request.wait_seconds())),
      [room = std::move(room), response,
       reactor](PendingReductions::Sums sums) {
        if (sums.ok()) {
          response->mutable_sums()->Add(sums->begin(), sums->end());
        }
        reactor->Answer(sums.status());
      });
  reactor->CancelWith(job->statistics, token);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<CallRows>> ParameterService::Keep(
    std::vector<RowList> lists) {
  if (lists.empty()) return std::shared_ptr<CallRows>();
  auto rows = std::make_shared<CallRows>();
  uint64_t bytes = 0;
  for (const RowList& list : lists) {
    bytes +=
        list.keys.size() * sizeof(int64_t) + list.runs.size() * sizeof(SlotRun);
  }
  SYNCLINE_RETURN_IF_ERROR(budget_->Acquire(bytes, &rows->hold));
  rows->lists = std::move(lists);
  return rows;
}

absl::Status ParameterService::DoBeginCut(const BeginCutRequest& request) {
  SYNCLINE_ASSIGN_OR_RETURN(const auto job, jobs_->Find(request.caller()));
  if (request.cut_id() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(job->config.label, ": cut_id is 0, must be > 0"));
  }
  if (!(request.hold_seconds() > 0 &&
        request.hold_seconds() <= kHoldSecondsMax)) {
    return absl::InvalidArgumentError(absl::StrCat(
        job->config.label, ": hold_seconds of cut ", request.cut_id(), " is ",
        request.hold_seconds(), ", must be > 0 and at most ", kHoldSecondsMax));
  }
  return job->shard->BeginCut(
      request.caller(), request.cut_id(),
      {request.clocks().begin(), request.clocks().end()},
      absl::Seconds(request.hold_seconds()));
}

absl::Status ParameterService::DoEndCut(const EndCutRequest& request) {
  SYNCLINE_ASSIGN_OR_RETURN(const auto job, jobs_->Find(request.caller()));
  return job->shard->EndCut(request.caller(), request.cut_id());
}

absl::Status ParameterService::DoReportActivity(
    const ActivityRequest& request) {
  SYNCLINE_ASSIGN_OR_RETURN(const auto job, jobs_->Find(request.caller()));
  if (request.clock() < 0 || request.total() == 0 ||
      request.done() > request.total() ||
      request.what().size() > kActivityBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        job->config.label, ": activity of clock ", request.clock(), ", ",
        request.done(), " of ", request.total(), ", with a text of ",
        request.what().size(), " bytes; the clock must not be negative, done ",
        "at most total, total > 0 and the text at most ", kActivityBytesMax));
  }
  return job->shard->ReportActivity(
      request.caller(),
      {request.clock(), request.what(), request.done(), request.total()});
}

absl::Status ParameterService::DoStatus(const ShardStatusRequest& request,
                                        ShardStatus* response) {
  if (!request.job_id().empty()) {
    SYNCLINE_ASSIGN_OR_RETURN(const auto job, jobs_->Find(request.job_id()));
    *response->add_jobs() = StatusOf(*job);
  } else {
    for (const auto& job : jobs_->All()) {
      if (job->shard != nullptr) *response->add_jobs() = StatusOf(*job);
    }
  }
  response->set_in_flight_bytes(budget_->used_bytes());
  response->set_in_flight_limit_bytes(budget_->limit_bytes());
  return absl::OkStatus();
}

absl::Status ParameterService::DoOfferMemory(const OfferMemoryRequest& request,
                                             OfferMemoryResponse* response) {
  SYNCLINE_RETURN_IF_ERROR(jobs_->Find(request.caller()).status());
  SYNCLINE_ASSIGN_OR_RETURN(
      const SharedRegions::Offer offer,
      shared_->MakeOffer(request.boot_id(), MonotonicNow()));
  response->set_socket(offer.socket);
  response->set_token(offer.token);
  return absl::OkStatus();
}

absl::Status ParameterService::DoAttachMemory(
    const AttachMemoryRequest& request, AttachMemoryResponse* response) {
  SYNCLINE_RETURN_IF_ERROR(jobs_->Find(request.caller()).status());
  SYNCLINE_ASSIGN_OR_RETURN(
      const uint64_t region,
      shared_->Attach(request.token(),
                      request.read_only() ? SharedRegion::Access::kRead
                                          : SharedRegion::Access::kReadWrite,
                      MonotonicNow()));
  response->set_region(region);
  return absl::OkStatus();
}

ServerUnaryReactor* ParameterService::FoldNorm(CallbackServerContext* context,
                                               const FoldNormRequest* request,
                                               FoldNormResponse* response) {
  auto* reactor = new ShardReactor(PsRpc::kFoldNorm, metrics_);
  const auto job = jobs_->Find(request->job_id());
  if (!job.ok()) return Started(reactor, job.status());
  (*job)->norms->Reduce(
      *request, ParkDeadline(*context, (*job)->config.wait_max),
      [response, reactor](NormAllReduce::Sums sums) {
        if (sums.ok()) {
          response->mutable_sums()->Add(sums->begin(), sums->end());
        }
        reactor->Answer(sums.status());
      });
  return reactor;
}

}  // namespace

std::unique_ptr<grpc::Service> MakeParameterService(JobRegistry* jobs,
                                                    InFlightBudget* budget,
                                                    SharedRegions* shared,
                                                    PsMetrics* metrics) {
  return std::make_unique<ParameterService>(jobs, budget, shared, metrics);
}

}  // namespace syncline::ps

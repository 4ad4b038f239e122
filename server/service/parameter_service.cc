#include "server/service/parameter_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "grpcpp/server_context.h"
#include "proto/parameter_server.grpc.pb.h"
#include "server/service/checkpoint_calls.h"
#include "server/service/control_calls.h"
#include "server/service/request_reader.h"
#include "server/service/shard_reactor.h"
#include "server/service/value_calls.h"

namespace syncline::ps {
namespace {

using grpc::ByteBuffer;
using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

using MemoryMethods = ParameterServer::WithCallbackMethod_OfferMemory<
    ParameterServer::WithCallbackMethod_AttachMemory<ParameterServer::Service>>;
using FoldMethods = ParameterServer::WithCallbackMethod_FoldNorm<
    ParameterServer::WithCallbackMethod_FoldStatistics<
        ParameterServer::WithRawCallbackMethod_ScanTable<
            ParameterServer::WithCallbackMethod_GetShardStatus<
                ParameterServer::WithCallbackMethod_GetRouting<
                    ParameterServer::WithCallbackMethod_GetRegimes<
                        MemoryMethods>>>>>>;
using CheckpointMethods = ParameterServer::WithCallbackMethod_AwaitCheckpoint<
    ParameterServer::WithCallbackMethod_CommitCheckpoint<FoldMethods>>;
using Service = ParameterServer::WithRawCallbackMethod_Init<
    ParameterServer::WithRawCallbackMethod_PushPull<
        ParameterServer::WithRawCallbackMethod_Push<
            ParameterServer::WithRawCallbackMethod_Pull<
                ParameterServer::WithCallbackMethod_BeginCut<
                    ParameterServer::WithCallbackMethod_EndCut<
                        ParameterServer::WithCallbackMethod_ReportActivity<
                            CheckpointMethods>>>>>>>;

// The methods that gRPC calls, and the two reductions over processes: of norms,
// between ps, and of statistics, between workers.
class ParameterService final : public Service {
 public:
  ParameterService(JobRegistry* jobs, InFlightBudget* budget,
                   SharedRegions* shared, PsMetrics* metrics)
      : jobs_(jobs),
        metrics_(metrics),
        reader_(budget, shared, metrics),
        values_(jobs, &reader_, metrics),
        control_(jobs, budget, shared),
        checkpoints_(jobs) {}

  ServerUnaryReactor* Init(CallbackServerContext* context,
                           const ByteBuffer* request,
                           ByteBuffer* response) override {
    auto* reactor = new ShardReactor(PsRpc::kInit, metrics_);
    return Started(reactor, values_.Init(request, response, reactor));
  }
  ServerUnaryReactor* PushPull(CallbackServerContext* context,
                               const ByteBuffer* request,
                               ByteBuffer* response) override {
    auto* reactor = new ShardReactor(PsRpc::kPushPull, metrics_);
    return Started(reactor,
                   values_.PushPull(*context, request, response, reactor));
  }
  ServerUnaryReactor* Push(CallbackServerContext* context,
                           const ByteBuffer* request,
                           ByteBuffer* response) override {
    auto* reactor = new ShardReactor(PsRpc::kPush, metrics_);
    return Started(reactor, values_.Push(*context, request, response, reactor));
  }
  ServerUnaryReactor* Pull(CallbackServerContext* context,
                           const ByteBuffer* request,
                           ByteBuffer* response) override {
    auto* reactor = new ShardReactor(PsRpc::kPull, metrics_);
    return Started(reactor, values_.Pull(*context, request, response, reactor));
  }
  ServerUnaryReactor* BeginCut(CallbackServerContext* context,
                               const BeginCutRequest* request,
                               BeginCutResponse* response) override {
    return Now(context, PsRpc::kBeginCut, control_.BeginCut(*request));
  }
  ServerUnaryReactor* EndCut(CallbackServerContext* context,
                             const EndCutRequest* request,
                             EndCutResponse* response) override {
    return Now(context, PsRpc::kEndCut, control_.EndCut(*request));
  }
  ServerUnaryReactor* ReportActivity(CallbackServerContext* context,
                                     const ActivityRequest* request,
                                     ActivityResponse* response) override {
    return Now(context, PsRpc::kReportActivity,
               control_.ReportActivity(*request));
  }
  ServerUnaryReactor* GetShardStatus(CallbackServerContext* context,
                                     const ShardStatusRequest* request,
                                     ShardStatus* response) override {
    return Now(context, PsRpc::kGetShardStatus,
               control_.GetShardStatus(*request, response));
  }
  ServerUnaryReactor* GetRouting(CallbackServerContext* context,
                                 const GetRoutingRequest* request,
                                 GetRoutingResponse* response) override {
    return Now(context, PsRpc::kGetRouting,
               control_.GetRouting(*request, response));
  }
  ServerUnaryReactor* GetRegimes(CallbackServerContext* context,
                                 const GetRegimesRequest* request,
                                 GetRegimesResponse* response) override {
    return Now(context, PsRpc::kGetRegimes,
               control_.GetRegimes(*request, response));
  }
  ServerUnaryReactor* OfferMemory(CallbackServerContext* context,
                                  const OfferMemoryRequest* request,
                                  OfferMemoryResponse* response) override {
    return Now(context, PsRpc::kOfferMemory,
               control_.OfferMemory(*request, response));
  }
  ServerUnaryReactor* AttachMemory(CallbackServerContext* context,
                                   const AttachMemoryRequest* request,
                                   AttachMemoryResponse* response) override {
    return Now(context, PsRpc::kAttachMemory,
               control_.AttachMemory(*request, response));
  }
  ServerUnaryReactor* AwaitCheckpoint(
      CallbackServerContext* context, const AwaitCheckpointRequest* request,
      AwaitCheckpointResponse* response) override {
    auto* reactor = new CheckpointReactor(metrics_);
    return Started(reactor,
                   checkpoints_.Await(*context, *request, response, reactor));
  }
  ServerUnaryReactor* CommitCheckpoint(
      CallbackServerContext* context, const CommitCheckpointRequest* request,
      CommitCheckpointResponse* response) override {
    auto* reactor = new ShardReactor(PsRpc::kCommitCheckpoint, metrics_);
    return Started(reactor, checkpoints_.Commit(*request, response, reactor));
  }
  ServerUnaryReactor* FoldNorm(CallbackServerContext* context,
                               const FoldNormRequest* request,
                               FoldNormResponse* response) override;
  ServerUnaryReactor* FoldStatistics(
      CallbackServerContext* context, const FoldStatisticsRequest* request,
      FoldStatisticsResponse* response) override {
    auto* reactor = new StatisticsReactor(metrics_);
    return Started(reactor,
                   StartStatistics(*context, *request, response, reactor));
  }
  ServerUnaryReactor* ScanTable(CallbackServerContext* context,
                                const ByteBuffer* request,
                                ByteBuffer* response) override {
    auto* reactor = new ShardReactor(PsRpc::kScanTable, metrics_);
    return Started(reactor, values_.Scan(request, response, reactor));
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

  absl::Status StartStatistics(const CallbackServerContext& context,
                               const FoldStatisticsRequest& request,
                               FoldStatisticsResponse* response,
                               StatisticsReactor* reactor);

  JobRegistry* const jobs_;
  PsMetrics* const metrics_;
  const RequestReader reader_;
  const ValueCalls values_;
  const ControlCalls control_;
  const CheckpointCalls checkpoints_;
};

absl::Status ParameterService::StartStatistics(
    const CallbackServerContext& context, const FoldStatisticsRequest& request,
    FoldStatisticsResponse* response, StatisticsReactor* reactor) {
  SYNCLINE_ASSIGN_OR_RETURN(const auto job, jobs_->Find(request.caller()));
  if (job->statistics == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(job->config.label,
                     ": statistics are not folded here, but by shard 0 of ",
                     "a job with training.sync_batch_statistics"));
  }
  if (!request.absent() && !(request.wait_seconds() > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat(job->config.label, ": wait_seconds is ",
                     request.wait_seconds(), ", must be > 0"));
  }
  InFlightBudget::Hold room;
  SYNCLINE_RETURN_IF_ERROR(reader_.Hold(request.ByteSizeLong(), &room));
  const uint64_t token = job->statistics->Reduce(
      request, ParkDeadline(context, absl::Seconds(request.wait_seconds())),
      [room = std::move(room), response,
       reactor](PendingStatistics::Sums sums) {
        if (sums.ok()) {
          response->mutable_sums()->Add(sums->begin(), sums->end());
        }
        reactor->Answer(sums.status());
      });
  reactor->CancelWith(job->statistics, token);
  return absl::OkStatus();
}

ServerUnaryReactor* ParameterService::FoldNorm(CallbackServerContext* context,
                                               const FoldNormRequest* request,
                                               FoldNormResponse* response) {
  auto* reactor = new ShardReactor(PsRpc::kFoldNorm, metrics_);
  const auto job = jobs_->Find(*request);
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

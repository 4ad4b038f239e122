#include "server/service/state_service.h"

#include <utility>

#include "absl/status/status.h"
#include "common/base/status_macros.h"
#include "common/rpc/grpc_status.h"
#include "common/system/thread_pool.h"
#include "grpcpp/server_context.h"
#include "proto/state_transfer.grpc.pb.h"
#include "server/shard/shard_transfer.h"

namespace syncline::ps {
namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

constexpr int kThreads = 2;
// Calls that wait: more than all workers of a job have under way.
constexpr size_t kQueueMax = 4096;
// Of an answer of ReadPieces. Others are small, and a request is at least as
// large as what it brings.
constexpr uint64_t kPiecesBytes = 1 << 20;

class StateService final : public StateTransfer::CallbackService {
 public:
  StateService(JobRegistry* jobs, InFlightBudget* budget)
      : jobs_(jobs), budget_(budget) {}

  ServerUnaryReactor* GetProposal(CallbackServerContext* context,
                                  const GetProposalRequest* request,
                                  GetProposalResponse* response) override {
    return Start(context, *request, [=](ShardTransfer* transfer) {
      return transfer->GetProposal(*request, response);
    });
  }
  ServerUnaryReactor* ReadHeader(CallbackServerContext* context,
                                 const ReadHeaderRequest* request,
                                 ReadHeaderResponse* response) override {
    return Start(context, *request, [=](ShardTransfer* transfer) {
      return transfer->ReadHeader(*request, response);
    });
  }
  ServerUnaryReactor* ReadPieces(CallbackServerContext* context,
                                 const ReadPiecesRequest* request,
                                 ReadPiecesResponse* response) override {
    return Start(
        context, *request,
        [=](ShardTransfer* transfer) {
          return transfer->ReadPieces(*request, response);
        },
        kPiecesBytes);
  }
  ServerUnaryReactor* WritePieces(CallbackServerContext* context,
                                  const WritePiecesRequest* request,
                                  WritePiecesResponse*) override {
    return Start(context, *request, [=](ShardTransfer* transfer) {
      return transfer->WritePieces(*request);
    });
  }
  ServerUnaryReactor* TakeBack(CallbackServerContext* context,
                               const TakeBackRequest* request,
                               TakeBackResponse*) override {
    return Start(context, *request, [=](ShardTransfer* transfer) {
      return transfer->TakeBack(*request);
    });
  }

 private:
  // Runs `call` on a thread of this service, with the caller's shard, while
  // there is room for the request and an answer of `answer_bytes`.
  template <typename Request, typename Call>
  ServerUnaryReactor* Start(CallbackServerContext* context,
                            const Request& request, Call call,
                            uint64_t answer_bytes = 0) {
    ServerUnaryReactor* const reactor = context->DefaultReactor();
    const auto job = jobs_->Find(request.caller());
    InFlightBudget::Hold room;
    absl::Status status = job.status();
    if (status.ok()) {
      status = budget_->Acquire(request.ByteSizeLong() + answer_bytes, &room);
    }
    if (status.ok() &&
        !threads_.TrySubmit([reactor, job = *job, call = std::move(call),
                             room = std::move(room)] {
          reactor->Finish(ToGrpcStatus(call(job->transfer.get())));
        })) {
      status = absl::UnavailableError("this ps has too many such calls");
    }
    if (!status.ok()) reactor->Finish(ToGrpcStatus(status));
    return reactor;
  }

  JobRegistry* const jobs_;
  InFlightBudget* const budget_;
  ThreadPool threads_{"state", kThreads, kQueueMax};  // last: uses the rest
};

}  // namespace

std::unique_ptr<grpc::Service> MakeStateService(JobRegistry* jobs,
                                                InFlightBudget* budget) {
  return std::make_unique<StateService>(jobs, budget);
}

}  // namespace syncline::ps

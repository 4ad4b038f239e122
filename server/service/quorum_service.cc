#include "server/service/quorum_service.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/server_context.h"
#include "proto/quorum.grpc.pb.h"
#include "server/service/shard_reactor.h"
#include "server/service/value_calls.h"
#include "server/shard/quorum_agreement.h"

namespace syncline::ps {
namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

class QuorumService final : public Quorum::CallbackService {
 public:
  QuorumService(JobRegistry* jobs, PsMetrics* metrics)
      : jobs_(jobs), metrics_(metrics) {}

  ServerUnaryReactor* FixClock(CallbackServerContext* context,
                               const FixClockRequest* request,
                               FixClockResponse* response) override {
    auto* reactor = new ShardReactor(PsRpc::kFixClock, metrics_);
    const auto job = jobs_->Find(*request);
    if (!job.ok()) {
      reactor->Answer(job.status());
      return reactor;
    }
    if ((*job)->quorum == nullptr) {
      reactor->Answer(absl::FailedPreconditionError(
          absl::StrCat((*job)->config.label,
                       ": the job's mode waits for all workers; no set of a "
                       "clock is fixed")));
      return reactor;
    }
    (*job)->quorum->Fix(*request,
                        ParkDeadline(*context, (*job)->config.wait_max),
                        [response, reactor](QuorumAgreement::Set set) {
                          if (set.ok()) {
                            response->mutable_ranks()->Add(set->ranks.begin(),
                                                           set->ranks.end());
                            response->mutable_removed()->Add(
                                set->removed.begin(), set->removed.end());
                          }
                          reactor->Answer(set.status());
                        });
    return reactor;
  }

 private:
  JobRegistry* const jobs_;
  PsMetrics* const metrics_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeQuorumService(JobRegistry* jobs,
                                                 PsMetrics* metrics) {
  return std::make_unique<QuorumService>(jobs, metrics);
}

}  // namespace syncline::ps

#include "scheduler/service/address_confirmer.h"

#include <list>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "common/system/log.h"
#include "proto/scheduler.grpc.pb.h"

namespace syncline::scheduler {
namespace {

// Within a data centre an answer takes milliseconds.
constexpr absl::Duration kAnswerLimit = absl::Seconds(3);
constexpr absl::Duration kEndWarning = absl::Seconds(5);

// gRPC has no code of its own for ECONNREFUSED; a text that it words otherwise
// one day counts as no answer.
absl::Status Outcome(absl::Status status) {
  if (!absl::IsUnavailable(status) ||
      !absl::StrContains(status.message(), "Connection refused")) {
    return status;
  }
  return absl::NotFoundError(status.message());
}

struct Call {
  std::unique_ptr<Identity::Stub> stub;
  std::unique_ptr<grpc::ClientContext> context;
  ConfirmRequest request;
  ConfirmResponse response;
  bool over = false;  // guarded by the confirmer's lock
};

class GrpcConfirmer final : public AddressConfirmer {
 public:
  ~GrpcConfirmer() override {
    // Unlocked: a call that is cancelled may end at once, on this thread.
    for (grpc::ClientContext* const context : Contexts()) context->TryCancel();
    MutexLock lock(&mu_);
    while (under_way_ > 0) {
      if (!ended_.WaitUntil(&mu_, MonotonicNow() + kEndWarning)) {
        LogWarning("questions for addresses have not ended yet");
      }
    }
  }

  void Confirm(const std::string& address, uint64_t incarnation,
               std::function<void(absl::Status)> done) override {
    // A channel must not be destroyed by a reaction of gRPC's: those that are
    // over go here.
    std::list<Call> over;
    Call* call = nullptr;
    {
      MutexLock lock(&mu_);
      for (auto it = calls_.begin(); it != calls_.end();) {
        const auto next = std::next(it);
        if (it->over) over.splice(over.end(), calls_, it);
        it = next;
      }
      call = &calls_.emplace_back();
      ++under_way_;
      call->stub = Identity::NewStub(MakeChannel(address));
      call->context = MakeContext(MonotonicNow() + kAnswerLimit);
    }
    call->request.set_incarnation(incarnation);
    call->stub->async()->Confirm(
        call->context.get(), &call->request, &call->response,
        [this, call, done = std::move(done)](const grpc::Status& status) {
          done(Outcome(FromGrpcStatus(status)));
          MutexLock lock(&mu_);
          call->over = true;
          --under_way_;
          ended_.SignalAll();
        });
  }

 private:
  // The contexts live until the next Confirm.
  std::vector<grpc::ClientContext*> Contexts() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    std::vector<grpc::ClientContext*> contexts;
    for (const Call& call : calls_) contexts.push_back(call.context.get());
    return contexts;
  }

  Mutex mu_;
  CondVar ended_;
  std::list<Call> calls_ ABSL_GUARDED_BY(mu_);
  size_t under_way_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace

std::unique_ptr<AddressConfirmer> AddressConfirmer::OverGrpc() {
  return std::make_unique<GrpcConfirmer>();
}

}  // namespace syncline::scheduler

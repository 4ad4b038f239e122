#include "common/cluster/identity_service.h"

#include "absl/status/status.h"
#include "common/rpc/grpc_status.h"

namespace syncline {

void IdentityService::Add(uint64_t incarnation) {
  MutexLock lock(&mu_);
  incarnations_.push_back(incarnation);
}

bool IdentityService::Knows(uint64_t incarnation) const {
  MutexLock lock(&mu_);
  bool known = false;
  // All are looked at: the time says nothing of which one is near.
  for (const uint64_t own : incarnations_) known |= own == incarnation;
  return known;
}

grpc::ServerUnaryReactor* IdentityService::Confirm(
    grpc::CallbackServerContext* call, const ConfirmRequest* request,
    ConfirmResponse*) {
  grpc::ServerUnaryReactor* const reactor = call->DefaultReactor();
  reactor->Finish(ToGrpcStatus(
      Knows(request->incarnation())
          ? absl::OkStatus()
          : absl::FailedPreconditionError("this is another process")));
  return reactor;
}

}  // namespace syncline

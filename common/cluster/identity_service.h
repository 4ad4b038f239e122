#ifndef SYNCLINE_COMMON_CLUSTER_IDENTITY_SERVICE_H_
#define SYNCLINE_COMMON_CLUSTER_IDENTITY_SERVICE_H_

#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "proto/scheduler.grpc.pb.h"

namespace syncline {

// Every daemon's answer to the scheduler's question if this process is the one
// that registered. proto/scheduler.proto has the contract. Thread-safe.
class IdentityService final : public Identity::CallbackService {
 public:
  // Before the member `incarnation` of this process registers.
  void Add(uint64_t incarnation) ABSL_LOCKS_EXCLUDED(mu_);
  // Whether a member of this process has it.
  bool Knows(uint64_t incarnation) const ABSL_LOCKS_EXCLUDED(mu_);

  grpc::ServerUnaryReactor* Confirm(grpc::CallbackServerContext* call,
                                    const ConfirmRequest* request,
                                    ConfirmResponse* response) override;

 private:
  mutable Mutex mu_;
  std::vector<uint64_t> incarnations_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_CLUSTER_IDENTITY_SERVICE_H_

#ifndef SYNCLINE_WORKER_CLIENT_TRANSPORT_SHM_LINKS_H_
#define SYNCLINE_WORKER_CLIENT_TRANSPORT_SHM_LINKS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/system/shared_region.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "worker/client/transport/fanout_call.h"
#include "worker/client/transport/shared_link.h"
#include "worker/client/transport/shm_call.h"
#include "worker/client/transport/shm_registration.h"

namespace syncline::worker {

// The memory that a FanoutCall shares with the ps of its host: registers it
// with each ps, puts the payloads of attempts there, and replaces memory that
// is lost. Thread-safe; no call blocks but Disconnect.
class ShmLinks : public std::enable_shared_from_this<ShmLinks> {
 public:
  // `stubs`, by shard, outlive Disconnect.
  ShmLinks(const FanoutCall::Options& options,
           std::vector<grpc::GenericStub*> stubs);

  // Offers memory to all ps, if the options want that. Calls go through it once
  // a ps has mapped it.
  void Connect() ABSL_LOCKS_EXCLUDED(mu_);
  bool IsConnected(uint32_t shard) const ABSL_LOCKS_EXCLUDED(mu_);

  // Moves the payload of the call's next attempt into shared memory. Returns
  // the message to send instead of `call.request`; an empty one if the attempt
  // has to go over the network.
  grpc::ByteBuffer Prepare(const FanoutCall::Call& call, ShmCall* shm)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Takes note of how an attempt with such a message ended: completes
  // *response, or drops memory that must not be used again. True: the attempt
  // failed because the ps has forgotten the memory, and must be sent again.
  bool OnOutcome(uint32_t shard, ShmCall* shm, grpc::ByteBuffer* response,
                 absl::Status* status) ABSL_LOCKS_EXCLUDED(mu_);

  // Ends the registrations under way; none starts from now on.
  void Close() ABSL_LOCKS_EXCLUDED(mu_);
  // Blocks until gRPC has returned from every callback, then gives up the
  // memory. REQUIRES: Close was called.
  void Disconnect() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Link {
    std::shared_ptr<ShmRegistration> registration;  // while it lasts
    std::shared_ptr<SharedLink> shared;             // null: none (any more)
    int registrations = 0;
  };
  using RegionSource =
      std::function<absl::StatusOr<std::shared_ptr<SharedRegion>>()>;

  void Connect(uint32_t shard) ABSL_LOCKS_EXCLUDED(mu_);
  void Register(uint32_t shard, bool read_only, RegionSource region,
                ShmRegistration::Done done) ABSL_LOCKS_EXCLUDED(mu_);
  void EndCallback() ABSL_LOCKS_EXCLUDED(mu_);
  void OnConnected(uint32_t shard, ShmRegistration::Result result)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Attempts that start from now on go through `shared`.
  void Use(uint32_t shard, std::shared_ptr<SharedLink> shared)
      ABSL_LOCKS_EXCLUDED(mu_);
  // No attempt goes through `shared` from now on; another takes its place.
  void Drop(uint32_t shard, const std::shared_ptr<SharedLink>& shared)
      ABSL_LOCKS_EXCLUDED(mu_);
  std::shared_ptr<SharedLink> LinkTo(uint32_t shard) const
      ABSL_LOCKS_EXCLUDED(mu_);
  void CountFallback(SharedFallback reason) const;
  void AddToLinkCount(double change) const;

  const FanoutCall::Options options_;
  const std::vector<grpc::GenericStub*> stubs_;  // by shard

  mutable Mutex mu_;
  CondVar idle_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  size_t callbacks_ ABSL_GUARDED_BY(mu_) = 0;  // gRPC will call or is calling
  std::vector<Link> links_ ABSL_GUARDED_BY(mu_);  // by shard
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_CLIENT_TRANSPORT_SHM_LINKS_H_

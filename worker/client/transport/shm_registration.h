#ifndef SYNCLINE_WORKER_CLIENT_TRANSPORT_SHM_REGISTRATION_H_
#define SYNCLINE_WORKER_CLIENT_TRANSPORT_SHM_REGISTRATION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/system/file_descriptor.h"
#include "common/system/shared_region.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "proto/parameter_server.pb.h"
#include "worker/client/transport/client_telemetry.h"

namespace syncline::worker {

// Registers memory of this process with a ps, if both run on one host:
//
//   OfferMemory (gRPC)     the ps names a Unix socket and a token
//   Unix socket            the memory's descriptor goes to the ps
//   AttachMemory (gRPC)    the ps says that it has mapped the memory
//
// Thread-safe.
class ShmRegistration : public std::enable_shared_from_this<ShmRegistration> {
 public:
  struct Options {
    Caller caller;
    std::string boot_id;  // of this host
    bool read_only = false;
    absl::Time deadline;
    // Makes the memory. Called once the ps is known to run on this host, on a
    // thread of gRPC.
    std::function<absl::StatusOr<std::shared_ptr<SharedRegion>>()> region;
  };
  struct Result {
    absl::Status status;
    SharedFallback reason = SharedFallback::kOff;  // of an error
    std::shared_ptr<SharedRegion> region;
    uint64_t name = 0;          // what the ps calls the region
    FileDescriptor connection;  // while it is open, the ps keeps the region
  };
  // Called once, on a thread of gRPC.
  using Done = std::function<void(Result)>;

  ShmRegistration(const Options& options, grpc::GenericStub* stub, Done done)
      : options_(options), stub_(stub), done_(std::move(done)) {}

  // `stub` outlives the call of `done`.
  void Start();
  // Has the registration end soon, with an error.
  void Cancel() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Next = void (ShmRegistration::*)(const absl::Status&,
                                         const grpc::ByteBuffer&);
  void Call(const char* method, const google::protobuf::MessageLite& request,
            Next next) ABSL_LOCKS_EXCLUDED(mu_);
  void OnOffer(const absl::Status& status, const grpc::ByteBuffer& response);
  void OnAttach(const absl::Status& status, const grpc::ByteBuffer& response);
  void Fail(absl::Status status, SharedFallback reason);

  const Options options_;
  grpc::GenericStub* const stub_;
  Done done_;
  Result result_;
  Mutex mu_;
  std::shared_ptr<grpc::ClientContext> context_ ABSL_GUARDED_BY(mu_);
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_CLIENT_TRANSPORT_SHM_REGISTRATION_H_

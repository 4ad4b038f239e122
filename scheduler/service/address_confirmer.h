#ifndef SYNCLINE_SCHEDULER_SERVICE_ADDRESS_CONFIRMER_H_
#define SYNCLINE_SCHEDULER_SERVICE_ADDRESS_CONFIRMER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"

namespace syncline::scheduler {

// Asks a process at its address whether it is the one that registered
// (Identity.Confirm in proto/scheduler.proto). Thread-safe.
class AddressConfirmer {
 public:
  // Over gRPC; each call has a deadline of a few seconds.
  static std::unique_ptr<AddressConfirmer> OverGrpc();
  // Cancels the calls under way; every `done` has run when it returns.
  virtual ~AddressConfirmer() = default;

  // Never blocks. `done` runs once, on any thread, with OK; FailedPrecondition:
  // another process answers there; Unimplemented: the process there does not
  // know the RPC; NotFound: its host refuses connections, so no process listens
  // there; any other error: there is no answer.
  virtual void Confirm(const std::string& address, uint64_t incarnation,
                       std::function<void(absl::Status)> done) = 0;
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_SERVICE_ADDRESS_CONFIRMER_H_

#ifndef SYNCLINE_WORKER_CLIENT_TRANSPORT_ACTIVE_CALL_H_
#define SYNCLINE_WORKER_CLIENT_TRANSPORT_ACTIVE_CALL_H_

#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "grpcpp/alarm.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "worker/client/transport/fanout_call.h"
#include "worker/client/transport/retry_policy.h"
#include "worker/client/transport/shm_call.h"

namespace syncline::worker {

// Which window a call waits for. A call of the shared route may still end up on
// the network, where its attempt finds no shared memory.
enum class CallRoute { kNetwork, kShared };

// One call of a FanoutCall on its way through attempts, probes and backoffs.
// One step of that way at a time uses the fields; `context` and `alarm` are
// also used by Cancel.
struct ActiveCall : std::enable_shared_from_this<ActiveCall> {
  explicit ActiveCall(FanoutCall::Call c) : call(std::move(c)) {}

  FanoutCall::Call call;
  CallRoute route = CallRoute::kNetwork;  // const once it is in a window
  bool in_window = true;                  // guarded by FanoutCall's lock
  ShmCall shm;
  grpc::ByteBuffer shm_request;      // empty: this attempt sends call.request
  std::optional<RetryPolicy> retry;  // from the first attempt on
  absl::Status last_error;
  // A repetition waits for its window since then.
  absl::Time queued = absl::InfiniteFuture();
  absl::Time started;  // of the latest attempt or probe
  absl::Time left;     // when the latest attempt's request had left
  absl::Time end;      // of the latest attempt's deadline
  grpc::ByteBuffer response;
  std::shared_ptr<grpc::ClientContext> context;  // guarded by FanoutCall's lock
  std::shared_ptr<grpc::Alarm> alarm;            // guarded by FanoutCall's lock
};
using ActiveCallPtr = std::shared_ptr<ActiveCall>;

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_CLIENT_TRANSPORT_ACTIVE_CALL_H_

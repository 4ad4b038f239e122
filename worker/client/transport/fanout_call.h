#ifndef SYNCLINE_WORKER_CLIENT_TRANSPORT_FANOUT_CALL_H_
#define SYNCLINE_WORKER_CLIENT_TRANSPORT_FANOUT_CALL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/system/shared_region.h"
#include "grpcpp/support/byte_buffer.h"
#include "proto/parameter_server.pb.h"
#include "worker/client/transport/client_telemetry.h"

namespace syncline::worker {

// Calls to several ps with one outcome: all are answered, or the first error
// ends them all. The only place of the worker where a call is repeated
// (RetryPolicy says when); a repetition sends the same bytes. Thread-safe.
//
// After an error or Cancel the object is closed: calls that are started then
// are dropped, and Wait returns the error for good. That fits its use: such an
// error ends the job.
class FanoutCall {
 public:
  struct Peer {
    std::string name;     // "ps:1"
    std::string address;  // host:port
  };
  // Payloads between processes of one host go through memory that both map.
  // A call that finds no room there goes over the network, and is counted.
  struct SharedMemory {
    bool enabled = false;
    Caller caller = {};        // but for the shard
    std::string boot_id = {};  // of this host; empty: the system's
    // Bytes of calls that push, and as many of calls that pull, under way with
    // one ps at a time. A call takes part until it has been answered.
    size_t window_bytes = 0;
    // Of the memory that each ps is given.
    size_t region_bytes = 0;
    // Answers may wait for pushes that have not been started: a push that finds
    // the window full goes over the network at once.
    bool answers_need_later_pushes = false;
    // Payloads may lie here, where every ps is let read them. May be null.
    std::shared_ptr<SharedRegion> payloads = nullptr;
  };
  struct Options {
    std::string job_id;
    std::vector<Peer> peers;  // by shard
    // How long a call goes on without a sign of progress.
    absl::Duration patience;
    // Bytes per peer that are on their way at a time, of calls that push and of
    // calls that pull. A push takes part until the shard has taken it, which
    // its initial metadata say, since its answer may wait for the next one; a
    // pull until it is answered.
    size_t push_window_bytes = 0;
    size_t pull_window_bytes = 0;
    // All but bytes of the network and gradients that are not finite.
    ClientTelemetry telemetry = {};
    // Reports that a shard has been out of reach for some seconds; again every
    // other second while it is. On a thread of gRPC; must not block. May be
    // null.
    std::function<void(uint32_t shard, absl::Duration out_of_reach,
                       const absl::Status& error)>
        on_unreachable = nullptr;
    SharedMemory shared = {};
  };
  enum class Direction { kPush, kPull };
  struct Call {
    uint32_t shard = 0;
    const char* method = "";  // "PushPull"
    Direction direction = Direction::kPush;
    grpc::ByteBuffer request = {};
    size_t bytes = 0;  // of the larger payload, request or response
    // Of the response's payload, if its size is known: the answer can then come
    // through shared memory. 0: it cannot.
    size_t answer_bytes = 0;
    int64_t clock = 0;  // for messages
    // Of calls that wait for a window the lowest goes first.
    int64_t rank = 0;
    // Called with the answer, and with when the request had left, on a thread
    // of gRPC; may start more calls, must not wait. An error counts as the
    // call's. May be null.
    std::function<absl::Status(const grpc::ByteBuffer&, absl::Time left)>
        on_response = nullptr;
    // Called with an error of the shard itself that is not tried again, on a
    // thread of gRPC; must not wait. Its result counts as the call's outcome:
    // OK where a refusal is an answer. May be null.
    std::function<absl::Status(const absl::Status& refusal)> on_refused =
        nullptr;
  };

  explicit FanoutCall(const Options& options);
  // Cancels, and returns when no callback runs or will run.
  ~FanoutCall();
  FanoutCall(const FanoutCall&) = delete;
  FanoutCall& operator=(const FanoutCall&) = delete;

  // True if payloads to this shard go through shared memory now.
  bool SharesMemory(uint32_t shard) const;

  // Sends, or queues for the window. Does not block.
  void Start(Call call);

  // Blocks until nothing is under way. Every call ends (see RetryPolicy), so
  // this does. Errors: the first call's, naming ps, address, job, clock and
  // method; after Cancel its reason.
  absl::Status Wait();

  // Blocks until `time`, or until Cancel or an error has closed it. Errors: as
  // Wait's.
  absl::Status WaitUntil(absl::Time time);

  // Ends everything that is under way with `reason`.
  void Cancel(const absl::Status& reason);

 private:
  class State;
  const std::shared_ptr<State> state_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_CLIENT_TRANSPORT_FANOUT_CALL_H_

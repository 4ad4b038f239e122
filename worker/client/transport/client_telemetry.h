#ifndef SYNCLINE_WORKER_CLIENT_TRANSPORT_CLIENT_TELEMETRY_H_
#define SYNCLINE_WORKER_CLIENT_TRANSPORT_CLIENT_TELEMETRY_H_

#include <cstddef>
#include <functional>

#include "absl/strings/string_view.h"
#include "common/daemon/metrics.h"

namespace syncline::worker {

// Why calls to a ps travel over the network though they need not. Labels of a
// metric: see FallbackName.
enum class SharedFallback {
  kOff,          // the ps is told not to, or is too old
  kOtherHost,    // another kernel
  kUnreachable,  // the ps does not answer
  kSocket,       // another network namespace, or the ps's queue is full
  kMemory,       // this process has no memory for it
  kRefused,      // the ps does not map what it was given
  kFull,         // one call found no room
  kLost,         // the ps no longer knows the memory, or may still write to it
};
inline constexpr int kSharedFallbackCount = 8;
absl::string_view FallbackName(SharedFallback reason);

// Where one client of the ps counts its calls and bytes. Each member may be
// null; the counters outlive the client.
struct ClientTelemetry {
  // Calls that were sent again; of these, calls that the shard had no room for.
  Counter* retries = nullptr;
  Counter* held_back = nullptr;
  // Payload bytes of gradients and of values, without repetitions.
  Counter* pushed_bytes = nullptr;
  Counter* pulled_bytes = nullptr;
  // Blocks, rows or whole gradients of this worker that were not finite.
  Counter* non_finite = nullptr;
  // Of the payload bytes, those that went through shared memory.
  Counter* shared_pushed_bytes = nullptr;
  Counter* shared_pulled_bytes = nullptr;
  // The ps that share memory with this client now.
  Gauge* shared_links = nullptr;
  // A call, or all calls to a ps, go over the network. Called on a thread of
  // gRPC; must not block.
  std::function<void(SharedFallback)> on_shared_fallback = nullptr;
};

inline void AddCount(Counter* counter, size_t amount = 1) {
  if (counter != nullptr) counter->Add(static_cast<double>(amount));
}

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_CLIENT_TRANSPORT_CLIENT_TELEMETRY_H_

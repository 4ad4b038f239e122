#ifndef SYNCLINE_SCHEDULER_CORE_CLUSTER_TRANSFER_QUEUE_H_
#define SYNCLINE_SCHEDULER_CORE_CLUSTER_TRANSFER_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace syncline::scheduler {

// Of which uploads the scheduler reads: each that is read costs a few
// megabytes, so there is a limit on them, and one on those of a client, so that
// one client leaves room for others. The rest wait for their turn, unread, in
// order of their coming. Pure and thread-compatible.
class TransferQueue {
 public:
  struct Options {
    size_t reading_max = 16;
    size_t reading_per_client_max = 8;
    size_t waiting_max = 1024;
  };
  explicit TransferQueue(const Options& options) : options_(options) {}

  // A new upload, which waits for its turn until NextTurns names it. `id` is
  // new. Errors: Unavailable: too many wait already.
  absl::Status Add(uint64_t id, absl::string_view client);
  // The transfer has ended, or is not wanted any more. Idempotent.
  void Remove(uint64_t id);
  // The transfers that may start now, each once.
  std::vector<uint64_t> NextTurns();

 private:
  struct Transfer {
    std::string client;
    bool reading = false;
  };

  const Options options_;
  std::map<uint64_t, Transfer> transfers_;
  std::list<uint64_t> waiting_;               // in order
  std::map<std::string, size_t> reading_of_;  // by client, > 0
  size_t reading_ = 0;
};

// How fast a caller sends. Time that the scheduler took itself does not count.
// Pure and thread-compatible.
class TransferPace {
 public:
  // Waited for this long for the caller, and got so many bytes. Errors:
  // DeadlineExceeded: since the beginning it has sent less than
  // kBytesPerSecondMin for longer than `patience`.
  absl::Status Add(absl::Duration waited, size_t bytes,
                   absl::Duration patience);

  // A line of 256 kbit/s.
  static constexpr double kBytesPerSecondMin = 32 << 10;

 private:
  absl::Duration waited_;
  uint64_t bytes_ = 0;
};

// The host of a gRPC peer: "ipv4:10.0.0.7:4242" -> "ipv4:10.0.0.7".
std::string ClientOfPeer(absl::string_view peer);

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_CORE_CLUSTER_TRANSFER_QUEUE_H_

#ifndef SYNCLINE_WORKER_COLLECTIVES_PEER_STREAM_H_
#define SYNCLINE_WORKER_COLLECTIVES_PEER_STREAM_H_

#include <poll.h>

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/collectives/peer_channel.h"

namespace syncline::worker {

// Two ordered streams of bytes between this rank and one other, which have a
// PeerChannel at each end. Nothing blocks. Thread-compatible.
class PeerStream {
 public:
  virtual ~PeerStream() = default;

  // Moves bytes between the channel and the streams, as many as can move now
  // but at most a few MiB; true: something moved. Errors: Unavailable: the
  // other end has closed and all that it sent has been moved; DataLoss.
  virtual absl::StatusOr<bool> Pump(PeerChannel* channel) = 0;

  // Has bytes that were taken from the channel and have not left yet.
  virtual bool has_unsent() const { return false; }

  // Before its thread sleeps in poll(): adds what to wait for, and asks the
  // other end to wake it. False: do not sleep, something has come.
  virtual bool PrepareSleep(const PeerChannel& channel,
                            std::vector<pollfd>* wait_for) = 0;
  // After poll().
  virtual void EndSleep() = 0;

  // The other end sees that this one is closed once it has read what was
  // written.
  virtual void Close() = 0;
  // "tcp", "tls" or "shared memory".
  virtual absl::string_view kind() const = 0;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COLLECTIVES_PEER_STREAM_H_

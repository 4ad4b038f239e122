#ifndef SYNCLINE_TESTS_TESTING_IN_PROCESS_PEERS_H_
#define SYNCLINE_TESTS_TESTING_IN_PROCESS_PEERS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "worker/collectives/peer_channel.h"
#include "worker/collectives/peer_transport.h"

namespace syncline::worker {

// A group of ranks in one process, for tests: real frames over streams that
// move as few or many bytes at a time, in such an order, as a seed says. Bytes
// move while some rank's Await waits, or where a test calls Step: so ranks may
// be threads, or one thread may play all of them with time of its own.
// Thread-safe.
class InProcessPeers {
 public:
  // The stream from one rank to another breaks.
  struct Loss {
    enum class Kind {
      kSilent,  // no byte arrives any more: as a rank that is stopped
      kClosed,  // both see that the connection is closed: as one that is killed
    };
    uint32_t from = 0;
    uint32_t to = 1;
    uint64_t after_bytes = 0;  // so many arrive
    Kind kind = Kind::kSilent;
  };
  struct Options {
    uint32_t ranks = 2;
    uint64_t seed = 1;
    uint64_t epoch = 1;
    std::vector<Loss> losses = {};
    std::function<absl::Time()> now = MonotonicNow;
  };

  explicit InProcessPeers(const Options& options);
  // After all its transports' last calls.
  ~InProcessPeers();

  // Belongs to this object.
  PeerTransport* at(uint32_t rank);
  // As if the rank's process had ended: the others see its connections close.
  void Kill(uint32_t rank);

  // Moves something and runs the callbacks that are due; false: nothing can
  // move before time passes. Not while a rank is in Await.
  bool Step() ABSL_LOCKS_EXCLUDED(mu_);
  // The first deadline of a message under way.
  absl::Time next_deadline() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  class Peer;
  // From one rank to another.
  struct Stream {
    std::deque<uint8_t> bytes;
    size_t capacity = 0;
    uint64_t arrived = 0;
    bool closed = false;
    std::optional<Loss> loss;
  };

  Stream* StreamOf(uint32_t from, uint32_t to) ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return &streams_[from * options_.ranks + to];
  }
  // Moves something; the callbacks that it makes due are in *completed.
  using Completed = std::vector<std::pair<PeerTransport::Done, absl::Status>>;
  bool Move(Completed* completed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool MoveOut(uint32_t from, uint32_t to) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool MoveIn(uint32_t from, uint32_t to) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Settle(Completed* completed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void End(uint32_t rank, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Await(absl::FunctionRef<bool()> done, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  std::vector<std::unique_ptr<Peer>> peers_;
  mutable Mutex mu_;
  CondVar moved_;
  bool moving_ ABSL_GUARDED_BY(mu_) = false;  // a thread moves, or calls back
  Random random_ ABSL_GUARDED_BY(mu_);
  std::vector<Stream> streams_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline::worker

#endif  // SYNCLINE_TESTS_TESTING_IN_PROCESS_PEERS_H_

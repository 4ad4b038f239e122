#ifndef SYNCLINE_WORKER_COLLECTIVES_STREAM_TRANSPORT_H_
#define SYNCLINE_WORKER_COLLECTIVES_STREAM_TRANSPORT_H_

#include <poll.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/system/file_descriptor.h"
#include "common/system/thread_pool.h"
#include "worker/collectives/peer_channel.h"
#include "worker/collectives/peer_stream.h"
#include "worker/collectives/peer_transport.h"

namespace syncline::worker {

// Messages with each other rank over a stream of bytes of its own. The shell
// around PeerChannel: its threads, its waits and its clock.
//
// One thread at a time, the driver, moves bytes and runs callbacks: a thread in
// Await, or else the transport's own thread "peers-0" while messages are under
// way. The driver spins for a short time, then it sleeps until a stream has
// something, a message is posted, or a deadline passes.
//
// Locks: mu_ is held while bytes move (a few MiB at most), not during callbacks
// and not while the driver sleeps.
class StreamTransport : public PeerTransport {
 public:
  struct Options {
    // How long the driver goes on looking before it sleeps.
    absl::Duration spin = absl::Microseconds(30);
    // After so much of it, it lets others run on its core. Where ranks share
    // cores, one of them is what it waits for, and a meeting makes this 0.
    // Elsewhere it costs a turn of whatever else the machine does.
    absl::Duration spin_alone = absl::Microseconds(30);
    // How long the destructor waits until the others can be told that this rank
    // is done.
    absl::Duration linger = absl::Seconds(1);
  };

  // `streams`, by rank; null for this one.
  StreamTransport(PeerGroup group,
                  std::vector<std::unique_ptr<PeerStream>> streams,
                  const Options& options);
  ~StreamTransport() override;

  const PeerGroup& group() const override { return group_; }
  void Send(uint32_t to, const PeerTag& tag,
            absl::Span<const ConstPeerMemory> pieces, absl::Time deadline,
            Done sent) override ABSL_LOCKS_EXCLUDED(mu_);
  void Receive(uint32_t from, const PeerTag& tag, PeerMemory memory,
               absl::Time deadline, Done received) override
      ABSL_LOCKS_EXCLUDED(mu_);
  void ReceivePieces(uint32_t from, const PeerTag& tag, size_t size,
                     absl::Time deadline, Sink sink, Done received) override
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status SwapAll(const PeerTag& tag, absl::Span<const uint8_t> own,
                       absl::Span<uint8_t* const> theirs,
                       absl::Time deadline) override ABSL_LOCKS_EXCLUDED(mu_);
  bool Await(absl::FunctionRef<bool()> done, absl::Time deadline) override
      ABSL_LOCKS_EXCLUDED(mu_);
  void Cancel(const absl::Status& reason) override ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status status() const override ABSL_LOCKS_EXCLUDED(mu_);
  Counters counters() const override ABSL_LOCKS_EXCLUDED(mu_);

  // "tcp", "tls" or "shared memory".
  absl::string_view kind_of(uint32_t rank) const {
    return links_[rank].stream->kind();
  }

 private:
  using Completed = std::vector<std::pair<Done, absl::Status>>;
  struct Link {
    std::unique_ptr<PeerChannel> channel;
    std::unique_ptr<PeerStream> stream;  // null: this rank
    bool closed = false;
    bool swaps = false;  // its message of the swap under way has begun
    // The number of frames that have come, and when that was last seen to grow.
    uint64_t frames = 0;
    absl::Time heard = absl::InfinitePast();
  };
  // The thread that drives the streams.
  enum class Driver { kNone, kAwait, kOwnThread };

  void Post(uint32_t peer, Done* done,
            absl::FunctionRef<void(PeerChannel*)> post)
      ABSL_LOCKS_EXCLUDED(mu_);
  static bool HasOutput(const Link& link) {
    return link.channel->has_output() ||
           (link.stream != nullptr && !link.closed &&
            link.stream->has_unsent());
  }
  void WakeDriver() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void End(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // With what the channel with `peer` says.
  void EndBecauseOf(uint32_t peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Tells the others that this rank has left, as far as that does not block.
  // True: all have been told.
  bool Flush() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Moves the messages of a swap; true: it has ended.
  bool PumpSwap(const PeerTag& tag, absl::Span<const uint8_t> own,
                absl::Span<uint8_t* const> theirs)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool PumpAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CheckTime(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeCompleted(Completed* completed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // There is something to do for a driver.
  bool IsBusy() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The driver's: moves what can move and runs callbacks. False: nothing was to
  // be done.
  bool Drive() ABSL_LOCKS_EXCLUDED(mu_);
  void SleepUntil(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);
  void RunOwnThread() ABSL_LOCKS_EXCLUDED(mu_);

  const PeerGroup group_;
  const Options options_;
  FileDescriptor wake_;  // an eventfd, which ends the driver's sleep

  Mutex swap_mu_ ABSL_ACQUIRED_BEFORE(mu_);  // a swap is under way
  mutable Mutex mu_;
  CondVar changed_;          // awaiters that do not drive wait for it
  CondVar own_thread_;       // the own thread waits for work
  std::vector<Link> links_;  // by rank; their contents ABSL_GUARDED_BY(mu_)
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  Completed rejected_ ABSL_GUARDED_BY(mu_);
  Driver driver_ ABSL_GUARDED_BY(mu_) = Driver::kNone;
  bool asleep_ ABSL_GUARDED_BY(mu_) = false;  // the driver, in poll()
  bool woken_ ABSL_GUARDED_BY(mu_) = false;   // wake_ was written
  int awaiters_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  absl::Duration blocked_ ABSL_GUARDED_BY(mu_);
  std::vector<pollfd> wait_for_;  // the driver's
  Completed to_run_;              // the driver's
  ThreadPool threads_;            // last: its thread uses all of the above
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COLLECTIVES_STREAM_TRANSPORT_H_

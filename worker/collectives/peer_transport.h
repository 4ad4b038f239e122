#ifndef SYNCLINE_WORKER_COLLECTIVES_PEER_TRANSPORT_H_
#define SYNCLINE_WORKER_COLLECTIVES_PEER_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace syncline::worker {

// Names a message from one rank to another. A tag is used once between two
// ranks in a group's life: the clock makes it so.
struct PeerTag {
  int64_t clock = 0;
  // The kind of the message. Kinds below kFirstFreeKind are taken by the
  // algorithms of this folder.
  uint32_t kind = 0;
  // Which of its kind: a block, a bucket, a segment.
  uint32_t item = 0;

  static constexpr uint32_t kFirstFreeKind = 64;

  friend bool operator==(const PeerTag& a, const PeerTag& b) {
    return a.clock == b.clock && a.kind == b.kind && a.item == b.item;
  }
  template <typename H>
  friend H AbslHashValue(H state, const PeerTag& tag) {
    return H::combine(std::move(state), tag.clock, tag.kind, tag.item);
  }
};
// See PeerTransport::SwapAll.
inline constexpr size_t kSwapBytesMax = 8 << 10;
// "clock 12, kind 64, item 3".
std::string ToText(const PeerTag& tag);

// Bytes of the caller: where they are, and how many. All implementations of
// today take host memory alone; they refuse the memory of a device by name
// (Unimplemented).
template <typename Byte>
struct PeerMemoryOf {
  static constexpr int kHost = -1;
  Byte* data = nullptr;
  size_t size = 0;
  // The device that `data` is memory of, and the stream (of that device's
  // library) whose earlier work is done before the bytes are read or written.
  int device = kHost;
  void* stream = nullptr;
};
using PeerMemory = PeerMemoryOf<uint8_t>;
using ConstPeerMemory = PeerMemoryOf<const uint8_t>;

// The memory of `values`, as bytes.
inline PeerMemory BytesOf(absl::Span<float> values) {
  return {reinterpret_cast<uint8_t*>(values.data()),
          values.size() * sizeof(float)};
}
inline ConstPeerMemory BytesOf(absl::Span<const float> values) {
  return {reinterpret_cast<const uint8_t*>(values.data()),
          values.size() * sizeof(float)};
}

// The ranks of a group, as its messages and errors name them. The same at all
// ranks but for `rank`.
struct PeerGroup {
  struct Peer {
    std::string name;     // "worker:1"
    std::string address;  // host:port of its gRPC server
  };
  std::string job;
  // Grows by each group that the job forms. Nothing of another epoch is read.
  uint64_t epoch = 0;
  uint32_t rank = 0;
  std::vector<Peer> peers;  // by rank, this one included

  uint32_t ranks() const { return static_cast<uint32_t>(peers.size()); }
  // "rank 2 (worker:3 at 10.0.0.5:4000)".
  std::string NameOf(uint32_t rank) const;
};

// One rank's messages to and from the other ranks of its group.
//
// Order. Messages are matched by tag alone. The two sides may post them in any
// order, any number at a time, and either side may be first: no order of
// posting deadlocks. A message whose Receive is not posted yet waits in the
// sender's memory; small ones wait in a buffer of bounded size at the receiver.
// So `sent` does not say that the other rank has posted its Receive.
//
// Memory. Pieces of a Send belong to the transport from Send until `sent` is
// called, the memory of a Receive until `received` is. Nothing touches them
// afterwards. The transport keeps a copy of the list of pieces.
//
// Threads. Thread-safe. No call blocks but Await. Callbacks run on a thread of
// the transport or on a thread that is inside Await, one at a time for each
// transport, never inside Send, Receive or Cancel, and with no lock held. They
// may call Send and Receive; they must not block, nor call Await. To post
// messages from the `done` of an Await spares waking the transport's thread.
//
// Errors. The first error of any message ends the group: every message under
// way, and every later one, ends with it. So a caller need not ask which
// messages are lost: the next try is made by a group of a later epoch.
//   DeadlineExceeded    a message's deadline passed; names the rank, its
//                       address and the tag that is missing
//   Unavailable         a rank's process is gone, or out of reach; names it
//   InvalidArgument     the two sides disagree on a message's size (both sizes
//                       are named), a rank that is not in the group, this very
//                       rank, or a tag that is under way already
//   Aborted             the other rank is in another epoch of the group
//   DataLoss            a rank sent what is no message; names it
//   ResourceExhausted   more messages at a time than the transport allows
//   Cancelled, or       by Cancel
//   what it was given
class PeerTransport {
 public:
  // Runs exactly once.
  using Done = absl::AnyInvocable<void(absl::Status)>;
  // Takes the bytes of a message in order, as they come: `bytes` starts at
  // byte `offset` of the message, and is gone when the call returns. Each
  // offset is a multiple of 64. Runs where callbacks run, but makes no call of
  // the transport.
  using Sink =
      absl::AnyInvocable<void(size_t offset, absl::Span<const uint8_t> bytes)>;

  // Cancels what is under way; returns when all callbacks have returned. Not
  // from a callback.
  virtual ~PeerTransport() = default;

  virtual const PeerGroup& group() const = 0;
  uint32_t rank() const { return group().rank; }
  uint32_t ranks() const { return group().ranks(); }

  // Sends the pieces, one after the other, as one message. It may be empty.
  // `deadline` is a time of MonotonicNow(). `sent`: the pieces are the caller's
  // again.
  virtual void Send(uint32_t to, const PeerTag& tag,
                    absl::Span<const ConstPeerMemory> pieces,
                    absl::Time deadline, Done sent) = 0;
  // Receives a message of exactly memory.size bytes.
  virtual void Receive(uint32_t from, const PeerTag& tag, PeerMemory memory,
                       absl::Time deadline, Done received) = 0;
  // Receives a message of exactly `size` bytes without memory for them.
  virtual void ReceivePieces(uint32_t from, const PeerTag& tag, size_t size,
                             absl::Time deadline, Sink sink, Done received) = 0;

  // Sends `own`, of at most kSwapBytesMax bytes, to every other rank and
  // receives as much of each: theirs[r] is where that of rank r goes, null at
  // this rank's place. All ranks call it with the same tag, and none of them
  // calls Send or Receive for it. Blocks, until `deadline` at most, which is a
  // time; the fastest way for what is short.
  // Errors: as of any message, and
  //   Unavailable       also where a rank has left that no message is open
  //                     with; names it, with the bucket (tag.item) and clock
  //   DeadlineExceeded  likewise names all ranks that are missing
  //   InvalidArgument   also: no deadline
  virtual absl::Status SwapAll(const PeerTag& tag,
                               absl::Span<const uint8_t> own,
                               absl::Span<uint8_t* const> theirs,
                               absl::Time deadline);

  // Waits until done() is true; false: `deadline` (of MonotonicNow()) has
  // passed. Moves messages meanwhile, so a thread that waits here is faster
  // than one that waits for a callback to wake it. `done` is called often, on
  // this thread, with no lock held; callbacks are what makes it true. Any
  // number of threads may wait.
  virtual bool Await(absl::FunctionRef<bool()> done, absl::Time deadline) = 0;

  // Ends all messages, of now and later, with `reason`, which is not OK. The
  // other ranks hear that this one is gone.
  virtual void Cancel(const absl::Status& reason) = 0;
  // The error that ended the group; OK while it goes on.
  virtual absl::Status status() const = 0;

  // Since the transport was made.
  struct Counters {
    uint64_t messages_sent = 0;
    uint64_t messages_received = 0;
    uint64_t bytes_sent = 0;
    uint64_t bytes_received = 0;
    // How long threads in Await had nothing to move.
    absl::Duration blocked;
  };
  virtual Counters counters() const = 0;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COLLECTIVES_PEER_TRANSPORT_H_

#ifndef SYNCLINE_WORKER_COLLECTIVES_SHARED_RING_H_
#define SYNCLINE_WORKER_COLLECTIVES_SHARED_RING_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace syncline::worker {

// Two streams of bytes between two processes, in two regions of memory that
// they share. Each side writes its own region alone and can only read the
// other's: so no process can change what another one has written, at any time.
//
// A region:
//
//   byte     0  produced   bytes that its owner has put into its ring, ever
//   byte    64  consumed   bytes that its owner has taken of the other's ring
//   byte   128  asleep     bit 0: the owner sleeps; bit 1: it waits for room,
//                          too; the rest counts its sleeps
//   byte  4096  the ring   a power of two bytes
//
// Invariants. All words are read and written in one order that both sides see
// (sequentially consistent).
// 1. The producer writes bytes [produced, produced + n) and then publishes
//    produced + n. The consumer reads produced and then these bytes.
// 2. The consumer publishes consumed when it has read the bytes before it; the
//    producer reads it before it writes over them.
// 3. A side that will sleep publishes that, and then looks at the other's
//    counters once more. A side that has changed a counter then looks whether
//    the other one sleeps. So one of the two sees what the other did.
// 4. What the other side says is copied once, and believed only if it is
//    possible: produced - consumed is in [0, capacity].
//
// One thread at a time uses each side. Bytes move in multiples of 64.
class SharedRing {
 public:
  static constexpr size_t kHeaderBytes = 4096;
  static constexpr size_t RegionBytes(size_t capacity) {
    return kHeaderBytes + capacity;
  }

  // `own` is zeroed and writable, `other` is the other side's; both of
  // RegionBytes(capacity), and outlive this.
  SharedRing(uint8_t* own, const uint8_t* other, size_t capacity);

  // The bytes that can be written now. Errors: DataLoss: the other side says
  // what cannot be.
  absl::StatusOr<size_t> Room();
  // Puts bytes behind those that were put but not published. REQUIRES: they
  // fit. No odd number of bytes may be published.
  void Put(absl::Span<const uint8_t> bytes);
  // The other side sees what was put.
  void Publish();

  // Bytes that have come, as many as lie together. Errors: DataLoss.
  absl::StatusOr<absl::Span<const uint8_t>> Readable();
  void Consume(size_t bytes);

  // This side will sleep, until the other one has written or, `for_room`, has
  // read. Then look at Readable and Room once more.
  void Sleep(bool for_room);
  void WakeUp();
  // True if the other side sleeps and waits for what this side has done since
  // the last call that returned true in this sleep of its.
  bool MustRing();

 private:
  struct Words;

  Words* const own_;
  const Words* const other_;
  uint8_t* const own_ring_;
  const uint8_t* const other_ring_;
  const size_t capacity_;
  // This side's own state, which is not in shared memory.
  uint64_t put_ = 0;
  uint64_t produced_ = 0;
  uint64_t consumed_ = 0;
  uint64_t other_consumed_ = 0;
  uint64_t other_produced_ = 0;
  uint32_t sleeps_ = 0;
  uint32_t rung_ = 0;       // the sleep word that was rung for
  bool published_ = false;  // since MustRing
  bool took_ = false;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COLLECTIVES_SHARED_RING_H_

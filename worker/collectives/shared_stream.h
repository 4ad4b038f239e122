#ifndef SYNCLINE_WORKER_COLLECTIVES_SHARED_STREAM_H_
#define SYNCLINE_WORKER_COLLECTIVES_SHARED_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/system/file_descriptor.h"
#include "common/system/shared_region.h"
#include "worker/collectives/peer_stream.h"
#include "worker/collectives/shared_ring.h"

namespace syncline::worker {

// Through memory that two processes of one host share. Two local sockets, one
// each way, wake who sleeps and show that the other process has ended.
class SharedStream : public PeerStream {
 public:
  // Of the ring each way. Two cores hand bytes over through their caches, so it
  // is not larger than those; where ranks share a core, each turn of one ends
  // when the ring is full, so it is not smaller either.
  static constexpr size_t kCapacity = 1024 << 10;

  // `own` was sent over `to_other`, `other` came over `from_other`; both have
  // SharedRing::RegionBytes(kCapacity).
  SharedStream(std::shared_ptr<SharedRegion> own,
               std::shared_ptr<SharedRegion> other, FileDescriptor to_other,
               FileDescriptor from_other);

  absl::StatusOr<bool> Pump(PeerChannel* channel) override;
  bool PrepareSleep(const PeerChannel& channel,
                    std::vector<pollfd>* wait_for) override;
  void EndSleep() override;
  void Close() override;
  absl::string_view kind() const override { return "shared memory"; }

 private:
  absl::StatusOr<bool> PumpOut(PeerChannel* channel);
  absl::StatusOr<bool> PumpIn(PeerChannel* channel);
  void RingIfAsleep();
  // Takes rings; false: the other end is closed.
  bool TakeRings();

  const std::shared_ptr<SharedRegion> own_;
  const std::shared_ptr<SharedRegion> other_;
  FileDescriptor to_other_;
  FileDescriptor from_other_;
  SharedRing ring_;
  bool slept_ = false;   // since the last Pump
  bool closed_ = false;  // by the other end
  uint64_t put_ = 0;     // bytes that were put into the ring
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COLLECTIVES_SHARED_STREAM_H_

#ifndef SYNCLINE_WORKER_COLLECTIVES_TCP_STREAM_H_
#define SYNCLINE_WORKER_COLLECTIVES_TCP_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/system/file_descriptor.h"
#include "worker/collectives/peer_stream.h"

namespace syncline::worker {

// Over one connection: writes straight from the memory of messages, and reads
// straight into it, but for headers and what comes with them.
class TcpStream : public PeerStream {
 public:
  // `connection` is connected and authenticated. `first` has bytes of the
  // stream that were read with what came before them.
  explicit TcpStream(FileDescriptor connection,
                     absl::string_view first = absl::string_view());

  absl::StatusOr<bool> Pump(PeerChannel* channel) override;
  bool PrepareSleep(const PeerChannel& channel,
                    std::vector<pollfd>* wait_for) override;
  void EndSleep() override {}
  void Close() override;
  absl::string_view kind() const override { return "tcp"; }

 private:
  absl::StatusOr<bool> PumpOut(PeerChannel* channel);
  absl::StatusOr<bool> PumpIn(PeerChannel* channel);
  void OfferStaged(PeerChannel* channel);

  FileDescriptor connection_;
  std::vector<uint8_t> staged_;  // bytes [begin, end) wait for more
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COLLECTIVES_TCP_STREAM_H_

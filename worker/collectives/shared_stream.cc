#include "worker/collectives/shared_stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/base/status_macros.h"

namespace syncline::worker {
namespace {

// The other side goes on while this one copies the next piece.
constexpr size_t kPieceBytes = 64 << 10;
constexpr size_t kPumpBytesMax = 1 << 20;
constexpr size_t kPiecesMax = 16;

}  // namespace

SharedStream::SharedStream(std::shared_ptr<SharedRegion> own,
                           std::shared_ptr<SharedRegion> other,
                           FileDescriptor to_other, FileDescriptor from_other)
    : own_(std::move(own)),
      other_(std::move(other)),
      to_other_(std::move(to_other)),
      from_other_(std::move(from_other)),
      ring_(own_->data(), other_->data(), kCapacity) {}

absl::StatusOr<bool> SharedStream::Pump(PeerChannel* channel) {
  if (slept_) {
    slept_ = false;
    if (!TakeRings()) closed_ = true;
  }
  SYNCLINE_ASSIGN_OR_RETURN(const bool in, PumpIn(channel));
  SYNCLINE_ASSIGN_OR_RETURN(const bool out, PumpOut(channel));
  // All that it wrote before it closed has been read.
  if (closed_ && !in) {
    return absl::UnavailableError("its process has closed the shared memory");
  }
  return in || out;
}

absl::StatusOr<bool> SharedStream::PumpOut(PeerChannel* channel) {
  size_t moved = 0;
  while (moved < kPumpBytesMax) {
    SYNCLINE_ASSIGN_OR_RETURN(size_t room, ring_.Room());
    if (room == 0) break;
    room = std::min(room, kPieceBytes - put_ % kFrameHeaderBytes);
    const auto output = channel->Output(kPiecesMax);
    if (output.empty()) break;
    size_t written = 0;
    for (absl::Span<const uint8_t> piece : output) {
      piece = piece.subspan(0, std::min(piece.size(), room - written));
      ring_.Put(piece);
      written += piece.size();
    }
    channel->OnWritten(written);
    moved += written;
    // Frames end at multiples of 64 bytes, their pieces need not.
    if ((put_ += written) % kFrameHeaderBytes == 0) {
      ring_.Publish();
      RingIfAsleep();
    }
  }
  return moved > 0;
}

absl::StatusOr<bool> SharedStream::PumpIn(PeerChannel* channel) {
  size_t moved = 0;
  while (moved < kPumpBytesMax && channel->failure().ok()) {
    SYNCLINE_ASSIGN_OR_RETURN(absl::Span<const uint8_t> bytes,
                              ring_.Readable());
    bytes = bytes.subspan(0, std::min(bytes.size(), kPieceBytes));
    if (bytes.empty()) break;
    const size_t taken = channel->OnInput(bytes);
    if (taken == 0) break;
    ring_.Consume(taken);
    moved += taken;
    RingIfAsleep();
  }
  return moved > 0;
}

void SharedStream::RingIfAsleep() {
  if (!ring_.MustRing()) return;
  const uint8_t ring = 1;
  // If it cannot take one more, it has many.
  send(to_other_.get(), &ring, sizeof(ring), MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool SharedStream::TakeRings() {
  uint8_t rings[64];
  while (true) {
    const ssize_t received =
        recv(from_other_.get(), rings, sizeof(rings), MSG_DONTWAIT);
    if (received > 0) continue;
    if (received < 0 && errno == EINTR) continue;
    return received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  }
}

bool SharedStream::PrepareSleep(const PeerChannel& channel,
                                std::vector<pollfd>* wait_for) {
  if (closed_) return false;
  slept_ = true;
  const bool for_room = channel.has_output();
  ring_.Sleep(for_room);
  wait_for->push_back({from_other_.get(), POLLIN, 0});
  const auto readable = ring_.Readable();
  const auto room = ring_.Room();
  return readable.ok() && readable->empty() && room.ok() &&
         (!for_room || *room == 0);
}

void SharedStream::EndSleep() { ring_.WakeUp(); }

void SharedStream::Close() { shutdown(to_other_.get(), SHUT_RDWR); }

}  // namespace syncline::worker

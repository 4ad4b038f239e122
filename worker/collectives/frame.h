#ifndef SYNCLINE_WORKER_COLLECTIVES_FRAME_H_
#define SYNCLINE_WORKER_COLLECTIVES_FRAME_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/collectives/peer_transport.h"

namespace syncline::worker {

// The frames that two ranks send each other over a stream of bytes: a header of
// 64 bytes, and a payload that is padded with zeros to a multiple of 64, so
// that everything starts at a multiple of 64 bytes. The layout is drawn in
// worker/collectives/README.md. The header has a checksum. Payloads have none
// but those of TCP.
struct FrameHeader {
  enum class Type : uint8_t {
    kData = 1,   // bytes [offset, offset + length) of a message
    kReady = 2,  // the Receive of a message is posted; no payload
    kBye = 3,    // the rank leaves the group: `kind` is a status code (0: it
                 // is done with all its messages), the payload its text
    kSwap = 4,   // a whole short message, for which no kReady comes
  };
  Type type = Type::kData;
  uint32_t length = 0;  // bytes of payload, without padding
  uint64_t epoch = 0;   // PeerGroup.epoch
  PeerTag tag;
  uint64_t size = 0;    // of the whole message
  uint64_t offset = 0;  // a multiple of 64
};

inline constexpr size_t kFrameHeaderBytes = 64;
// A message is sent in frames of at most so many bytes, so that a kReady does
// not wait for a long message.
inline constexpr uint32_t kFramePayloadMax = 256 << 10;
inline constexpr uint32_t kByeTextMax = 1024;

constexpr size_t PaddedFrameBytes(size_t length) {
  return (length + kFrameHeaderBytes - 1) / kFrameHeaderBytes *
         kFrameHeaderBytes;
}

// Writes kFrameHeaderBytes.
void EncodeFrameHeader(const FrameHeader& header, uint8_t* out);

// Reads kFrameHeaderBytes. Pure; takes any input. Errors: DataLoss: not a
// header (magic, checksum, type), or one that says what no header may say.
absl::StatusOr<FrameHeader> DecodeFrameHeader(absl::Span<const uint8_t> bytes);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COLLECTIVES_FRAME_H_

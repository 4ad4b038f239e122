#include "worker/collectives/frame.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"

namespace syncline::worker {
namespace {

constexpr uint32_t kMagic = 0x4d504c53;  // "SLPM"
// Offsets of the fields.
constexpr size_t kType = 4;
constexpr size_t kLength = 8;
constexpr size_t kKind = 12;
constexpr size_t kEpoch = 16;
constexpr size_t kClock = 24;
constexpr size_t kSize = 32;
constexpr size_t kOffset = 40;
constexpr size_t kItem = 48;
constexpr size_t kChecksum = 60;

template <typename Integer>
void Put(Integer value, uint8_t* out) {
  for (size_t i = 0; i < sizeof(value); ++i) {
    out[i] = static_cast<uint8_t>(static_cast<uint64_t>(value) >> (8 * i));
  }
}

template <typename Integer>
Integer Get(const uint8_t* bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(Integer); ++i) {
    value |= static_cast<uint64_t>(bytes[i]) << (8 * i);
  }
  return static_cast<Integer>(value);
}

uint32_t Checksum(const uint8_t* header) {
  return Crc32c({reinterpret_cast<const char*>(header), kChecksum});
}

}  // namespace

void EncodeFrameHeader(const FrameHeader& header, uint8_t* out) {
  std::memset(out, 0, kFrameHeaderBytes);
  Put(kMagic, out);
  Put(static_cast<uint8_t>(header.type), out + kType);
  Put(header.length, out + kLength);
  Put(header.tag.kind, out + kKind);
  Put(header.epoch, out + kEpoch);
  Put(header.tag.clock, out + kClock);
  Put(header.size, out + kSize);
  Put(header.offset, out + kOffset);
  Put(header.tag.item, out + kItem);
  Put(Checksum(out), out + kChecksum);
}

absl::StatusOr<FrameHeader> DecodeFrameHeader(absl::Span<const uint8_t> bytes) {
  const auto bad = [](absl::string_view what) {
    return absl::DataLossError(absl::StrCat("not a frame: ", what));
  };
  if (bytes.size() < kFrameHeaderBytes) return bad("too short");
  const uint8_t* in = bytes.data();
  if (Get<uint32_t>(in) != kMagic) return bad("another magic number");
  if (Get<uint32_t>(in + kChecksum) != Checksum(in)) {
    return bad("its header's checksum is another one");
  }
  const uint8_t type = in[kType];
  if (type < 1 || type > 4) return bad(absl::StrCat("of type ", type));
  FrameHeader header;
  header.type = static_cast<FrameHeader::Type>(type);
  header.length = Get<uint32_t>(in + kLength);
  header.tag.kind = Get<uint32_t>(in + kKind);
  header.epoch = Get<uint64_t>(in + kEpoch);
  header.tag.clock = Get<int64_t>(in + kClock);
  header.size = Get<uint64_t>(in + kSize);
  header.offset = Get<uint64_t>(in + kOffset);
  header.tag.item = Get<uint32_t>(in + kItem);
  switch (header.type) {
    case FrameHeader::Type::kData:
      if (header.length > kFramePayloadMax) return bad("too long");
      if (header.offset % kFrameHeaderBytes != 0) return bad("an odd offset");
      if (header.offset > header.size ||
          header.length > header.size - header.offset) {
        return bad("it goes beyond its message");
      }
      // An empty message is one empty frame; no other frame is empty, nor ends
      // at an odd byte before the message does.
      if (header.length == 0 && header.size != 0) return bad("it is empty");
      if (header.length % kFrameHeaderBytes != 0 &&
          header.offset + header.length != header.size) {
        return bad("an odd length");
      }
      break;
    case FrameHeader::Type::kSwap:
      if (header.length > kSwapBytesMax || header.offset != 0 ||
          header.length != header.size) {
        return bad("a part of a swap, or a long one");
      }
      break;
    case FrameHeader::Type::kReady:
      if (header.length != 0) return bad("a payload that it must not have");
      break;
    case FrameHeader::Type::kBye:
      if (header.length > kByeTextMax) return bad("too long");
      break;
  }
  return header;
}

}  // namespace syncline::worker

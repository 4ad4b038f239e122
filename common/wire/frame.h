#ifndef SYNCLINE_COMMON_WIRE_FRAME_H_
#define SYNCLINE_COMMON_WIRE_FRAME_H_

// Bulk messages: a small protobuf header and a payload that protobuf never
// copies. On the wire they are ordinary protobuf messages with two fields,
//
//   0x0a  varint header_bytes   header (a serialised message)
//   0x1a  varint shared_bytes   what lies in shared memory (SharedMemory)
//   0x12  varint payload_bytes  payload (little-endian values of the header's
//                               WireType, and keys; parameter_server.proto)
//
// in this order and nothing after. The second is there between peers of one
// host only; the third is absent when there is no payload, or when it is in
// shared memory. So any generated client can call the service, and ours can
// hand the payload to gRPC as slices that point into the tensors themselves.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "proto/parameter_server.pb.h"

namespace syncline {

// Largest payload of one message: 4 MiB (gRPC's receive limit) less room for
// the header.
inline constexpr size_t kChunkBytesMax = (4 << 20) - (64 << 10);

// A frame around `header` with `payload` slices, which are shared, not copied.
grpc::ByteBuffer EncodeFrame(const google::protobuf::MessageLite& header,
                             std::vector<grpc::Slice> payload);

// The payload of a received frame: views into the slices of the buffer it came
// in, or of shared memory, which it keeps alive. Slices straddle elements and
// are not aligned. Bytes in shared memory may change between two looks at them:
// what decides anything is copied first. Move-only; thread-compatible
// (concurrent const use is fine).
class PayloadView {
 public:
  PayloadView() = default;
  explicit PayloadView(std::vector<grpc::Slice> slices);

  size_t size_bytes() const { return size_bytes_; }
  // Copies bytes [offset, offset + size) to `out`. REQUIRES: within
  // size_bytes(). Costs a binary search over the slices and the copy.
  void CopyTo(size_t offset, size_t size, void* out) const;

 private:
  std::vector<grpc::Slice> slices_;
  std::vector<size_t> starts_;  // offset of each slice within the payload
  size_t size_bytes_ = 0;
};

// Splits a received frame. `shared` is what the peer claims to lie in shared
// memory; check it before use. Null: the frame must not use any. Errors:
// InvalidArgument: anything but the layout above, a header that does not parse
// or is over 64 KiB, sizes that do not add up, a payload in both places; the
// outputs are then unspecified.
absl::Status DecodeFrame(const grpc::ByteBuffer& buffer,
                         google::protobuf::MessageLite* header,
                         PayloadView* payload, SharedMemory* shared = nullptr);

// A frame for code that moves payloads and does not read headers.
struct FrameParts {
  std::string header;  // serialised
  SharedMemory shared;
  std::vector<grpc::Slice> payload;
};
// Errors: as DecodeFrame's.
absl::StatusOr<FrameParts> SplitFrame(const grpc::ByteBuffer& frame);
grpc::ByteBuffer JoinFrame(FrameParts parts);

// Errors of calls that name shared memory carry a payload of this name. It
// tells that the ps has ended the call, and will not write its answer any more,
// which an error made up by the caller's own gRPC does not. The payload is
// another matter: what a push delivered may be kept where it is, so it stays as
// it is until the call, or a repeat of it, is answered OK. The detail's text:
//   "ended"        nothing more than that
//   "unknown"      the ps does not have such a region (any more); send it all
//   "off", "other_host"  why there is no OfferMemory
inline constexpr char kSharedMemoryDetail[] = "syncline/shared_memory";

}  // namespace syncline

#endif  // SYNCLINE_COMMON_WIRE_FRAME_H_

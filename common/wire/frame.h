#ifndef SYNCLINE_COMMON_WIRE_FRAME_H_
#define SYNCLINE_COMMON_WIRE_FRAME_H_

// Bulk messages: a small protobuf header and a payload that protobuf never
// copies. On the wire they are ordinary protobuf messages with two fields,
//
//   0x0a  varint header_bytes   header (a serialised message)
//   0x12  varint payload_bytes  payload (raw little-endian float32)
//
// in this order and nothing after; the second is absent when there is no
// payload. So any generated client can call the service, and ours can hand the
// payload to gRPC as slices that point into the tensors themselves.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"

namespace syncline {

// Largest payload of one message: 4 MiB (gRPC's receive limit) less room for
// the header.
inline constexpr size_t kChunkBytesMax = (4 << 20) - (64 << 10);

// A frame around `header` with `payload` slices, which are shared, not copied.
grpc::ByteBuffer EncodeFrame(const google::protobuf::MessageLite& header,
                             std::vector<grpc::Slice> payload);

// The payload of a received frame: views into the slices of the buffer it came
// in, which it keeps alive. Slices straddle elements and are not aligned.
// Move-only; thread-compatible (concurrent const use is fine).
class PayloadView {
 public:
  size_t size_bytes() const { return size_bytes_; }
  // Copies bytes [offset, offset + size) to `out`. REQUIRES: within
  // size_bytes(). Costs a binary search over the slices and the copy.
  void CopyTo(size_t offset, size_t size, void* out) const;

 private:
  friend absl::Status DecodeFrame(const grpc::ByteBuffer&,
                                  google::protobuf::MessageLite*, PayloadView*);
  std::vector<grpc::Slice> slices_;
  std::vector<size_t> starts_;  // offset of each slice within the payload
  size_t skip_bytes_ = 0;       // header bytes at the front of the first slice
  size_t size_bytes_ = 0;
};

// Splits a received frame. Errors: InvalidArgument: anything but the layout
// above, a header that does not parse or is over 64 KiB, sizes that do not add
// up; *header and *payload are then unspecified.
absl::Status DecodeFrame(const grpc::ByteBuffer& buffer,
                         google::protobuf::MessageLite* header,
                         PayloadView* payload);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_WIRE_FRAME_H_

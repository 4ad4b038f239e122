#include "common/rpc/message_buffer.h"

#include <string>

#include "grpcpp/support/slice.h"

namespace syncline {

grpc::ByteBuffer ToByteBuffer(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

bool FromByteBuffer(const grpc::ByteBuffer& buffer,
                    google::protobuf::MessageLite* message) {
  grpc::Slice slice;
  return buffer.DumpToSingleSlice(&slice).ok() &&
         message->ParseFromArray(slice.begin(), static_cast<int>(slice.size()));
}

}  // namespace syncline

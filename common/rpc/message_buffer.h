#ifndef SYNCLINE_COMMON_RPC_MESSAGE_BUFFER_H_
#define SYNCLINE_COMMON_RPC_MESSAGE_BUFFER_H_

#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"

namespace syncline {

// Small messages without a payload, for calls through the generic stub. (Bulk
// ones go through common/wire/frame.h.)
grpc::ByteBuffer ToByteBuffer(const google::protobuf::MessageLite& message);
// False if `buffer` is not such a message; *message is then unspecified.
bool FromByteBuffer(const grpc::ByteBuffer& buffer,
                    google::protobuf::MessageLite* message);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_RPC_MESSAGE_BUFFER_H_

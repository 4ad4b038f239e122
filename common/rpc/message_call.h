#ifndef SYNCLINE_COMMON_RPC_MESSAGE_CALL_H_
#define SYNCLINE_COMMON_RPC_MESSAGE_CALL_H_

#include <functional>
#include <string>

#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/status.h"

namespace syncline {

// A unary call that also tells when its request has left this process and when
// the response's initial metadata have come, which gRPC's own unary calls do
// not. On the wire it is an ordinary unary call.
struct MessageCall {
  grpc::ClientContext* context = nullptr;
  std::string method;
  const grpc::ByteBuffer* request = nullptr;
  grpc::ByteBuffer* response = nullptr;
  // The request is in the system's hands, or never will be; once, before
  // on_done. On a thread of gRPC, like the others.
  std::function<void()> on_sent;
  // The response's initial metadata have come; at most once, before on_done.
  std::function<void()> on_taken;
  std::function<void(const grpc::Status&)> on_done;  // once
};

// Starts `call`. The objects it points to live until on_done returns.
void StartMessageCall(grpc::GenericStub* stub, MessageCall call);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_RPC_MESSAGE_CALL_H_

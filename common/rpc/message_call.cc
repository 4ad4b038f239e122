#include "common/rpc/message_call.h"

#include <utility>

namespace syncline {
namespace {

// Deletes itself when the call has ended.
class Reactor final
    : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit Reactor(MessageCall call) : call_(std::move(call)) {}

  void Start(grpc::GenericStub* stub) {
    stub->PrepareBidiStreamingCall(call_.context, call_.method,
                                   grpc::StubOptions(), this);
    StartWriteLast(call_.request, grpc::WriteOptions());
    StartRead(call_.response);
    StartCall();
  }

 private:
  void OnWriteDone(bool) override { call_.on_sent(); }
  void OnReadInitialMetadataDone(bool ok) override {
    if (ok) call_.on_taken();
  }
  void OnReadDone(bool ok) override { answered_ = ok; }
  void OnDone(const grpc::Status& status) override {
    const MessageCall call = std::move(call_);
    const bool answered = answered_;
    delete this;
    if (status.ok() && !answered) {
      call.on_done({grpc::StatusCode::INTERNAL, "answered without a message"});
    } else {
      call.on_done(status);
    }
  }

  MessageCall call_;
  bool answered_ = false;
};

}  // namespace

void StartMessageCall(grpc::GenericStub* stub, MessageCall call) {
  (new Reactor(std::move(call)))->Start(stub);
}

}  // namespace syncline

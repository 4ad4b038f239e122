#include "tests/bench/echo_client.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/crc32c.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/message_call.h"

namespace syncline {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(60);

uint32_t Checksum(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  uint32_t crc = 0;
  if (!buffer.Dump(&slices).ok()) return 0;
  for (const grpc::Slice& slice : slices) {
    crc = ExtendCrc32c(
        crc, {reinterpret_cast<const char*>(slice.begin()), slice.size()});
  }
  return crc;
}

}  // namespace

EchoClient::EchoClient(const std::string& address, size_t chunk_bytes,
                       size_t window_bytes, absl::Span<const float> values)
    : stub_(MakeChannel(address)), window_(window_bytes) {
  const char* data = reinterpret_cast<const char*>(values.data());
  const size_t bytes = values.size() * sizeof(float);
  for (size_t at = 0; at < bytes; at += chunk_bytes) {
    const grpc::Slice slice(data + at, std::min(chunk_bytes, bytes - at),
                            grpc::Slice::STATIC_SLICE);
    calls_.emplace_back().request = grpc::ByteBuffer(&slice, 1);
  }
}

absl::Status EchoClient::RoundTrip() {
  std::vector<Call*> first;
  {
    MutexLock lock(&mu_);
    pending_ = calls_.size();
    status_ = absl::OkStatus();
    for (Call& call : calls_) {
      if (window_.TryEnter(call.request.Length(), &call)) {
        first.push_back(&call);
      }
    }
  }
  for (Call* call : first) Start(call);
  MutexLock lock(&mu_);
  while (pending_ > 0) done_.WaitUntil(&mu_, absl::Now() + kTimeout);
  return status_;
}

absl::Status EchoClient::Verify() const {
  for (const Call& call : calls_) {
    if (Checksum(call.request) != Checksum(call.response)) {
      return absl::InternalError("the echo changed a byte");
    }
  }
  return absl::OkStatus();
}

void EchoClient::Start(Call* call) {
  call->response.Clear();
  call->context = MakeContext(absl::Now() + kTimeout);
  MessageCall message;
  message.context = call->context.get();
  message.method = "/syncline.ParameterServer/PushPull";
  message.request = &call->request;
  message.response = &call->response;
  message.on_sent = [this, call] { OnSent(call->request.Length()); };
  message.on_taken = [] {};
  message.on_done = [this](const grpc::Status& status) { OnDone(status); };
  StartMessageCall(&stub_, std::move(message));
}

void EchoClient::OnSent(size_t bytes) {
  std::vector<Call*> next;
  {
    MutexLock lock(&mu_);
    next = window_.Leave(bytes);
  }
  for (Call* call : next) Start(call);
}

void EchoClient::OnDone(const grpc::Status& status) {
  MutexLock lock(&mu_);
  if (!status.ok()) status_ = FromGrpcStatus(status);
  if (--pending_ == 0) done_.Signal();
}

}  // namespace syncline

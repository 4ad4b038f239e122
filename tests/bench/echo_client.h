#ifndef SYNCLINE_TESTS_BENCH_ECHO_CLIENT_H_
#define SYNCLINE_TESTS_BENCH_ECHO_CLIENT_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "worker/client/transport/send_window.h"

namespace syncline {

// The baseline of gRPC alone: sends values to ServedPeer::Echo in messages of
// `chunk_bytes`, at most `window_bytes` leaving at a time, as the worker's
// client does, and receives the answers.
class EchoClient {
 public:
  // `values` outlive it.
  EchoClient(const std::string& address, size_t chunk_bytes,
             size_t window_bytes, absl::Span<const float> values);

  absl::Status RoundTrip() ABSL_LOCKS_EXCLUDED(mu_);
  // Everything came back as it went.
  absl::Status Verify() const;

 private:
  struct Call {
    std::unique_ptr<grpc::ClientContext> context;
    grpc::ByteBuffer request;
    grpc::ByteBuffer response;
  };

  void Start(Call* call);
  void OnSent(size_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  void OnDone(const grpc::Status& status) ABSL_LOCKS_EXCLUDED(mu_);

  grpc::GenericStub stub_;
  std::deque<Call> calls_;
  Mutex mu_;
  CondVar done_;
  worker::SendWindow<Call*> window_ ABSL_GUARDED_BY(mu_);
  size_t pending_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline

#endif  // SYNCLINE_TESTS_BENCH_ECHO_CLIENT_H_

#ifndef SYNCLINE_COMMON_RPC_CONNECTION_ACCEPTOR_H_
#define SYNCLINE_COMMON_RPC_CONNECTION_ACCEPTOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/host_port.h"
#include "common/system/file_descriptor.h"

namespace syncline {

// A listening port, and a thread that takes its connections. gRPC's own
// listener stops for good at the first connection that finds no file
// descriptor; this one goes on. Connections above OpenConnectionsMax() are
// closed at once, so that files can still be opened. Thread-safe.
class ConnectionAcceptor {
 public:
  // A connection that does not block and sends without delay.
  using Take = std::function<void(FileDescriptor)>;

  // Binds and listens, on all addresses of a host's name; connections wait
  // until Start. Every interface is IPv6's and IPv4's. Errors: Unavailable,
  // with the system's reason.
  static absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> Listen(
      const HostPort& address);
  ~ConnectionAcceptor();  // Stop()
  ConnectionAcceptor(const ConnectionAcceptor&) = delete;
  ConnectionAcceptor& operator=(const ConnectionAcceptor&) = delete;

  // The address, with the real port.
  const HostPort& address() const { return address_; }
  // Of its sockets, the first. REQUIRES: not stopped.
  int listener() const { return listeners_.front().get(); }

  // `take` is called by the acceptor's thread. At most once.
  void Start(Take take);
  // Closes the port and joins. Idempotent; not by two threads at once.
  void Stop();

 private:
  ConnectionAcceptor() = default;

  absl::Status Bind(int family, const void* where, uint32_t where_bytes);
  void Run();
  // Accepts all connections that wait. False: accept() failed, for example for
  // want of descriptors. Connections may still wait then: try again later.
  bool AcceptAll(int listener);
  void TellRefused();

  HostPort address_;
  std::vector<FileDescriptor> listeners_;
  FileDescriptor stop_;  // an eventfd
  Take take_;
  int refused_ = 0;  // since it was last told; the thread's alone
  absl::Time tell_at_ = absl::InfinitePast();  // likewise
  std::thread thread_;                         // last: it uses the rest
};

// Descriptors at or above this number are not used for connections: what the
// limit of open files leaves after a reserve of a quarter, 256 at most.
int OpenConnectionsMax();

}  // namespace syncline

#endif  // SYNCLINE_COMMON_RPC_CONNECTION_ACCEPTOR_H_

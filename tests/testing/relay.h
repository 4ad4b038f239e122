#ifndef SYNCLINE_TESTS_TESTING_RELAY_H_
#define SYNCLINE_TESTS_TESTING_RELAY_H_

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/file_descriptor.h"
#include "gtest/gtest.h"

namespace syncline {

// Passes on what a client and a server on this host send each other, over one
// connection. While it stalls, the client gets nothing, and the server can send
// no more than the client's window.
class Relay {
 public:
  // `target`: the server, "127.0.0.1:4000".
  explicit Relay(const std::string& target)
      : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = Loopback(0);
    socklen_t size = sizeof(address);
    auto* const plain = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener_.get(), plain, size), 0);
    EXPECT_EQ(listen(listener_.get(), 1), 0);
    EXPECT_EQ(getsockname(listener_.get(), plain, &size), 0);
    port_ = ntohs(address.sin_port);
    int target_port = 0;
    EXPECT_TRUE(
        absl::SimpleAtoi(target.substr(target.rfind(':') + 1), &target_port));
    thread_ = std::thread([this, target_port] { Run(target_port); });
  }
  ~Relay() {
    stop_ = true;
    thread_.join();
  }
  // Where the client connects to.
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  void Stall(bool stalls) { stalls_ = stalls; }

 private:
  static sockaddr_in Loopback(int port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  void Run(int target_port) {
    pollfd waiting = {listener_.get(), POLLIN, 0};
    while (!stop_ && poll(&waiting, 1, 10) == 0) continue;
    if (stop_) return;
    const FileDescriptor client(
        accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const FileDescriptor server(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in to = Loopback(target_port);
    EXPECT_EQ(connect(server.get(), reinterpret_cast<const sockaddr*>(&to),
                      sizeof(to)),
              0);
    bool open = true;
    while (open && !stop_) {
      pollfd both[] = {{client.get(), POLLIN, 0},
                       {server.get(), stalls_ ? short{0} : short{POLLIN}, 0}};
      if (poll(both, 2, 10) <= 0) continue;
      if (both[0].revents != 0) open = Pass(client, server);
      if (open && both[1].revents != 0) open = Pass(server, client);
    }
  }
  static bool Pass(const FileDescriptor& from, const FileDescriptor& to) {
    char bytes[4096];
    const ssize_t size = read(from.get(), bytes, sizeof(bytes));
    return size > 0 &&
           write(to.get(), bytes, static_cast<size_t>(size)) == size;
  }

  const FileDescriptor listener_;
  int port_ = 0;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> stalls_ = false;
  std::thread thread_;
};

}  // namespace syncline

#endif  // SYNCLINE_TESTS_TESTING_RELAY_H_

#ifndef SYNCLINE_TESTS_TESTING_FAKES_RELAY_H_
#define SYNCLINE_TESTS_TESTING_FAKES_RELAY_H_

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/system/file_descriptor.h"
#include "gtest/gtest.h"

namespace syncline {

// Passes on what clients and a server on this host send each other. While it
// stalls, clients get nothing, new ones neither, and the server can send no
// more than a client's window.
class Relay {
 public:
  // `target`: the server, "127.0.0.1:4000".
  explicit Relay(const std::string& target)
      : target_port_(PortOf(target)),
        listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = Loopback(0);
    socklen_t size = sizeof(address);
    auto* const plain = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener_.get(), plain, size), 0);
    EXPECT_EQ(listen(listener_.get(), 16), 0);
    EXPECT_EQ(getsockname(listener_.get(), plain, &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Run(); });
  }
  ~Relay() {
    stop_ = true;
    thread_.join();
  }
  // Where the client connects to.
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  void Stall(bool stalls) { stalls_ = stalls; }
  // Closes all connections, soon; clients may connect again.
  void Break() { breaks_ = true; }
  // Where clients that connect from now on get.
  void SetTarget(const std::string& target) { target_port_ = PortOf(target); }

 private:
  struct Pair {
    std::shared_ptr<FileDescriptor> client;
    std::shared_ptr<FileDescriptor> server;
  };

  static int PortOf(const std::string& address) {
    int port = 0;
    EXPECT_TRUE(
        absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
    return port;
  }
  static sockaddr_in Loopback(int port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  void Run() {
    std::vector<Pair> pairs;
    while (!stop_) {
      if (breaks_.exchange(false)) pairs.clear();
      const short from_server = stalls_ ? short{0} : short{POLLIN};
      std::vector<pollfd> fds = {{listener_.get(), POLLIN, 0}};
      for (const Pair& pair : pairs) {
        fds.push_back({pair.client->get(), POLLIN, 0});
        fds.push_back({pair.server->get(), from_server, 0});
      }
      if (poll(fds.data(), fds.size(), 10) <= 0) continue;
      std::vector<Pair> open;
      for (size_t i = 0; i < pairs.size(); ++i) {
        const Pair& pair = pairs[i];
        const bool stays =
            (fds[2 * i + 1].revents == 0 || Pass(*pair.client, *pair.server)) &&
            (fds[2 * i + 2].revents == 0 || Pass(*pair.server, *pair.client));
        if (stays) open.push_back(pair);
      }
      if (fds[0].revents != 0) Accept(target_port_, &open);
      pairs = std::move(open);
    }
  }
  void Accept(int target_port, std::vector<Pair>* pairs) {
    auto client = std::make_shared<FileDescriptor>(
        accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    auto server = std::make_shared<FileDescriptor>(
        socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in to = Loopback(target_port);
    const int connected = connect(
        server->get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to));
    // Small messages go on at once, as without the relay.
    const int on = 1;
    for (const auto& end : {client, server}) {
      setsockopt(end->get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    }
    // A server that is not there yet, or no more, is one that hangs up.
    if (connected == 0) pairs->push_back({client, server});
  }
  static bool Pass(const FileDescriptor& from, const FileDescriptor& to) {
    char bytes[4096];
    const ssize_t size = read(from.get(), bytes, sizeof(bytes));
    // An end that has hung up is an error here, not the program's death.
    return size > 0 && send(to.get(), bytes, static_cast<size_t>(size),
                            MSG_NOSIGNAL) == size;
  }

  std::atomic<int> target_port_;
  const FileDescriptor listener_;
  int port_ = 0;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> stalls_ = false;
  std::atomic<bool> breaks_ = false;
  std::thread thread_;
};

}  // namespace syncline

#endif  // SYNCLINE_TESTS_TESTING_FAKES_RELAY_H_

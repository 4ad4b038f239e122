// Goal: the doctor's look at names and ports tells usable from unusable.
// Method: a listening socket on a port the system picks, and the reserved
// top-level domain ".invalid" (RFC 2606), which never resolves.

#include "scheduler/ctl/address_check.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace syncline::ctl {
namespace {

class ListeningSocket {
 public:
  ListeningSocket() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
              0);
    EXPECT_EQ(listen(fd_, 1), 0);
    socklen_t size = sizeof(address);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size),
              0);
    port_ = ntohs(address.sin_port);
  }
  ~ListeningSocket() { close(fd_); }
  int port() const { return port_; }

 private:
  const int fd_;
  int port_ = 0;
};

TEST(CheckSchedulerAddressTest, WantsAPort) {
  EXPECT_TRUE(CheckSchedulerAddress("sched.example:7070").ok());
  EXPECT_TRUE(CheckSchedulerAddress("[::1]:1").ok());
  EXPECT_EQ(CheckSchedulerAddress("foo").message(),
            "\"foo\" has no port; give host:port, as in foo:7070 (7070 is the "
            "port where synctl is told none)");
  for (const char* const bad : {"", "foo:", "foo:bar", "foo:0", "http://a:1"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(CheckSchedulerAddress(bad))) << bad;
  }
}

TEST(CheckPortIsFreeTest, RefusesAPortThatSomebodyListensOn) {
  const ListeningSocket listening;
  const absl::Status status = CheckPortIsFree(listening.port());
  EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
  EXPECT_NE(status.message().find(std::to_string(listening.port())),
            absl::string_view::npos);
}

TEST(CheckPortIsFreeTest, AcceptsAPortAfterItsListenerIsGone) {
  int port = 0;
  {
    const ListeningSocket listening;
    port = listening.port();
  }
  EXPECT_TRUE(CheckPortIsFree(port).ok());
}

TEST(ResolveHostsTest, AnswersForEachHostInOrder) {
  const auto statuses =
      ResolveHosts({"127.0.0.1", "no-such-host.invalid", "localhost"});
  ASSERT_EQ(statuses.size(), 3u);
  EXPECT_TRUE(statuses[0].ok()) << statuses[0];
  EXPECT_FALSE(statuses[1].ok());
  EXPECT_TRUE(statuses[2].ok()) << statuses[2];
}

}  // namespace
}  // namespace syncline::ctl

// Goal: a descriptor arrives with its text; whatever else arrives is refused
// and leaves nothing open; the end of a peer is seen.
// Method: both ends in one process.

#include "common/system/local_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/open_files.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

FileDescriptor Null() { return FileDescriptor(open("/dev/null", O_RDONLY)); }

TEST(LocalSocketTest, ADescriptorArrivesWithItsText) {
  ASSERT_OK_AND_ASSIGN(const LocalListener listener, ListenLocally());
  EXPECT_FALSE(AcceptLocally(listener.socket).has_value());
  const FileDescriptor null = Null();
  ASSERT_OK_AND_ASSIGN(FileDescriptor sender,
                       SendDescriptor(listener.name, "token", null));
  const auto connection = AcceptLocally(listener.socket);
  ASSERT_TRUE(connection.has_value());
  ASSERT_OK_AND_ASSIGN(const ReceivedDescriptor received,
                       ReceiveDescriptor(*connection));
  EXPECT_EQ(received.text, "token");
  struct stat sent;
  struct stat got;
  ASSERT_EQ(fstat(null.get(), &sent), 0);
  ASSERT_EQ(fstat(received.descriptor.get(), &got), 0);
  EXPECT_EQ(sent.st_rdev, got.st_rdev);

  EXPECT_FALSE(IsClosedByPeer(*connection));
  EXPECT_FALSE(IsClosedByPeer(sender));
  sender = FileDescriptor();
  EXPECT_TRUE(IsClosedByPeer(*connection));
}

TEST(LocalSocketTest, NobodyListens) {
  std::string name;
  {
    ASSERT_OK_AND_ASSIGN(const LocalListener listener, ListenLocally());
    name = listener.name;
  }
  for (const std::string& unused :
       {name, std::string(), std::string(200, 'x')}) {
    EXPECT_EQ(SendDescriptor(unused, "token", Null()).status().code(),
              absl::StatusCode::kUnavailable);
  }
}

TEST(LocalSocketTest, AFullQueueRefusesAtOnce) {
  ASSERT_OK_AND_ASSIGN(const LocalListener listener, ListenLocally());
  std::vector<FileDescriptor> senders;
  for (int i = 0; i < 1000; ++i) {
    auto sender = SendDescriptor(listener.name, "token", Null());
    if (!sender.ok()) {
      EXPECT_EQ(sender.status().code(), absl::StatusCode::kUnavailable);
      return;
    }
    senders.push_back(*std::move(sender));
  }
  FAIL() << "a thousand connections wait";
}

// A message with two descriptors, as only a hostile peer sends it.
void SendTwo(const FileDescriptor& socket) {
  const FileDescriptor null = Null();
  const int descriptors[2] = {null.get(), null.get()};
  char text[] = "token";
  iovec part = {text, 5};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(descriptors))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(descriptors));
  std::memcpy(CMSG_DATA(header), descriptors, sizeof(descriptors));
  ASSERT_EQ(sendmsg(socket.get(), &message, 0), 5);
}

// Runs `run` in a child that is another user; its exit code.
int AsAnotherUser(const std::function<int()>& run) {
  constexpr uid_t kNobody = 65534;
  const pid_t child = fork();
  if (child == 0) _exit(setuid(kNobody) == 0 ? run() : 99);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(LocalSocketTest, MemoryIsNotSharedWithAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root becomes another user";
  ASSERT_OK_AND_ASSIGN(const LocalListener listener, ListenLocally());
  // Neither does it send to us,
  EXPECT_EQ(
      AsAnotherUser([&] {
        return absl::IsUnavailable(
                   SendDescriptor(listener.name, "token", Null()).status())
                   ? 0
                   : 1;
      }),
      0);
  // nor do we take what it has connected.
  EXPECT_EQ(AsAnotherUser([&] {
              const int socket_fd =
                  socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
              sockaddr_un address = {};
              address.sun_family = AF_UNIX;
              std::memcpy(address.sun_path + 1, listener.name.data(),
                          listener.name.size());
              const auto size = static_cast<socklen_t>(
                  offsetof(sockaddr_un, sun_path) + 1 + listener.name.size());
              if (connect(socket_fd, reinterpret_cast<sockaddr*>(&address),
                          size) != 0) {
                return 1;
              }
              return send(socket_fd, "token", 5, 0) == 5 ? 0 : 2;
            }),
            0);
  EXPECT_FALSE(AcceptLocally(listener.socket).has_value());
  // A sender behind a refused one is not held up.
  ASSERT_OK_AND_ASSIGN(const FileDescriptor sender,
                       SendDescriptor(listener.name, "token", Null()));
  EXPECT_TRUE(AcceptLocally(listener.socket).has_value());
}

TEST(LocalSocketTest, RefusesWhatIsNotOneDescriptor) {
  ASSERT_OK_AND_ASSIGN(const LocalListener listener, ListenLocally());
  const size_t before = OpenFiles();
  {
    // Nothing yet, then nothing ever.
    ASSERT_OK_AND_ASSIGN(FileDescriptor sender,
                         SendDescriptor(listener.name, "token", Null()));
    const auto connection = AcceptLocally(listener.socket);
    ASSERT_OK(ReceiveDescriptor(*connection));
    EXPECT_EQ(ReceiveDescriptor(*connection).status().code(),
              absl::StatusCode::kUnavailable);
    ASSERT_EQ(send(sender.get(), "text", 4, 0), 4);
    EXPECT_EQ(ReceiveDescriptor(*connection).status().code(),
              absl::StatusCode::kInvalidArgument);
    SendTwo(sender);
    EXPECT_EQ(ReceiveDescriptor(*connection).status().code(),
              absl::StatusCode::kInvalidArgument);
    sender = FileDescriptor();
    EXPECT_EQ(ReceiveDescriptor(*connection).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(OpenFiles(), before);
}

TEST(LocalSocketTest, ANameHasOneOwnerUntilItIsClosed) {
  const std::string name = absl::StrCat("syncline-test-", getpid());
  {
    ASSERT_OK_AND_ASSIGN(const FileDescriptor claim, ClaimLocalName(name));
    EXPECT_TRUE(absl::IsAlreadyExists(ClaimLocalName(name).status()));
    ASSERT_OK(ClaimLocalName(absl::StrCat(name, "-other")));
  }
  ASSERT_OK(ClaimLocalName(name));
  EXPECT_TRUE(
      absl::IsInvalidArgument(ClaimLocalName(std::string(200, 'x')).status()));
}

TEST(LocalSocketTest, ABootHasAnId) {
  EXPECT_EQ(BootId().size(), 36u);
  EXPECT_EQ(BootId(), BootId());
}

}  // namespace
}  // namespace syncline

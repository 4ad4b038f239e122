#include "tests/bench/page_reader.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/host_port.h"
#include "common/system/file_descriptor.h"

namespace syncline {
namespace {

// 0: it did not answer.
uint64_t ReadPage(const PageReader::Page& page) {
  const auto where = ParseHostPort(page.address);
  if (!where.ok()) return 0;
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(where->port);
  if (inet_pton(AF_INET, where->host.c_str(), &to.sin_addr) != 1) return 0;
  const FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval limit = {.tv_sec = 5, .tv_usec = 0};
  (void)setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) {
    return 0;
  }
  const std::string request =
      absl::StrCat("GET ", page.path, " HTTP/1.1\r\nHost: ", page.address,
                   "\r\nConnection: close\r\n\r\n");
  if (send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) {
    return 0;
  }
  uint64_t bytes = 0;
  char buffer[16384];
  for (;;) {
    const ssize_t n = read(fd.get(), buffer, sizeof(buffer));
    if (n <= 0) return bytes;
    bytes += static_cast<uint64_t>(n);
  }
}

}  // namespace

PageReader::PageReader(std::vector<Page> pages) : pages_(std::move(pages)) {
  reading_.emplace("page-reader", absl::Seconds(1), [this] { Read(); });
}

void PageReader::Read() {
  if (is_paused_) return;
  for (const Page& page : pages_) {
    const uint64_t bytes = ReadPage(page);
    bytes_ += bytes;
    if (bytes == 0) ++failures_;
  }
}

}  // namespace syncline

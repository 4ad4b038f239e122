#include "worker/collectives/tcp_stream.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace syncline::worker {
namespace {

constexpr size_t kStagedBytes = 64 << 10;
constexpr size_t kPumpBytesMax = 2 << 20;
constexpr size_t kPiecesMax = 64;

absl::Status Lost(const char* what, int error) {
  return absl::UnavailableError(
      absl::StrCat("its connection is lost: ", what, ": ", strerror(error)));
}

bool IsAgain(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

TcpStream::TcpStream(FileDescriptor connection, absl::string_view first)
    : connection_(std::move(connection)), staged_(kStagedBytes) {
  const int on = 1;
  setsockopt(connection_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  end_ = std::min(first.size(), staged_.size());
  std::copy(first.begin(), first.begin() + end_, staged_.begin());
}

absl::StatusOr<bool> TcpStream::Pump(PeerChannel* channel) {
  SYNCLINE_ASSIGN_OR_RETURN(const bool in, PumpIn(channel));
  SYNCLINE_ASSIGN_OR_RETURN(const bool out, PumpOut(channel));
  return in || out;
}

absl::StatusOr<bool> TcpStream::PumpOut(PeerChannel* channel) {
  size_t moved = 0;
  while (moved < kPumpBytesMax) {
    const auto output = channel->Output(kPiecesMax);
    if (output.empty()) break;
    iovec pieces[kPiecesMax];
    size_t bytes = 0;
    for (size_t i = 0; i < output.size(); ++i) {
      pieces[i] = {const_cast<uint8_t*>(output[i].data()), output[i].size()};
      bytes += output[i].size();
    }
    msghdr message = {};
    message.msg_iov = pieces;
    message.msg_iovlen = output.size();
    const ssize_t sent =
        sendmsg(connection_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (IsAgain(errno)) break;
      return Lost("write", errno);
    }
    channel->OnWritten(static_cast<size_t>(sent));
    moved += static_cast<size_t>(sent);
    if (static_cast<size_t>(sent) < bytes) break;
  }
  return moved > 0;
}

void TcpStream::OfferStaged(PeerChannel* channel) {
  if (begin_ == end_) return;
  begin_ += channel->OnInput({staged_.data() + begin_, end_ - begin_});
  if (begin_ == end_) begin_ = end_ = 0;
}

absl::StatusOr<bool> TcpStream::PumpIn(PeerChannel* channel) {
  OfferStaged(channel);
  size_t moved = 0;
  while (moved < kPumpBytesMax && channel->failure().ok()) {
    // Bytes that were not taken are few, and go to the front.
    if (begin_ > 0) {
      std::memmove(staged_.data(), staged_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    iovec pieces[2];
    size_t count = 0;
    const absl::Span<uint8_t> direct = channel->DirectInput();
    if (!direct.empty()) pieces[count++] = {direct.data(), direct.size()};
    pieces[count++] = {staged_.data() + end_, staged_.size() - end_};
    const size_t room = direct.size() + staged_.size() - end_;
    msghdr message = {};
    message.msg_iov = pieces;
    message.msg_iovlen = count;
    const ssize_t received = recvmsg(connection_.get(), &message, MSG_DONTWAIT);
    if (received < 0) {
      if (errno == EINTR) continue;
      if (IsAgain(errno)) break;
      return Lost("read", errno);
    }
    if (received == 0) {
      return absl::UnavailableError("it has closed its connection");
    }
    const auto bytes = static_cast<size_t>(received);
    const size_t in_place = std::min(bytes, direct.size());
    if (in_place > 0) channel->OnDirectInput(in_place);
    end_ += bytes - in_place;
    OfferStaged(channel);
    moved += bytes;
    if (bytes < room) break;
  }
  return moved > 0;
}

bool TcpStream::PrepareSleep(const PeerChannel& channel,
                             std::vector<pollfd>* wait_for) {
  const short events =
      static_cast<short>(POLLIN | (channel.has_output() ? POLLOUT : 0));
  wait_for->push_back({connection_.get(), events, 0});
  return true;
}

void TcpStream::Close() {
  shutdown(connection_.get(), SHUT_WR);
  // Bytes that nobody has read would make the system reset the connection, and
  // the other end lose what is still on its way to it.
  for (int i = 0; i < 64; ++i) {
    if (recv(connection_.get(), staged_.data(), staged_.size(), MSG_DONTWAIT) <=
        0) {
      break;
    }
  }
}

}  // namespace syncline::worker

#include "worker/collectives/tls_stream.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"

namespace syncline::worker {
namespace {

constexpr size_t kStagedBytes = 64 << 10;
constexpr size_t kWireBytes = 256 << 10;
constexpr size_t kPumpBytesMax = 2 << 20;
constexpr size_t kPiecesMax = 64;
// A record has 16 KiB at most; pieces of less than this share one.
constexpr size_t kSmallBytes = 4 << 10;
constexpr absl::Duration kCloseMax = absl::Milliseconds(250);
// Both ends know whom they meet; TLS wants a name for the key.
constexpr char kIdentity[] = "syncline";

absl::Status Lost(const char* what, int error) {
  return absl::UnavailableError(
      absl::StrCat("its connection is lost: ", what, ": ", strerror(error)));
}

bool IsAgain(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

// The first error of OpenSSL's that this thread has not told yet.
std::string TlsErrorText() {
  const unsigned long error = ERR_get_error();
  ERR_clear_error();
  char text[256] = "";
  ERR_error_string_n(error, text, sizeof(text));
  return text;
}

// No certificate is good: the other end has to know the key.
int RefuseCertificate(int, X509_STORE_CTX*) { return 0; }

}  // namespace

TlsStream::TlsStream(FileDescriptor connection, Side side,
                     absl::string_view key, uint64_t rekey_bytes)
    : connection_(std::move(connection)),
      side_(side),
      key_(key),
      rekey_bytes_(rekey_bytes),
      context_(SSL_CTX_new(side == Side::kClient ? TLS_client_method()
                                                 : TLS_server_method())),
      staged_(kStagedBytes),
      wire_(kWireBytes) {
  SYNCLINE_CHECK(key_.size() == kKeyBytes && context_ != nullptr);
  const int on = 1;
  setsockopt(connection_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  SSL_CTX_set_min_proto_version(context_.get(), TLS1_3_VERSION);
  // The one that a key of this kind goes with.
  SYNCLINE_CHECK(
      SSL_CTX_set_ciphersuites(context_.get(), "TLS_AES_128_GCM_SHA256") == 1);
  SSL_CTX_set_num_tickets(context_.get(), 0);
  SSL_CTX_set_session_cache_mode(context_.get(), SSL_SESS_CACHE_OFF);
  if (side_ == Side::kClient) {
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, RefuseCertificate);
    SSL_CTX_set_psk_client_callback(context_.get(), ClientKey);
  } else {
    SSL_CTX_set_psk_server_callback(context_.get(), ServerKey);
  }
  tls_.reset(SSL_new(context_.get()));
  received_ = BIO_new(BIO_s_mem());
  written_ = BIO_new(BIO_s_mem());
  SYNCLINE_CHECK(tls_ != nullptr && received_ != nullptr &&
                 written_ != nullptr);
  // Nothing more has come yet, which is no end.
  BIO_set_mem_eof_return(received_, -1);
  SSL_set_bio(tls_.get(), received_, written_);
  SSL_set_app_data(tls_.get(), this);
  if (side_ == Side::kClient) {
    SSL_set_connect_state(tls_.get());
  } else {
    SSL_set_accept_state(tls_.get());
  }
}

TlsStream::~TlsStream() = default;

unsigned TlsStream::CopyKey(unsigned char* key, unsigned key_max) const {
  if (key_max < key_.size()) return 0;
  std::memcpy(key, key_.data(), key_.size());
  return static_cast<unsigned>(key_.size());
}

unsigned TlsStream::ClientKey(SSL* tls, const char*, char* identity,
                              unsigned identity_max, unsigned char* key,
                              unsigned key_max) {
  if (identity_max < sizeof(kIdentity)) return 0;
  std::memcpy(identity, kIdentity, sizeof(kIdentity));
  return static_cast<TlsStream*>(SSL_get_app_data(tls))->CopyKey(key, key_max);
}

unsigned TlsStream::ServerKey(SSL* tls, const char* identity,
                              unsigned char* key, unsigned key_max) {
  if (absl::string_view(identity) != kIdentity) return 0;
  return static_cast<TlsStream*>(SSL_get_app_data(tls))->CopyKey(key, key_max);
}

absl::Status TlsStream::Handshake() {
  if (has_met()) return absl::OkStatus();
  ERR_clear_error();
  const int result = SSL_do_handshake(tls_.get());
  if (result == 1) {
    // Nobody gets here without the key.
    if (SSL_session_reused(tls_.get()) == 1) return absl::OkStatus();
    return absl::UnavailableError("its TLS did not use the group's key");
  }
  if (SSL_get_error(tls_.get(), result) == SSL_ERROR_WANT_READ) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(
      absl::StrCat("it cannot be met by TLS: ", TlsErrorText()));
}

absl::StatusOr<bool> TlsStream::Pump(PeerChannel* channel) {
  const absl::StatusOr<bool> in = PumpIn(channel);
  if (!in.ok()) {
    SendEncrypted().status().IgnoreError();  // an alert says why
    return in;
  }
  SYNCLINE_ASSIGN_OR_RETURN(const bool out, PumpOut(channel));
  return *in || out;
}

absl::StatusOr<size_t> TlsStream::ReceiveEncrypted() {
  ssize_t received = 0;
  do {
    received =
        recv(connection_.get(), wire_.data(), wire_.size(), MSG_DONTWAIT);
  } while (received < 0 && errno == EINTR);
  if (received < 0 && IsAgain(errno)) return size_t{0};
  if (received < 0) return Lost("read", errno);
  if (received == 0) {
    return absl::UnavailableError("it has closed its connection");
  }
  const auto bytes = static_cast<int>(received);
  SYNCLINE_CHECK(BIO_write(received_, wire_.data(), bytes) == bytes);
  return static_cast<size_t>(received);
}

absl::Status TlsStream::Meet() {
  absl::Status status = Handshake();
  while (status.ok() && !has_met()) {
    SYNCLINE_RETURN_IF_ERROR(SendEncrypted().status());
    SYNCLINE_ASSIGN_OR_RETURN(const size_t bytes, ReceiveEncrypted());
    if (bytes == 0) return absl::OkStatus();
    status = Handshake();
  }
  // The end of the handshake, or an alert that says why there is none.
  const absl::Status sent = SendEncrypted().status();
  return status.ok() ? sent : status;
}

absl::StatusOr<bool> TlsStream::PumpIn(PeerChannel* channel) {
  SYNCLINE_RETURN_IF_ERROR(Handshake());
  OfferStaged(channel);
  size_t moved = 0;
  bool any = false;
  // A message may have come with the end of the handshake.
  if (has_met() && BIO_ctrl_pending(received_) > 0) {
    SYNCLINE_ASSIGN_OR_RETURN(any, Decrypt(channel));
  }
  while (moved < kPumpBytesMax && channel->failure().ok()) {
    SYNCLINE_ASSIGN_OR_RETURN(const size_t bytes, ReceiveEncrypted());
    if (bytes == 0) break;
    moved += bytes;
    SYNCLINE_RETURN_IF_ERROR(Handshake());
    if (has_met()) {
      SYNCLINE_ASSIGN_OR_RETURN(const bool decrypted, Decrypt(channel));
      any |= decrypted;
    }
    if (bytes < wire_.size()) break;
  }
  return any;
}

absl::StatusOr<bool> TlsStream::Decrypt(PeerChannel* channel) {
  bool any = false;
  while (true) {
    // Bytes that were not taken are few, and go to the front.
    if (begin_ > 0) {
      std::memmove(staged_.data(), staged_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    const absl::Span<uint8_t> direct = channel->DirectInput();
    const absl::Span<uint8_t> room =
        direct.empty() ? absl::MakeSpan(staged_).subspan(end_) : direct;
    ERR_clear_error();
    const int got = SSL_read(
        tls_.get(), room.data(),
        static_cast<int>(std::min<size_t>(room.size(), kPumpBytesMax)));
    if (got <= 0) {
      switch (SSL_get_error(tls_.get(), got)) {
        case SSL_ERROR_WANT_READ:
          return any;
        case SSL_ERROR_ZERO_RETURN:
          return absl::UnavailableError("it has closed its connection");
        default:
          return absl::DataLossError(
              absl::StrCat("its TLS is broken: ", TlsErrorText()));
      }
    }
    any = true;
    if (!direct.empty()) {
      channel->OnDirectInput(static_cast<size_t>(got));
    } else {
      end_ += static_cast<size_t>(got);
      OfferStaged(channel);
    }
    if (!channel->failure().ok()) return true;
  }
}

void TlsStream::OfferStaged(PeerChannel* channel) {
  if (begin_ == end_) return;
  begin_ += channel->OnInput({staged_.data() + begin_, end_ - begin_});
  if (begin_ == end_) begin_ = end_ = 0;
}

absl::Status TlsStream::Encrypt(absl::Span<const uint8_t> plain) {
  if (plain.empty()) return absl::OkStatus();
  if (bytes_of_key_ >= rekey_bytes_) {
    bytes_of_key_ = 0;
    SSL_key_update(tls_.get(), SSL_KEY_UPDATE_NOT_REQUESTED);
  }
  bytes_of_key_ += plain.size();
  ERR_clear_error();
  // The memory that it writes to takes everything.
  const int size = static_cast<int>(plain.size());
  if (SSL_write(tls_.get(), plain.data(), size) == size) {
    return absl::OkStatus();
  }
  return absl::InternalError(
      absl::StrCat("its TLS takes nothing: ", TlsErrorText()));
}

absl::StatusOr<bool> TlsStream::SendEncrypted() {
  while (true) {
    if (sent_ == encrypted_.size()) {
      sent_ = 0;
      encrypted_.resize(BIO_ctrl_pending(written_));
      if (encrypted_.empty()) return true;
      SYNCLINE_CHECK(BIO_read(written_, encrypted_.data(),
                              static_cast<int>(encrypted_.size())) ==
                     static_cast<int>(encrypted_.size()));
    }
    const ssize_t sent =
        send(connection_.get(), encrypted_.data() + sent_,
             encrypted_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (IsAgain(errno)) return false;
      return Lost("write", errno);
    }
    sent_ += static_cast<size_t>(sent);
  }
}

absl::StatusOr<bool> TlsStream::PumpOut(PeerChannel* channel) {
  size_t moved = 0;
  while (moved < kPumpBytesMax) {
    SYNCLINE_ASSIGN_OR_RETURN(const bool has_left, SendEncrypted());
    if (!has_left || !has_met()) break;
    const auto output = channel->Output(kPiecesMax);
    if (output.empty()) break;
    size_t bytes = 0;
    small_.clear();
    for (const absl::Span<const uint8_t> piece : output) {
      if (bytes >= kWireBytes) break;
      const auto taken = piece.first(std::min(piece.size(), kWireBytes));
      bytes += taken.size();
      if (taken.size() < kSmallBytes) {
        small_.insert(small_.end(), taken.begin(), taken.end());
      } else {
        SYNCLINE_RETURN_IF_ERROR(Encrypt(small_));
        small_.clear();
        SYNCLINE_RETURN_IF_ERROR(Encrypt(taken));
      }
      if (taken.size() < piece.size()) break;
    }
    SYNCLINE_RETURN_IF_ERROR(Encrypt(small_));
    channel->OnWritten(bytes);
    moved += bytes;
  }
  return moved > 0;
}

bool TlsStream::has_unsent() const {
  return sent_ < encrypted_.size() || BIO_ctrl_pending(written_) > 0;
}

bool TlsStream::PrepareSleep(const PeerChannel& channel,
                             std::vector<pollfd>* wait_for) {
  const bool writes = has_unsent() || (has_met() && channel.has_output());
  wait_for->push_back({connection_.get(),
                       static_cast<short>(POLLIN | (writes ? POLLOUT : 0)), 0});
  return true;
}

void TlsStream::Close() {
  if (has_met()) SSL_shutdown(tls_.get());
  const absl::Time end = MonotonicNow() + kCloseMax;
  while (true) {
    const absl::StatusOr<bool> sent = SendEncrypted();
    if (!sent.ok() || *sent || MonotonicNow() >= end) break;
    pollfd wait = {connection_.get(), POLLOUT, 0};
    poll(&wait, 1, 10);
  }
  shutdown(connection_.get(), SHUT_WR);
  // As of TcpStream.
  for (int i = 0; i < 64; ++i) {
    if (recv(connection_.get(), wire_.data(), wire_.size(), MSG_DONTWAIT) <=
        0) {
      break;
    }
  }
}

}  // namespace syncline::worker

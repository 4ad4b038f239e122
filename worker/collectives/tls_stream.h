#ifndef SYNCLINE_WORKER_COLLECTIVES_TLS_STREAM_H_
#define SYNCLINE_WORKER_COLLECTIVES_TLS_STREAM_H_

#include <openssl/ssl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/system/file_descriptor.h"
#include "worker/collectives/peer_stream.h"

namespace syncline::worker {

// Over one connection, encrypted: TLS 1.3 with a key that both ranks have
// before (PSK, RFC 8446) and a Diffie-Hellman exchange, so who hears of the key
// later cannot read what was sent. Without certificates: the key came over a
// channel that had checked them. Until the handshake has ended, by Meet or
// within Pump, nothing of the channel moves. Nothing blocks but Close, for a
// quarter of a second at most. Takes some 900 KiB at most: what has come, what
// is to leave, each encrypted and not. Thread-compatible.
class TlsStream : public PeerStream {
 public:
  enum class Side { kClient, kServer };
  static constexpr size_t kKeyBytes = 32;

  // `connection` is connected and does not block; `key` is kKeyBytes, the
  // other end's too. A new key is made of it after each `rekey_bytes`, before
  // AES-GCM has seen too much of one (RFC 8446, 5.5).
  TlsStream(FileDescriptor connection, Side side, absl::string_view key,
            uint64_t rekey_bytes = uint64_t{64} << 30);
  ~TlsStream() override;

  // The handshake, as far as it goes now. Errors: Unavailable: the other end
  // has another key, speaks no TLS, or has closed.
  absl::Status Meet();
  bool has_met() const { return SSL_is_init_finished(tls_.get()) == 1; }
  int descriptor() const { return connection_.get(); }

  // Errors besides PeerStream's and those of Meet: DataLoss: somebody has
  // changed what was sent.
  absl::StatusOr<bool> Pump(PeerChannel* channel) override;
  bool has_unsent() const override;
  bool PrepareSleep(const PeerChannel& channel,
                    std::vector<pollfd>* wait_for) override;
  void EndSleep() override {}
  void Close() override;
  absl::string_view kind() const override { return "tls"; }

 private:
  struct Free {
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
    void operator()(SSL* tls) const { SSL_free(tls); }
  };
  static unsigned ClientKey(SSL* tls, const char* hint, char* identity,
                            unsigned identity_max, unsigned char* key,
                            unsigned key_max);
  static unsigned ServerKey(SSL* tls, const char* identity, unsigned char* key,
                            unsigned key_max);
  unsigned CopyKey(unsigned char* key, unsigned key_max) const;

  absl::Status Handshake();
  // Takes what has come for TLS; the bytes, 0: nothing.
  absl::StatusOr<size_t> ReceiveEncrypted();
  absl::StatusOr<bool> PumpIn(PeerChannel* channel);
  absl::StatusOr<bool> PumpOut(PeerChannel* channel);
  // Gives the channel what has come whole; true: something.
  absl::StatusOr<bool> Decrypt(PeerChannel* channel);
  void OfferStaged(PeerChannel* channel);
  absl::Status Encrypt(absl::Span<const uint8_t> plain);
  // Writes what is encrypted. True: all of it has left.
  absl::StatusOr<bool> SendEncrypted();

  FileDescriptor connection_;
  const Side side_;
  const std::string key_;
  const uint64_t rekey_bytes_;
  uint64_t bytes_of_key_ = 0;
  std::unique_ptr<SSL_CTX, Free> context_;
  std::unique_ptr<SSL, Free> tls_;
  BIO* received_ = nullptr;         // tls_ has them; what it reads
  BIO* written_ = nullptr;          // and what it has written
  std::vector<uint8_t> encrypted_;  // bytes [sent_, size) are to be sent
  size_t sent_ = 0;
  std::vector<uint8_t> small_;   // short pieces, which become one record
  std::vector<uint8_t> staged_;  // bytes [begin_, end_) wait for more
  size_t begin_ = 0;
  size_t end_ = 0;
  std::vector<uint8_t> wire_;  // scratch
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COLLECTIVES_TLS_STREAM_H_

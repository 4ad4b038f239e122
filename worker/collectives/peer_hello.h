#ifndef SYNCLINE_WORKER_COLLECTIVES_PEER_HELLO_H_
#define SYNCLINE_WORKER_COLLECTIVES_PEER_HELLO_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace syncline::worker {

// The first bytes of a connection: whose it is. The layout is drawn in
// worker/collectives/README.md.
struct PeerHello {
  uint64_t epoch = 0;  // of the group
  uint32_t from = 0;   // a rank
  // kTokenBytes: the invitation's token, or on a connection that will be
  // encrypted TokenProof of it.
  std::string token;
};

inline constexpr size_t kHelloBytes = 64;
inline constexpr size_t kTokenBytes = 16;

// A proof, of kTokenBytes, that the caller of this rank has the token. It does
// not tell the token, because the hello is not encrypted. REQUIRES: token has
// kTokenBytes. Pure.
std::string TokenProof(absl::string_view token, uint64_t epoch, uint32_t from);
// The key of this caller's connection, of TlsStream::kKeyBytes, which follows
// from the token. REQUIRES: token has kTokenBytes. Pure.
std::string ConnectionKey(absl::string_view token, uint64_t epoch,
                          uint32_t from);

// kHelloBytes. REQUIRES: token has kTokenBytes.
std::string EncodeHello(const PeerHello& hello);
// Pure; takes any input. Errors: DataLoss: not a hello.
absl::StatusOr<PeerHello> DecodeHello(absl::string_view bytes);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COLLECTIVES_PEER_HELLO_H_

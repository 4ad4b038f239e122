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
  std::string token;   // kTokenBytes, of the invitation
};

inline constexpr size_t kHelloBytes = 64;
inline constexpr size_t kTokenBytes = 16;

// kHelloBytes. REQUIRES: token has kTokenBytes.
std::string EncodeHello(const PeerHello& hello);
// Pure; takes any input. Errors: DataLoss: not a hello.
absl::StatusOr<PeerHello> DecodeHello(absl::string_view bytes);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COLLECTIVES_PEER_HELLO_H_

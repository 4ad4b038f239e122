#include "worker/collectives/peer_hello.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "absl/strings/match.h"
#include "common/base/check.h"

namespace syncline::worker {
namespace {

constexpr absl::string_view kMagic = "SLPH";
constexpr size_t kFrom = 4;
constexpr size_t kEpoch = 8;
constexpr size_t kToken = 16;

void Append(uint64_t value, size_t bytes, std::string* out) {
  for (size_t i = 0; i < bytes; ++i) {
    out->push_back(static_cast<char>(value >> (8 * i)));
  }
}

uint64_t Read(absl::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    value |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[i]))
             << (8 * i);
  }
  return value;
}

// HMAC-SHA256 by the token: 32 bytes.
std::string Derived(absl::string_view token, absl::string_view purpose,
                    uint64_t epoch, uint32_t from) {
  std::string text(purpose);
  Append(epoch, 8, &text);
  Append(from, 4, &text);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  SYNCLINE_CHECK(HMAC(EVP_sha256(), token.data(),
                      static_cast<int>(token.size()),
                      reinterpret_cast<const unsigned char*>(text.data()),
                      text.size(), digest, &size) != nullptr);
  return std::string(reinterpret_cast<const char*>(digest), size);
}

}  // namespace

std::string TokenProof(absl::string_view token, uint64_t epoch, uint32_t from) {
  return Derived(token, "syncline hello", epoch, from).substr(0, kTokenBytes);
}

std::string ConnectionKey(absl::string_view token, uint64_t epoch,
                          uint32_t from) {
  return Derived(token, "syncline connection", epoch, from);
}

std::string EncodeHello(const PeerHello& hello) {
  SYNCLINE_CHECK(hello.token.size() == kTokenBytes);
  std::string out(kMagic);
  Append(hello.from, 4, &out);
  Append(hello.epoch, 8, &out);
  out += hello.token;
  out.resize(kHelloBytes, '\0');
  return out;
}

absl::StatusOr<PeerHello> DecodeHello(absl::string_view bytes) {
  if (bytes.size() != kHelloBytes || !absl::StartsWith(bytes, kMagic)) {
    return absl::DataLossError("not the hello of a rank");
  }
  PeerHello hello;
  hello.from = static_cast<uint32_t>(Read(bytes.substr(kFrom, 4)));
  hello.epoch = Read(bytes.substr(kEpoch, 8));
  hello.token = std::string(bytes.substr(kToken, kTokenBytes));
  for (const char c : bytes.substr(kToken + kTokenBytes)) {
    if (c != 0) return absl::DataLossError("not the hello of a rank");
  }
  return hello;
}

}  // namespace syncline::worker

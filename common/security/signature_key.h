#ifndef SYNCLINE_COMMON_SECURITY_SIGNATURE_KEY_H_
#define SYNCLINE_COMMON_SECURITY_SIGNATURE_KEY_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace syncline {

// A public key that signatures of JSON Web Tokens are checked with; RFC 7518
// names the algorithms. Hides OpenSSL. Immutable, hence thread-safe.
class SignatureKey {
 public:
  static constexpr int kRsaBitsMin = 2048;

  // RS256: RSASSA-PKCS1-v1_5 with SHA-256. `modulus` and `exponent` are
  // big-endian. Errors: InvalidArgument: no such key, or one of fewer bits.
  static absl::StatusOr<SignatureKey> Rs256(absl::string_view modulus,
                                            absl::string_view exponent);
  // ES256: ECDSA on P-256 with SHA-256. The coordinates of its point have 32
  // bytes each, big-endian. Errors: InvalidArgument: no point of that curve.
  static absl::StatusOr<SignatureKey> Es256(absl::string_view x,
                                            absl::string_view y);

  absl::string_view algorithm() const;  // "RS256"

  // Whether `signature` is that of `message` by this key. As tokens have it:
  // with ES256 two numbers of 32 bytes, r and s.
  bool Verify(absl::string_view message, absl::string_view signature) const;

 private:
  struct Key;
  explicit SignatureKey(std::shared_ptr<const Key> key)
      : key_(std::move(key)) {}

  std::shared_ptr<const Key> key_;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_SECURITY_SIGNATURE_KEY_H_

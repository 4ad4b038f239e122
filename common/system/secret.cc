#include "common/system/secret.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace syncline {
namespace {

constexpr size_t kSecretBytes = 16;

}  // namespace

absl::StatusOr<std::string> NewSecret() {
  std::string secret(kSecretBytes, '\0');
  // Up to 256 bytes come whole, or not at all if a signal comes first.
  for (;;) {
    const ssize_t read = getrandom(secret.data(), secret.size(), 0);
    if (read == static_cast<ssize_t>(secret.size())) return secret;
    if (read >= 0 || errno == EINTR) continue;
    return absl::UnavailableError(absl::StrCat(
        "the kernel gives no random bytes: ", std::strerror(errno)));
  }
}

bool SecretsEqual(absl::string_view secret, absl::string_view said) {
  if (secret.empty() || secret.size() != said.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < secret.size(); ++i) {
    difference |= static_cast<unsigned char>(secret[i] ^ said[i]);
  }
  return difference == 0;
}

}  // namespace syncline

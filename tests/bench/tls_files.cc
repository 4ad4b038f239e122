#include "tests/bench/tls_files.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/security/certificate.h"

namespace syncline {
namespace {

constexpr char kFolder[] = "SYNCLINE_BENCH_TLS";
constexpr size_t kRecordBytes = 16 << 10;

absl::StatusOr<std::shared_ptr<const TransportSecurity>> Load(
    const std::string& dir, absl::string_view name) {
  return TransportSecurity::Load(
      {absl::StrCat(dir, "/", name, ".crt"),
       absl::StrCat(dir, "/", name, ".key"), absl::StrCat(dir, "/ca.crt")},
      absl::Hours(1), absl::Now());
}

}  // namespace

TlsBenchFiles::TlsBenchFiles() {
  const absl::Time start = absl::Now() - absl::Minutes(1);
  const absl::Time end = start + absl::Hours(24);
  const auto authority = MakeAuthority("bench", start, end);
  SYNCLINE_CHECK(authority.ok());
  dir_.Write("ca.crt", authority->certificate_pem);
  for (const std::string name : {"ps", "worker"}) {
    const auto made =
        IssueCertificate(*authority, name,
                         {absl::StrCat("syncline://bench/", name)}, start, end);
    SYNCLINE_CHECK(made.ok());
    dir_.Write(name + ".crt", made->certificate_pem);
    dir_.Write(name + ".key", made->key_pem);
  }
}

absl::StatusOr<std::shared_ptr<const TransportSecurity>> TlsBenchFiles::Worker()
    const {
  return Load(dir_.path(), "worker");
}

void TlsBenchFiles::SetForServed(bool tls) const {
  if (tls) {
    setenv(kFolder, dir_.path().c_str(), /*overwrite=*/1);
  } else {
    unsetenv(kFolder);
  }
}

absl::StatusOr<std::shared_ptr<const TransportSecurity>>
TlsBenchFiles::OfServed() {
  const char* const folder = std::getenv(kFolder);
  if (folder == nullptr) return nullptr;
  return Load(folder, "ps");
}

absl::Status EncryptOnce(absl::string_view bytes) {
  static constexpr unsigned char kKey[16] = {1};
  static constexpr unsigned char kNonce[12] = {2};
  const std::unique_ptr<EVP_CIPHER_CTX, void (*)(EVP_CIPHER_CTX*)> context(
      EVP_CIPHER_CTX_new(), &EVP_CIPHER_CTX_free);
  std::vector<unsigned char> record(kRecordBytes + 16);
  for (size_t at = 0; at < bytes.size(); at += kRecordBytes) {
    const size_t count = std::min(kRecordBytes, bytes.size() - at);
    int written = 0;
    if (EVP_EncryptInit_ex(context.get(), EVP_aes_128_gcm(), nullptr, kKey,
                           kNonce) != 1 ||
        EVP_EncryptUpdate(
            context.get(), record.data(), &written,
            reinterpret_cast<const unsigned char*>(bytes.data()) + at,
            static_cast<int>(count)) != 1 ||
        EVP_EncryptFinal_ex(context.get(), record.data() + written, &written) !=
            1) {
      return absl::InternalError("AES-GCM failed");
    }
  }
  return absl::OkStatus();
}

}  // namespace syncline

#ifndef SYNCLINE_COMMON_SECURITY_CERTIFICATE_H_
#define SYNCLINE_COMMON_SECURITY_CERTIFICATE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

// X.509 certificates in PEM form. Hides OpenSSL: only certificate.cc includes
// it. All functions are thread-safe.

namespace syncline {

// No certificate, chain or key is read that is larger.
inline constexpr size_t kPemBytesMax = 1 << 20;

struct CertificateInfo {
  std::string subject;  // common name
  std::string issuer;   // common name
  bool is_authority = false;
  std::vector<std::string> uris;  // of the subject alternative names
  absl::Time not_before;
  absl::Time not_after;
  std::string sha256;  // of the DER form, in hex
};

// The first certificate in `pem`. Errors: InvalidArgument: there is none.
absl::StatusOr<CertificateInfo> ReadCertificate(absl::string_view pem);

// The SHA-256 of the DER form of the first certificate in `pem`, in hex, and
// those of the certificates that everyone can make of it without the
// authority's key: ECDSA accepts (r, order - s) where it accepts (r, s). The
// first one is CertificateInfo.sha256. The authority's curve is not in the
// certificate, so there is one for each curve that it may be on; few.
// Errors: InvalidArgument: there is no certificate; Internal: OpenSSL's.
absl::StatusOr<std::vector<std::string>> CertificateHashes(
    absl::string_view pem);

// Errors: InvalidArgument: one of the two cannot be read, or the key is
// another certificate's.
absl::Status CheckKeyMatches(absl::string_view certificate_pem,
                             absl::string_view key_pem);

// Errors: PermissionDenied: no certificate in `authorities_pem` has signed
// `certificate_pem`, or it is not valid at `now`; InvalidArgument.
absl::Status CheckIssuedBy(absl::string_view certificate_pem,
                           absl::string_view authorities_pem, absl::Time now);

struct CertificateAndKey {
  std::string certificate_pem;
  std::string key_pem;
};

// A new authority with a P-256 key that signs itself. Errors: Internal:
// OpenSSL's.
absl::StatusOr<CertificateAndKey> MakeAuthority(absl::string_view common_name,
                                                absl::Time not_before,
                                                absl::Time not_after);

// A certificate for both ends of a connection, with a new P-256 key. `uris`
// become its subject alternative names. Errors: InvalidArgument: `authority`
// cannot be read or is no authority; Internal: OpenSSL's.
absl::StatusOr<CertificateAndKey> IssueCertificate(
    const CertificateAndKey& authority, absl::string_view common_name,
    absl::Span<const std::string> uris, absl::Time not_before,
    absl::Time not_after);

// In hex.
std::string Sha256Hex(absl::string_view bytes);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_SECURITY_CERTIFICATE_H_

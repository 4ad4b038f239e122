#include "common/rpc/certificate_ages.h"

#include "absl/strings/str_cat.h"
#include "common/security/certificate.h"

namespace syncline {

absl::Status CertificateAges::Check(absl::string_view pem, absl::Time now) {
  const auto expiry = ExpiryOf(pem);
  if (!expiry.ok()) {
    return absl::UnauthenticatedError(
        absl::StrCat("the caller's certificate: ", expiry.status().message()));
  }
  if (now < *expiry) return absl::OkStatus();
  return absl::UnauthenticatedError(absl::StrCat(
      "the caller's certificate ended at ",
      absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", *expiry, absl::UTCTimeZone())));
}

absl::StatusOr<absl::Time> CertificateAges::ExpiryOf(absl::string_view pem) {
  {
    MutexLock lock(&mu_);
    const auto known = expiries_.find(pem);
    if (known != expiries_.end()) return known->second;
  }
  const auto info = ReadCertificate(pem);
  if (!info.ok()) return info.status();
  if (pem.size() <= kRememberedBytesMax) {
    MutexLock lock(&mu_);
    if (expiries_.size() >= kEntriesMax) expiries_.clear();
    expiries_.insert_or_assign(std::string(pem), info->not_after);
  }
  return info->not_after;
}

}  // namespace syncline

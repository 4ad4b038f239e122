#ifndef SYNCLINE_COMMON_SECURITY_REVOKED_CERTIFICATES_H_
#define SYNCLINE_COMMON_SECURITY_REVOKED_CERTIFICATES_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/security/reloaded_file.h"

namespace syncline {

// A file of certificates that count no more, a line for each: the SHA-256 of
// its DER form in hex, as `synctl certs show` prints it, with or without
// colons. Blank lines and what follows a # are skipped. Its line stands for all
// of CertificateHashes: its holder can make a certificate of another hash of
// it, without the authority. The file is read again within kLookPeriod of a
// change, as ReloadedFile says: a file that cannot be used brings no
// certificate back. A warning says how many lines are gone.
// Thread-safe.
class RevokedCertificates {
 public:
  static constexpr absl::Duration kLookPeriod = absl::Seconds(1);

  // Errors: InvalidArgument, naming path and line; those of reading the file.
  static absl::StatusOr<std::shared_ptr<RevokedCertificates>> Open(
      const std::string& path);

  // `pem` is a peer's certificate, `now` by the monotonic clock. A certificate
  // that was seen is not parsed again. Errors: Unauthenticated: it is revoked,
  // or no certificate.
  absl::Status Check(absl::string_view pem, absl::Time now)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Whether the file, as it is now, can be used; else older lines count.
  bool IsFileUsable() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  explicit RevokedCertificates(const std::string& path);
  // Errors: ReloadedFile's; none after the first OK.
  absl::Status Read() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex mu_;
  ReloadedFile file_ ABSL_GUARDED_BY(mu_);
  absl::Time looked_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  absl::flat_hash_set<std::string> hashes_ ABSL_GUARDED_BY(mu_);
  // CertificateHashes of what was seen, by the whole text; bounded.
  absl::flat_hash_map<std::string, std::vector<std::string>> seen_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_SECURITY_REVOKED_CERTIFICATES_H_

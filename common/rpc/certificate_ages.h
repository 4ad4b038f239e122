#ifndef SYNCLINE_COMMON_RPC_CERTIFICATE_AGES_H_
#define SYNCLINE_COMMON_RPC_CERTIFICATE_AGES_H_

#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace syncline {

// Whether the certificates of callers have ended. A handshake checks that too,
// but not where it resumes an earlier TLS session: then OpenSSL verifies
// nothing again. Remembers what it has parsed, of at most kEntriesMax
// certificates of at most kRememberedBytesMax; one more, and it forgets all and
// parses again, so the answers are the same. Nobody is warned from here: each
// process tells of the end of its own certificate. Thread-safe.
class CertificateAges {
 public:
  // Twice the members that a cluster may have, as RevokedCertificates: with
  // fewer a large cluster would parse a certificate for each call.
  static constexpr size_t kEntriesMax = 8192;
  static constexpr size_t kRememberedBytesMax = 8 << 10;

  // `pem` is a caller's certificate, `now` by the wall clock. Errors:
  // Unauthenticated: it ended at or before `now`, or is none.
  absl::Status Check(absl::string_view pem, absl::Time now)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::StatusOr<absl::Time> ExpiryOf(absl::string_view pem)
      ABSL_LOCKS_EXCLUDED(mu_);

  Mutex mu_;
  // By the whole text: equal hashes are no proof.
  absl::flat_hash_map<std::string, absl::Time> expiries_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_RPC_CERTIFICATE_AGES_H_

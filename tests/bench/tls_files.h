#ifndef SYNCLINE_TESTS_BENCH_TLS_FILES_H_
#define SYNCLINE_TESTS_BENCH_TLS_FILES_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/rpc/transport_security.h"
#include "tests/testing/temp_dir.h"

namespace syncline {

// Certificates of a worker and of a ps, in a folder of their own.
class TlsBenchFiles {
 public:
  TlsBenchFiles();
  ~TlsBenchFiles() { SetForServed(false); }

  // For this process.
  absl::StatusOr<std::shared_ptr<const TransportSecurity>> Worker() const;
  // Whether peers that are started from now on (serve.h) speak TLS.
  void SetForServed(bool tls) const;
  // In such a peer: its security, or null.
  static absl::StatusOr<std::shared_ptr<const TransportSecurity>> OfServed();

 private:
  const TempDir dir_;
};

// Encrypts `bytes` in records of 16 KiB as TLS does, and drops the result.
absl::Status EncryptOnce(absl::string_view bytes);

}  // namespace syncline

#endif  // SYNCLINE_TESTS_BENCH_TLS_FILES_H_

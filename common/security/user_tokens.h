#ifndef SYNCLINE_COMMON_SECURITY_USER_TOKENS_H_
#define SYNCLINE_COMMON_SECURITY_USER_TOKENS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/security/reloaded_file.h"

namespace syncline {

// The rights of a person at the scheduler. A role has the rights of all roles
// before it.
enum class UserRole { kViewer, kSubmitter, kOperator, kAdmin };
absl::string_view UserRoleName(UserRole role);  // "viewer"
// Errors: InvalidArgument, listing the roles.
absl::StatusOr<UserRole> ParseUserRole(absl::string_view name);

// The part of the cluster that a method of Jobs shows or changes. It matters
// to callers that do not see all jobs.
enum class MethodScope {
  kJob,      // the job that the request names; UserGate checks access to it
  kOwn,      // the caller's jobs; the method's handler looks at the caller
  kCluster,  // the whole cluster; callers of a tenant are refused
};

// The rule for a method of Jobs: `path` is its name in gRPC, `least` the lowest
// role that may call it. A method without a row in the table in user_tokens.cc
// needs an admin who is of no tenant.
struct MethodRule {
  absl::string_view path;
  UserRole least = UserRole::kAdmin;
  MethodScope scope = MethodScope::kCluster;
};
MethodRule RuleOf(absl::string_view path);
inline UserRole LeastRole(absl::string_view path) { return RuleOf(path).least; }

// A tenant's name is also the name of folders: CheckSecurityName holds for it,
// and it does not begin with a dot. Errors: InvalidArgument.
absl::Status CheckTenantName(absl::string_view name);

// A line of a token file:
//
//   NAME ROLE EXPIRY SHA256 [tenant=TENANT]
//   alice operator 2027-01-31T00:00:00Z 9f86d081884c7d659a2feaa0c55ad015...
//   bob submitter never 60303ae22b998861bce3b28f33eec1be... tenant=acme
//
// EXPIRY may be "never". A token with a tenant shows the jobs of that tenant
// and no others. Without a tenant, an admin or operator sees all jobs; a
// submitter or viewer sees the jobs of no tenant. Blank lines and lines with #
// at the start are skipped.
//
// The file has hashes, no tokens. A token has 256 random bits, so nobody
// guesses it. A slow hash protects passwords, which people choose; here it
// would only cost the scheduler time.
struct TokenEntry {
  std::string name;
  UserRole role = UserRole::kViewer;
  absl::Time expiry = absl::InfiniteFuture();
  std::string sha256;       // of the token, 64 hex digits
  std::string tenant = {};  // empty: none

  bool SeesAllJobs() const {
    return tenant.empty() && role >= UserRole::kOperator;
  }
};

inline constexpr size_t kTokenFileBytesMax = 1 << 20;

// Errors: InvalidArgument, naming the line: a bad name, a name that occurs
// twice, an unknown role, a bad time, a bad hash.
absl::StatusOr<std::vector<TokenEntry>> ParseTokens(absl::string_view text);
std::string FormatTokens(const std::vector<TokenEntry>& entries);

// A new token: "synt_" and 64 hex digits. Errors: Unavailable: the kernel gives
// no random numbers.
absl::StatusOr<std::string> NewToken();
std::string HashToken(absl::string_view token);

// OK: the bearer of `entry`'s token may call the method `path`. Errors:
// PermissionDenied: the role is too low (the message names the role that is
// needed), or the method is not for tenants.
absl::Status CheckRole(const TokenEntry& entry, absl::string_view path);

// The tokens of a file, as ReloadedFile has it: a change counts at the next
// call; a file that cannot be used is logged, and the tokens stay as they were.
// Thread-safe.
class UserTokens {
 public:
  // Errors: as ParseTokens; InvalidArgument: the file is empty; those of
  // reading it.
  static absl::StatusOr<std::unique_ptr<UserTokens>> Open(
      const std::string& path);

  // The bearer of the token; `now` by the wall clock. Errors: Unauthenticated:
  // no token, an unknown or an expired one.
  absl::StatusOr<TokenEntry> Find(absl::string_view token, absl::Time now)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Find and CheckRole.
  absl::StatusOr<TokenEntry> Check(absl::string_view path,
                                   absl::string_view token, absl::Time now)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Whether the file, as it is now, names a tenant.
  bool HasTenants() ABSL_LOCKS_EXCLUDED(mu_);

  // Whether the file, as it is now, can be used; else older tokens count.
  bool IsFileUsable() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  explicit UserTokens(const std::string& path)
      : file_(path, kTokenFileBytesMax, "tokens") {}
  // Errors: ReloadedFile's; none after the first OK.
  absl::Status ReadLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex mu_;
  ReloadedFile file_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, TokenEntry> by_hash_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_SECURITY_USER_TOKENS_H_

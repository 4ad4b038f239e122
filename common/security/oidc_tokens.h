#ifndef SYNCLINE_COMMON_SECURITY_OIDC_TOKENS_H_
#define SYNCLINE_COMMON_SECURITY_OIDC_TOKENS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/security/reloaded_file.h"
#include "common/security/signature_key.h"
#include "common/security/user_tokens.h"

namespace syncline {

// A key of a JWKS file (RFC 7517).
struct WebKey {
  std::string id;  // kid; may be empty
  SignatureKey key;
};
inline constexpr size_t kJwksBytesMax = 1 << 20;

struct WebKeySet {
  // Each checks RS256 or ES256 signatures.
  std::vector<WebKey> keys;
  // A line for each other key, with its line in the text, its id and the
  // reason: it is broken, for another use, or has the id of one before it.
  std::vector<std::string> skipped;
};
// With `may_be_empty` a list from which the keys were taken out is a set of
// none: it is empty, or has keys for other purposes alone. Errors:
// InvalidArgument: no JSON (naming line and column), no object with a list
// "keys", no key that can be used.
absl::StatusOr<WebKeySet> ParseWebKeys(absl::string_view text,
                                       bool may_be_empty = false);

// Tokens that an OpenID Connect issuer has signed for people: JSON Web Tokens
// (RFC 7519) in compact form. A token becomes what a line of a token file is:
//
//   name    "oidc:" and the claim sub
//   role    the claim `role_claim`, a string or a list of them: the highest of
//           viewer, submitter, operator and admin that it has, each also as
//           "syncline-viewer" and so on
//   tenant  the claim `tenant_claim`, a string; without it: none
//   expiry  exp
//
// Thread-safe.
class OidcTokens {
 public:
  struct Options {
    std::string issuer;     // the claim iss must be this
    std::string audience;   // the claim aud must be or have this
    std::string keys_file;  // JWKS, as ReloadedFile
    std::string role_claim = "syncline_role";
    std::string tenant_claim = "syncline_tenant";
  };
  // Errors: ParseWebKeys' with the path, and those of reading the file. From
  // then on a file that cannot be used is logged, and the keys stay; a list of
  // which all keys are gone is taken, and lets nobody in.
  static absl::StatusOr<std::unique_ptr<OidcTokens>> Open(
      const Options& options);

  // True if a token looks like a JSON Web Token: three parts.
  static bool IsWebToken(absl::string_view token);

  // The bearer of a token; `now` by the wall clock. An unsigned token (alg
  // "none") and one that is signed with a shared secret (HS256) are refused.
  // Errors: Unauthenticated, naming the part or the claim that is wrong.
  absl::StatusOr<TokenEntry> Find(absl::string_view token, absl::Time now)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Whether the file of keys, as it is now, can be used; else older keys count.
  bool IsFileUsable() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  explicit OidcTokens(const Options& options)
      : options_(options),
        file_(options.keys_file, kJwksBytesMax, "keys of the issuer") {}
  // As the file says now. Errors: ReloadedFile's.
  absl::StatusOr<std::shared_ptr<const std::vector<WebKey>>> Keys()
      ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  Mutex mu_;
  ReloadedFile file_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<const std::vector<WebKey>> keys_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_SECURITY_OIDC_TOKENS_H_

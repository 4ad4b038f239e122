// Goal: no token and no file of keys, whatever its bytes, crashes the
// scheduler, and only a token that its issuer has signed, with claims that are
// good, lets somebody in. Method: the first byte says what the rest is: a file
// of keys, a token, or a header and claims (on lines of their own), which this
// target signs.

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/security/oidc_tokens.h"
#include "common/system/file.h"
#include "tests/testing/web_token_signer.h"

namespace syncline {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'900'000'000);

// An issuer with one key, and what the scheduler knows of it.
struct Issuer {
  Issuer() {
    std::string folder = "/tmp/syncline-web-token-fuzz-XXXXXX";
    SYNCLINE_CHECK(mkdtemp(folder.data()) != nullptr);
    const std::string path = folder + "/jwks.json";
    SYNCLINE_CHECK(
        WriteFileAtomically(path, testing::Jwks({signer.Jwk("e")})).ok());
    auto opened = OidcTokens::Open({.issuer = "https://login.example",
                                    .audience = "syncline",
                                    .keys_file = path});
    SYNCLINE_CHECK(opened.ok());
    tokens = *std::move(opened);
    // The keys stay as they were.
    SYNCLINE_CHECK(RemoveTree(folder).ok());
  }
  const testing::WebTokenSigner signer = testing::WebTokenSigner::Es256();
  std::unique_ptr<OidcTokens> tokens;
};

void CheckKeys(absl::string_view text) {
  const auto set = ParseWebKeys(text);
  if (!set.ok()) return;
  SYNCLINE_CHECK(!set->keys.empty());
  for (const WebKey& key : set->keys) {
    SYNCLINE_CHECK(!key.key.Verify("text", "signature"));
  }
}

void CheckEntry(const absl::StatusOr<TokenEntry>& entry) {
  if (!entry.ok()) return;
  SYNCLINE_CHECK(entry->name.size() > 5 && entry->name.substr(0, 5) == "oidc:");
  SYNCLINE_CHECK(entry->expiry > kNow);
  SYNCLINE_CHECK(entry->tenant.empty() || CheckTenantName(entry->tenant).ok());
}

void Run(absl::string_view input) {
  // Never destroyed.
  static const auto* const issuer = new Issuer;
  if (input.empty()) return;
  const char kind = input[0];
  input.remove_prefix(1);
  if (kind == 'k') return CheckKeys(input);
  if (kind == 't') {
    // Nobody guesses a signature.
    SYNCLINE_CHECK(!issuer->tokens->Find(input, kNow).ok());
    return;
  }
  const size_t end = input.find('\n');
  if (end == input.npos) return;
  CheckEntry(issuer->tokens->Find(
      issuer->signer.Token(std::string(input.substr(0, end)),
                           std::string(input.substr(end + 1))),
      kNow));
}

}  // namespace
}  // namespace syncline

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  syncline::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}

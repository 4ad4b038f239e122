#include "common/security/oidc_tokens.h"

#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/job/strict_json.h"
#include "common/system/log.h"
#include "google/protobuf/struct.pb.h"

namespace syncline {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;

// The bytes of a token: gRPC takes about as many as metadata.
constexpr size_t kTokenBytesMax = 8 << 10;
// Clocks of two machines differ by so much: a token is taken that begins later.
constexpr absl::Duration kClockSkew = absl::Seconds(30);
// Seconds since 1970 that are dates, up to the year 9999.
constexpr double kSecondsMax = 253402300799;
constexpr char kRolePrefix[] = "syncline-";

absl::Status Refused(absl::string_view what) {
  return absl::UnauthenticatedError(absl::StrCat("the token ", what));
}

// base64url without padding, RFC 7515.
std::optional<std::string> Decode(absl::string_view text) {
  const bool plain = absl::c_all_of(text, [](char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '_';
  });
  std::string decoded;
  if (!plain || text.size() % 4 == 1 ||
      !absl::WebSafeBase64Unescape(text, &decoded)) {
    return std::nullopt;
  }
  // One text for the same bytes: none in which the last character's unused bits
  // are set.
  std::string again;
  absl::WebSafeBase64Escape(decoded, &again);
  if (again != text) return std::nullopt;
  return decoded;
}

// No token or key set is deeper; the parser's time grows with the square of it.
constexpr int kDepthMax = 16;
// Lines in the log about one version of the file.
constexpr size_t kSkippedLogged = 20;

// Errors: InvalidArgument, "line:column: what is wrong".
absl::StatusOr<Struct> ParseObject(absl::string_view text) {
  SYNCLINE_ASSIGN_OR_RETURN(Value value,
                            ParseStrictJson(text, {.bytes_max = kJwksBytesMax,
                                                   .depth_max = kDepthMax}));
  if (value.kind_case() != Value::kStructValue) {
    return absl::InvalidArgumentError("1:1: no JSON object");
  }
  return std::move(*value.mutable_struct_value());
}

// The lines on which the objects in the list "keys" of `json` begin, in order.
// REQUIRES: `json` is an object that ParseObject takes.
std::vector<int> LinesOfKeys(absl::string_view json) {
  std::vector<int> lines;
  int line = 1;
  int depth = 0;
  bool is_in_keys = false;
  absl::string_view last_string;  // with its quotes
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (c == '"') {
      const size_t begin = i;
      for (++i; json[i] != '"'; ++i) i += json[i] == '\\' ? 1 : 0;
      last_string = json.substr(begin, i + 1 - begin);
      continue;
    }
    if (c == '\n') ++line;
    if (c == '[' && depth == 1) is_in_keys = last_string == "\"keys\"";
    if (c == '{' && depth == 2 && is_in_keys) lines.push_back(line);
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
  }
  return lines;
}

const Value* Find(const Struct& object, const std::string& name) {
  const auto found = object.fields().find(name);
  return found == object.fields().end() ? nullptr : &found->second;
}

// Empty: there is none, or it is no string.
std::string StringOf(const Struct& object, const std::string& name) {
  const Value* const value = Find(object, name);
  return value == nullptr ? "" : value->string_value();
}

// Of a claim that is a string or a list of strings.
std::vector<std::string> StringsOf(const Value* value) {
  std::vector<std::string> strings;
  if (value == nullptr) return strings;
  if (value->kind_case() == Value::kStringValue) {
    strings.push_back(value->string_value());
  }
  for (const Value& one : value->list_value().values()) {
    if (one.kind_case() == Value::kStringValue) {
      strings.push_back(one.string_value());
    }
  }
  return strings;
}

// None: it is there and no time.
std::optional<absl::Time> TimeOf(const Value& claim) {
  const double seconds = claim.number_value();
  if (claim.kind_case() != Value::kNumberValue || !std::isfinite(seconds) ||
      seconds < 0 || seconds > kSecondsMax) {
    return std::nullopt;
  }
  return absl::UnixEpoch() + absl::Seconds(seconds);
}

// Null: not of a kind that is known here.
absl::StatusOr<std::optional<SignatureKey>> ParseKey(const Struct& object) {
  const std::string use = StringOf(object, "use");
  const std::string algorithm = StringOf(object, "alg");
  const auto part = [&](const char* name) {
    return Decode(StringOf(object, name)).value_or("");
  };
  const auto is_for = [&](absl::string_view known) {
    return (use.empty() || use == "sig") &&
           (algorithm.empty() || algorithm == known);
  };
  const std::string kind = StringOf(object, "kty");
  if (kind == "RSA" && is_for("RS256")) {
    SYNCLINE_ASSIGN_OR_RETURN(SignatureKey key,
                              SignatureKey::Rs256(part("n"), part("e")));
    return std::optional<SignatureKey>(std::move(key));
  }
  if (kind == "EC" && StringOf(object, "crv") == "P-256" && is_for("ES256")) {
    SYNCLINE_ASSIGN_OR_RETURN(SignatureKey key,
                              SignatureKey::Es256(part("x"), part("y")));
    return std::optional<SignatureKey>(std::move(key));
  }
  return std::optional<SignatureKey>();
}

// The three parts of a token, decoded; `signed_text` is what is signed.
struct WebToken {
  Struct header;
  Struct claims;
  std::string signature;
  absl::string_view signed_text;
};

absl::StatusOr<WebToken> ParseWebToken(absl::string_view token) {
  if (token.size() > kTokenBytesMax) {
    return Refused(absl::StrCat("has ", token.size(), " bytes, more than ",
                                kTokenBytesMax));
  }
  const std::vector<absl::string_view> parts = absl::StrSplit(token, '.');
  if (parts.size() != 3) return Refused("is no JSON Web Token of three parts");
  WebToken parsed;
  const auto header = Decode(parts[0]);
  const auto claims = Decode(parts[1]);
  auto signature = Decode(parts[2]);
  if (!header.has_value() || !claims.has_value() || !signature.has_value()) {
    return Refused("has a part that is not in base64url");
  }
  auto header_object = ParseObject(*header);
  if (!header_object.ok()) {
    return Refused(absl::StrCat("has no JSON object as its header: ",
                                Printable(header_object.status().message())));
  }
  auto claims_object = ParseObject(*claims);
  if (!claims_object.ok()) {
    return Refused(absl::StrCat("has no JSON object as its claims: ",
                                Printable(claims_object.status().message())));
  }
  parsed.header = *std::move(header_object);
  parsed.claims = *std::move(claims_object);
  parsed.signature = *std::move(signature);
  parsed.signed_text = token.substr(0, parts[0].size() + 1 + parts[1].size());
  return parsed;
}

absl::Status CheckSignature(const WebToken& token,
                            const std::vector<WebKey>& keys) {
  const std::string algorithm = StringOf(token.header, "alg");
  if (algorithm != "RS256" && algorithm != "ES256") {
    return Refused(absl::StrCat("has alg \"", Printable(algorithm),
                                "\"; only RS256 and ES256 are taken"));
  }
  if (Find(token.header, "crit") != nullptr) {
    return Refused("has crit in its header, which nothing here understands");
  }
  const std::string id = StringOf(token.header, "kid");
  bool found = false;
  for (const WebKey& key : keys) {
    if (!id.empty() && key.id != id) continue;
    if (key.key.algorithm() != algorithm) continue;
    found = true;
    if (key.key.Verify(token.signed_text, token.signature)) {
      return absl::OkStatus();
    }
  }
  if (found) return Refused("has a wrong signature");
  return Refused(absl::StrCat("has kid \"", Printable(id), "\" and alg ",
                              algorithm, ", and the scheduler's file of the ",
                              "issuer's keys has no such key"));
}

// Roles that the claim has; none: it has no known one.
std::optional<UserRole> HighestRole(const Value* claim) {
  std::optional<UserRole> highest;
  for (const std::string& said : StringsOf(claim)) {
    const auto role = ParseUserRole(absl::StripPrefix(said, kRolePrefix));
    if (role.ok() && (!highest.has_value() || *role > *highest)) {
      highest = *role;
    }
  }
  return highest;
}

absl::StatusOr<TokenEntry> CheckClaims(const Struct& claims,
                                       const OidcTokens::Options& options,
                                       absl::Time now) {
  const std::string issuer = StringOf(claims, "iss");
  if (issuer != options.issuer) {
    return Refused(absl::StrCat("has iss \"", Printable(issuer),
                                "\", which is not ", options.issuer));
  }
  if (!absl::c_linear_search(StringsOf(Find(claims, "aud")),
                             options.audience)) {
    return Refused(
        absl::StrCat("has no aud that is ", Printable(options.audience)));
  }
  TokenEntry entry;
  const Value* const expiry = Find(claims, "exp");
  const auto expires = expiry == nullptr ? std::nullopt : TimeOf(*expiry);
  if (!expires.has_value()) return Refused("has no exp that is a time");
  entry.expiry = *expires;
  if (entry.expiry <= now) {
    return Refused(
        absl::StrCat("has expired: exp is ",
                     absl::FormatTime(absl::RFC3339_sec, entry.expiry,
                                      absl::UTCTimeZone())));
  }
  if (const Value* const begin = Find(claims, "nbf"); begin != nullptr) {
    const auto begins = TimeOf(*begin);
    if (!begins.has_value()) return Refused("has an nbf that is no time");
    if (*begins > now + kClockSkew) {
      return Refused(absl::StrCat(
          "is not valid yet: nbf is ",
          absl::FormatTime(absl::RFC3339_sec, *begins, absl::UTCTimeZone())));
    }
  }
  const std::string subject = StringOf(claims, "sub");
  if (subject.empty()) return Refused("has no sub");
  entry.name = absl::StrCat("oidc:", subject);
  const auto role = HighestRole(Find(claims, options.role_claim));
  if (!role.has_value()) {
    return Refused(absl::StrCat("has no ", Printable(options.role_claim),
                                " that is viewer, submitter, operator or "
                                "admin"));
  }
  entry.role = *role;
  if (const Value* const tenant = Find(claims, options.tenant_claim);
      tenant != nullptr) {
    if (tenant->kind_case() != Value::kStringValue) {
      return Refused(absl::StrCat("has a ", Printable(options.tenant_claim),
                                  " that is no text: it names one tenant"));
    }
    entry.tenant = tenant->string_value();
    const absl::Status named = CheckTenantName(entry.tenant);
    if (!named.ok()) {
      return Refused(absl::StrCat("has a ", Printable(options.tenant_claim),
                                  " that is none: ", named.message()));
    }
  }
  return entry;
}

}  // namespace

absl::StatusOr<WebKeySet> ParseWebKeys(absl::string_view text,
                                       bool may_be_empty) {
  SYNCLINE_ASSIGN_OR_RETURN(const Struct object, ParseObject(text));
  const Value* const list = Find(object, "keys");
  if (list == nullptr || list->kind_case() != Value::kListValue) {
    return absl::InvalidArgumentError("no JSON object with a list \"keys\"");
  }
  const std::vector<int> lines = LinesOfKeys(text);
  WebKeySet set;
  std::set<std::string> ids;
  size_t objects = 0;
  bool has_broken = false;
  for (const Value& value : list->list_value().values()) {
    const bool is_object = value.kind_case() == Value::kStructValue;
    const size_t line_index = objects;
    objects += is_object ? 1 : 0;
    const std::string id = StringOf(value.struct_value(), "kid");
    const auto skip = [&](absl::string_view why) {
      set.skipped.push_back(
          absl::StrCat(is_object && line_index < lines.size()
                           ? absl::StrCat("line ", lines[line_index], ": ")
                           : "",
                       "the key \"", Printable(id), "\": ", why));
    };
    auto key = ParseKey(value.struct_value());
    if (!key.ok()) {
      has_broken = true;
      skip(key.status().message());
    } else if (!key->has_value()) {
      skip("it is for no signature by RS256 or ES256");
    } else if (!id.empty() && !ids.insert(id).second) {
      skip("a key before it has the same kid");
    } else {
      set.keys.push_back({id, **std::move(key)});
    }
  }
  // A typing error in the only key takes no key out.
  if (set.keys.empty() && (has_broken || !may_be_empty)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no key for RS256 or ES256 in it", set.skipped.empty() ? "" : "; ",
        set.skipped.empty() ? "" : set.skipped.front()));
  }
  return set;
}

absl::StatusOr<std::unique_ptr<OidcTokens>> OidcTokens::Open(
    const Options& options) {
  auto tokens = absl::WrapUnique(new OidcTokens(options));
  SYNCLINE_RETURN_IF_ERROR(tokens->Keys().status());
  return tokens;
}

bool OidcTokens::IsWebToken(absl::string_view token) {
  return absl::c_count(token, '.') == 2;
}

absl::StatusOr<std::shared_ptr<const std::vector<WebKey>>> OidcTokens::Keys() {
  MutexLock lock(&mu_);
  std::optional<WebKeySet> read;
  // Keys of a leak are revoked by taking them out.
  const bool may_be_empty = keys_ != nullptr;
  SYNCLINE_RETURN_IF_ERROR(
      file_.Look([&](absl::string_view text) -> absl::Status {
        SYNCLINE_ASSIGN_OR_RETURN(read, ParseWebKeys(text, may_be_empty));
        return absl::OkStatus();
      }));
  if (!read.has_value()) return keys_;
  keys_ = std::make_shared<const std::vector<WebKey>>(std::move(read->keys));
  if (keys_->empty()) {
    LogWarning("the issuer has no keys any more: its tokens let nobody in")
        .Field("file", file_.path());
  }
  for (size_t i = 0; i < read->skipped.size() && i < kSkippedLogged; ++i) {
    LogWarning("a key of the issuer is not used")
        .Field("file", file_.path())
        .Field("why", read->skipped[i]);
  }
  if (read->skipped.size() > kSkippedLogged) {
    LogWarning("more keys of the issuer are not used")
        .Field("file", file_.path())
        .Field("keys", read->skipped.size() - kSkippedLogged);
  }
  return keys_;
}

bool OidcTokens::IsFileUsable() {
  if (!Keys().ok()) return false;
  MutexLock lock(&mu_);
  return file_.is_usable();
}

absl::StatusOr<TokenEntry> OidcTokens::Find(absl::string_view token,
                                            absl::Time now) {
  SYNCLINE_ASSIGN_OR_RETURN(const auto keys, Keys());
  SYNCLINE_ASSIGN_OR_RETURN(const WebToken parsed, ParseWebToken(token));
  // Before anything that it says is believed.
  SYNCLINE_RETURN_IF_ERROR(CheckSignature(parsed, *keys));
  return CheckClaims(parsed.claims, options_, now);
}

}  // namespace syncline

#include "common/security/user_tokens.h"

#include <array>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/security/certificate.h"
#include "common/security/peer_identity.h"
#include "common/system/secret.h"

namespace syncline {
namespace {

constexpr char kPrefix[] = "synt_";
constexpr char kNever[] = "never";
constexpr size_t kTokenBytesMax = 256;

constexpr std::array<std::pair<UserRole, absl::string_view>, 4> kRoles = {{
    {UserRole::kViewer, "viewer"},
    {UserRole::kSubmitter, "submitter"},
    {UserRole::kOperator, "operator"},
    {UserRole::kAdmin, "admin"},
}};

constexpr char kTenant[] = "tenant=";

// A caller that may cancel may cancel every job that it sees.
constexpr MethodRule kMethods[] = {
    {"/syncline.Jobs/Get", UserRole::kViewer, MethodScope::kJob},
    {"/syncline.Jobs/Watch", UserRole::kViewer, MethodScope::kJob},
    {"/syncline.Jobs/GetTables", UserRole::kViewer, MethodScope::kJob},
    {"/syncline.Jobs/Download", UserRole::kViewer, MethodScope::kJob},
    {"/syncline.Jobs/Events", UserRole::kViewer, MethodScope::kJob},
    {"/syncline.Jobs/Logs", UserRole::kViewer, MethodScope::kJob},
    {"/syncline.Jobs/List", UserRole::kViewer, MethodScope::kOwn},
    {"/syncline.Jobs/GetCluster", UserRole::kViewer, MethodScope::kOwn},
    {"/syncline.Jobs/Submit", UserRole::kSubmitter, MethodScope::kOwn},
    {"/syncline.Jobs/Profile", UserRole::kSubmitter, MethodScope::kJob},
    {"/syncline.Jobs/TakeCheckpoint", UserRole::kSubmitter, MethodScope::kJob},
    {"/syncline.Jobs/ChangeRegime", UserRole::kOperator, MethodScope::kJob},
    {"/syncline.Jobs/Scale", UserRole::kOperator, MethodScope::kJob},
    {"/syncline.Jobs/Cancel", UserRole::kOperator, MethodScope::kJob},
    {"/syncline.Jobs/SetMemberUse", UserRole::kOperator, MethodScope::kCluster},
    {"/syncline.Jobs/BackupState", UserRole::kAdmin, MethodScope::kCluster},
};

absl::Status ParseLine(absl::string_view line, TokenEntry* entry) {
  const std::vector<absl::string_view> parts =
      absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  if (parts.size() != 4 &&
      (parts.size() != 5 || !absl::StartsWith(parts[4], kTenant))) {
    return absl::InvalidArgumentError(
        "not four words: NAME ROLE EXPIRY SHA256, and perhaps tenant=TENANT");
  }
  SYNCLINE_RETURN_IF_ERROR(CheckSecurityName("a token's bearer", parts[0]));
  entry->name = std::string(parts[0]);
  if (parts.size() == 5) {
    entry->tenant = std::string(absl::StripPrefix(parts[4], kTenant));
    SYNCLINE_RETURN_IF_ERROR(CheckTenantName(entry->tenant));
  }
  SYNCLINE_ASSIGN_OR_RETURN(entry->role, ParseUserRole(parts[1]));
  std::string error;
  if (parts[2] != kNever &&
      !absl::ParseTime(absl::RFC3339_sec, parts[2], &entry->expiry, &error)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", Printable(parts[2]),
        "\" is no time such as 2027-01-31T00:00:00Z, and not \"never\""));
  }
  entry->sha256 = std::string(parts[3]);
  const bool hash =
      entry->sha256.size() == 64 && absl::c_all_of(entry->sha256, [](char c) {
        return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f');
      });
  if (!hash) {
    return absl::InvalidArgumentError("the hash is not 64 small hex digits");
  }
  return absl::OkStatus();
}

}  // namespace

absl::string_view UserRoleName(UserRole role) {
  return kRoles[static_cast<size_t>(role)].second;
}

absl::StatusOr<UserRole> ParseUserRole(absl::string_view name) {
  for (const auto& [role, known] : kRoles) {
    if (name == known) return role;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", Printable(name),
                   "\" is no role: viewer, submitter, operator, admin"));
}

MethodRule RuleOf(absl::string_view path) {
  for (const MethodRule& rule : kMethods) {
    if (path == rule.path) return rule;
  }
  return MethodRule{path};
}

absl::Status CheckTenantName(absl::string_view name) {
  SYNCLINE_RETURN_IF_ERROR(CheckSecurityName("a tenant", name));
  if (name[0] != '.') return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", name, "\" is no name of a tenant: it begins with a dot"));
}

absl::StatusOr<std::vector<TokenEntry>> ParseTokens(absl::string_view text) {
  std::vector<TokenEntry> entries;
  absl::flat_hash_set<std::string> names;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    TokenEntry entry;
    SYNCLINE_RETURN_IF_ERROR(
        Annotate(ParseLine(line, &entry), absl::StrCat("line ", number)));
    if (!names.insert(entry.name).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "line ", number, ": ", entry.name, " has a token already"));
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::string FormatTokens(const std::vector<TokenEntry>& entries) {
  std::string text =
      "# Tokens of people: NAME ROLE EXPIRY SHA256 [tenant=TENANT]. `synctl "
      "token` edits it.\n";
  for (const TokenEntry& entry : entries) {
    absl::StrAppend(&text, entry.name, " ", UserRoleName(entry.role), " ",
                    entry.expiry == absl::InfiniteFuture()
                        ? kNever
                        : absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", entry.expiry,
                                           absl::UTCTimeZone()),
                    " ", entry.sha256);
    if (!entry.tenant.empty()) {
      absl::StrAppend(&text, " ", kTenant, entry.tenant);
    }
    text.push_back('\n');
  }
  return text;
}

absl::StatusOr<std::string> NewToken() {
  SYNCLINE_ASSIGN_OR_RETURN(const std::string first, NewSecret());
  SYNCLINE_ASSIGN_OR_RETURN(const std::string second, NewSecret());
  return absl::StrCat(kPrefix, absl::BytesToHexString(first),
                      absl::BytesToHexString(second));
}

std::string HashToken(absl::string_view token) { return Sha256Hex(token); }

absl::Status CheckRole(const TokenEntry& entry, absl::string_view path) {
  const MethodRule rule = RuleOf(path);
  if (entry.role < rule.least) {
    return absl::PermissionDeniedError(absl::StrCat(
        Printable(entry.name), " is a ", UserRoleName(entry.role), "; ",
        Printable(path), " needs the role ", UserRoleName(rule.least)));
  }
  if (rule.scope == MethodScope::kCluster && !entry.tenant.empty()) {
    return absl::PermissionDeniedError(absl::StrCat(
        Printable(entry.name), " is of tenant ", entry.tenant, "; ",
        Printable(path), " is about the whole cluster, and not for tenants"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<UserTokens>> UserTokens::Open(
    const std::string& path) {
  auto tokens = absl::WrapUnique(new UserTokens(path));
  MutexLock lock(&tokens->mu_);
  SYNCLINE_RETURN_IF_ERROR(tokens->ReadLocked());
  return tokens;
}

absl::Status UserTokens::ReadLocked() {
  std::optional<std::vector<TokenEntry>> read;
  SYNCLINE_RETURN_IF_ERROR(
      file_.Look([&](absl::string_view text) -> absl::Status {
        // `synctl token` writes a comment, also where no token is left.
        SYNCLINE_RETURN_IF_ERROR(CheckHasText(text, "nobody has a token"));
        SYNCLINE_ASSIGN_OR_RETURN(read, ParseTokens(text));
        return absl::OkStatus();
      }));
  if (!read.has_value()) return absl::OkStatus();
  by_hash_.clear();
  for (TokenEntry& entry : *read) {
    by_hash_.emplace(entry.sha256, std::move(entry));
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenEntry> UserTokens::Find(absl::string_view token,
                                            absl::Time now) {
  if (token.empty()) {
    return absl::UnauthenticatedError(
        "this scheduler wants a token: set SYNCLINE_TOKEN, or "
        "SYNCLINE_TOKEN_FILE to a file that has it");
  }
  MutexLock lock(&mu_);
  SYNCLINE_RETURN_IF_ERROR(ReadLocked());
  // The look-up compares hashes, so its time tells nothing about a token.
  const auto found = token.size() <= kTokenBytesMax
                         ? by_hash_.find(HashToken(token))
                         : by_hash_.end();
  if (found == by_hash_.end()) {
    return absl::UnauthenticatedError("the token is unknown, or revoked");
  }
  if (found->second.expiry <= now) {
    return absl::UnauthenticatedError(
        absl::StrCat("the token of ", found->second.name, " has expired"));
  }
  return found->second;
}

absl::StatusOr<TokenEntry> UserTokens::Check(absl::string_view path,
                                             absl::string_view token,
                                             absl::Time now) {
  SYNCLINE_ASSIGN_OR_RETURN(TokenEntry entry, Find(token, now));
  SYNCLINE_RETURN_IF_ERROR(CheckRole(entry, path));
  return entry;
}

bool UserTokens::HasTenants() {
  MutexLock lock(&mu_);
  if (!ReadLocked().ok()) return true;
  return absl::c_any_of(
      by_hash_, [](const auto& entry) { return !entry.second.tenant.empty(); });
}

bool UserTokens::IsFileUsable() {
  MutexLock lock(&mu_);
  return ReadLocked().ok() && file_.is_usable();
}

}  // namespace syncline

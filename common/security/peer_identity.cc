#include "common/security/peer_identity.h"

#include <array>
#include <cstdint>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"

namespace syncline {
namespace {

constexpr char kScheme[] = "syncline://";
constexpr size_t kNameBytesMax = 64;

constexpr std::array<std::pair<PeerRole, absl::string_view>, 6> kRoles = {{
    {PeerRole::kScheduler, "scheduler"},
    {PeerRole::kPs, "ps"},
    {PeerRole::kWorker, "worker"},
    {PeerRole::kChief, "chief"},
    {PeerRole::kEvaluator, "evaluator"},
    {PeerRole::kClient, "client"},
}};

constexpr unsigned Bit(PeerRole role) {
  return 1u << static_cast<unsigned>(role);
}
constexpr unsigned kTrainers =
    Bit(PeerRole::kWorker) | Bit(PeerRole::kChief) | Bit(PeerRole::kEvaluator);
constexpr unsigned kMembers = kTrainers | Bit(PeerRole::kPs);
constexpr unsigned kDaemons = kMembers | Bit(PeerRole::kScheduler);
constexpr unsigned kAnyone = kDaemons | Bit(PeerRole::kClient);

// The roles that may call a service or method. The first rule that fits counts.
struct Rule {
  absl::string_view prefix;
  unsigned roles;
};
constexpr Rule kRules[] = {
    {"/syncline.Jobs/", Bit(PeerRole::kClient)},
    {"/syncline.Daemons/", kMembers},
    {"/syncline.Identity/", Bit(PeerRole::kScheduler)},
    {"/syncline.MemberLogs/", Bit(PeerRole::kScheduler)},
    // Only shards sum norms with each other.
    {"/syncline.ParameterServer/FoldNorm", Bit(PeerRole::kPs)},
    {"/syncline.ParameterServer/", kMembers},
    {"/syncline.StateTransfer/", kTrainers},
    // Only shards fix with which workers a clock is applied.
    {"/syncline.Quorum/", Bit(PeerRole::kPs)},
    // Ranks of a job that trains without ps.
    {"/syncline.Peers/", kTrainers},
    {"/grpc.health.v1.Health/", kAnyone},
};

std::string RoleNames(unsigned roles) {
  std::vector<absl::string_view> names;
  for (const auto& [role, name] : kRoles) {
    if (roles & Bit(role)) names.push_back(name);
  }
  return absl::StrJoin(names, ", ");
}

bool Has(absl::Span<const PeerIdentity> identities, unsigned roles) {
  return absl::c_any_of(identities, [roles](const PeerIdentity& identity) {
    return (Bit(identity.role) & roles) != 0;
  });
}

absl::StatusOr<PeerRole> ParseRole(absl::string_view text) {
  for (const auto& [role, name] : kRoles) {
    if (text == name) return role;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", Printable(text), "\" is no role: ", RoleNames(kAnyone)));
}

}  // namespace

absl::Status CheckSecurityName(absl::string_view what, absl::string_view name) {
  const bool fits =
      !name.empty() && name.size() <= kNameBytesMax &&
      absl::c_all_of(name, [](char c) {
        return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
      });
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", Printable(name), "\" is no name of ", what, ": 1 to ",
      kNameBytesMax, " letters, digits, dots, underscores and hyphens"));
}

absl::string_view PeerRoleName(PeerRole role) {
  for (const auto& [known, name] : kRoles) {
    if (known == role) return name;
  }
  return "unknown";
}

std::string PeerIdentity::ToString() const {
  std::string text(PeerRoleName(role));
  if (index.has_value()) absl::StrAppend(&text, "/", *index);
  if (!name.empty()) absl::StrAppend(&text, "/", name);
  return text;
}

std::string PeerIdentity::ToUri() const {
  return absl::StrCat(kScheme, cluster, "/", ToString());
}

absl::StatusOr<PeerIdentity> ParseIdentity(absl::string_view cluster,
                                           absl::string_view text) {
  SYNCLINE_RETURN_IF_ERROR(CheckSecurityName("a cluster", cluster));
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '/');
  PeerIdentity identity;
  identity.cluster = std::string(cluster);
  SYNCLINE_ASSIGN_OR_RETURN(identity.role, ParseRole(parts[0]));
  if (parts.size() == 1) return identity;
  const absl::string_view rest = parts[1];
  if (parts.size() > 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", Printable(text), "\" has more parts than a role and its index"));
  }
  if (identity.role == PeerRole::kScheduler) {
    return absl::InvalidArgumentError("a scheduler has no index");
  }
  if (identity.role == PeerRole::kClient) {
    SYNCLINE_RETURN_IF_ERROR(CheckSecurityName("a client", rest));
    identity.name = std::string(rest);
    return identity;
  }
  uint32_t index = 0;
  // "03" and "+3" are other spellings of a name that is compared as text.
  if (!absl::SimpleAtoi(rest, &index) || absl::StrCat(index) != rest) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", Printable(rest), "\" is no index of a ", parts[0]));
  }
  identity.index = index;
  return identity;
}

absl::StatusOr<PeerIdentity> ParseIdentityUri(absl::string_view uri) {
  absl::string_view rest = uri;
  const size_t slash =
      absl::ConsumePrefix(&rest, kScheme) ? rest.find('/') : rest.npos;
  if (slash == rest.npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", Printable(uri), "\" is not ", kScheme,
                     "CLUSTER/ROLE or CLUSTER/ROLE/INDEX"));
  }
  return ParseIdentity(rest.substr(0, slash), rest.substr(slash + 1));
}

std::vector<PeerIdentity> IdentitiesOf(absl::string_view cluster,
                                       absl::Span<const std::string> uris) {
  std::vector<PeerIdentity> identities;
  for (const std::string& uri : uris) {
    auto identity = ParseIdentityUri(uri);
    if (identity.ok() && identity->cluster == cluster) {
      identities.push_back(*std::move(identity));
    }
  }
  return identities;
}

std::string Describe(absl::Span<const PeerIdentity> identities) {
  if (identities.empty()) return "nobody of this cluster";
  return absl::StrJoin(identities, ", ",
                       [](std::string* out, const PeerIdentity& identity) {
                         absl::StrAppend(out, identity.ToString());
                       });
}

absl::Status CheckCall(absl::string_view path,
                       absl::Span<const PeerIdentity> callers) {
  for (const Rule& rule : kRules) {
    if (!absl::StartsWith(path, rule.prefix)) continue;
    if (Has(callers, rule.roles)) return absl::OkStatus();
    return absl::PermissionDeniedError(
        absl::StrCat("the caller's certificate names ", Describe(callers), "; ",
                     Printable(path), " is for: ", RoleNames(rule.roles)));
  }
  return absl::PermissionDeniedError(
      absl::StrCat(Printable(path), " is open to nobody"));
}

absl::Status CheckTask(absl::Span<const PeerIdentity> peers,
                       absl::string_view type, std::optional<uint32_t> index) {
  for (const PeerIdentity& peer : peers) {
    if (PeerRoleName(peer.role) != type) continue;
    if (!peer.index.has_value() || peer.index == index) return absl::OkStatus();
  }
  return absl::PermissionDeniedError(absl::StrCat(
      "the certificate names ", Describe(peers), ", so it cannot register as ",
      Printable(type),
      index.has_value()
          ? absl::StrCat(":", *index)
          : " with an index of the scheduler's choice; say --task=TYPE:INDEX, "
            "or use a certificate without an index"));
}

absl::Status CheckServer(ExpectedPeer expected,
                         absl::Span<const PeerIdentity> servers) {
  const unsigned roles = expected == ExpectedPeer::kScheduler
                             ? Bit(PeerRole::kScheduler)
                         : expected == ExpectedPeer::kPs ? Bit(PeerRole::kPs)
                                                         : kDaemons;
  if (Has(servers, roles)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("the certificate of the process that answers names ",
                   Describe(servers), "; expected: ", RoleNames(roles)));
}

}  // namespace syncline

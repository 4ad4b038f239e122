#ifndef SYNCLINE_COMMON_RPC_USER_CALLS_H_
#define SYNCLINE_COMMON_RPC_USER_CALLS_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/security/oidc_tokens.h"
#include "common/security/user_tokens.h"
#include "grpcpp/client_context.h"
#include "grpcpp/security/auth_context.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/string_ref.h"

// Calls of people: the tokens that they bring along, and who they are.

namespace syncline {

using CallMetadata = std::multimap<grpc::string_ref, grpc::string_ref>;

// The tokens that this process, which hosts a scheduler, believes. Null: people
// need none. Set once, before the server starts.
void SetProcessTokens(std::shared_ptr<UserTokens> tokens);
std::shared_ptr<UserTokens> ProcessTokens();
// Likewise those of an OpenID Connect issuer; both kinds may be believed.
void SetProcessOidc(std::shared_ptr<OidcTokens> tokens);
// Whether one of the two is set.
bool PeopleNeedTokens();

// Told of every call that was refused for want of a role. Set once, before the
// server starts; called from any thread.
using OnRefused = std::function<void(
    absl::string_view who, absl::string_view path, const absl::Status& why)>;
void SetOnRefused(OnRefused on_refused);
void TellRefused(absl::string_view who, absl::string_view path,
                 const absl::Status& why);

// OK: a call of a user's service may pass, by the token in its metadata; calls
// of other services always may. Errors: those of Find of its kind of token,
// CheckRole's.
absl::Status CheckUser(absl::string_view path, const CallMetadata& metadata);

// The process's server has scheduler::UserGate, which calls CheckUser for the
// methods that `checks` names. Null: there is no gate. Set once, before the
// server starts.
using GateChecks = bool (*)(absl::string_view path);
void SetUserGate(GateChecks checks);
// CheckUser for a call whose request has not been read. Calls that the user
// gate checks pass here: it knows the job and the peer, which the audit log
// wants and gRPC does not tell here.
absl::Status CheckUserBeforeRequest(absl::string_view path,
                                    const CallMetadata& metadata);

// The token's entry: of the token file, or of the OpenID Connect issuer.
// Errors: UserTokens::Find's or OidcTokens::Find's. REQUIRES: PeopleNeedTokens.
absl::StatusOr<TokenEntry> FindBearer(absl::string_view token);

// Which jobs a caller sees.
struct JobScope {
  bool all = true;
  std::string tenant = {};  // else those of this tenant; empty: of none
  // Some tokens are those of tenants.
  bool has_tenants = false;

  bool Sees(absl::string_view tenant_of_job) const {
    return all || tenant == tenant_of_job;
  }
};
// Of the bearer of the token in `metadata`; all jobs, if people need no token.
// Errors: UserTokens::Find's or OidcTokens::Find's: the token has been revoked
// since the call began, or has expired.
absl::StatusOr<JobScope> ScopeOf(const CallMetadata& metadata);

// For a server in plain text on loopback whose users have tokens: what Insecure
// credentials do, and CheckUser before each call.
std::shared_ptr<grpc::ServerCredentials> LoopbackCredentials();

// The name under which a call's caller shares what is limited, such as streams
// of logs, with other callers: "tenant:NAME" for each bearer of a tenant's
// token, else as CallerOf.
std::string LimitNameOf(const grpc::CallbackServerContext& call);

// The caller's name: the bearer of its token, else the names in its
// certificate, else "unknown". For records.
std::string CallerOf(const CallMetadata& metadata,
                     const grpc::AuthContext* context);
std::string CallerOf(const grpc::CallbackServerContext& call);

// The token that this process's calls as a user bring along; empty: none.
void SetCallToken(std::string token);
// MakeContext with that token, for a call to `address`. Errors:
// FailedPrecondition: the token would go there in plain text, over a network.
absl::StatusOr<std::unique_ptr<grpc::ClientContext>> MakeUserContext(
    const std::string& address, absl::Time deadline);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_RPC_USER_CALLS_H_

#include "common/rpc/user_calls.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/base/host_port.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/transport_security.h"
#include "grpcpp/security/auth_metadata_processor.h"

namespace syncline {
namespace {

constexpr char kAuthorization[] = "authorization";
constexpr char kBearer[] = "Bearer ";
constexpr char kPath[] = ":path";
constexpr absl::string_view kUsersService = "/syncline.Jobs/";

// The settings that the main function of the process has made.
struct Settings {
  std::shared_ptr<UserTokens> tokens;
  std::shared_ptr<OidcTokens> oidc;
  std::shared_ptr<const OnRefused> on_refused;
  GateChecks gate_checks = nullptr;
  std::string call_token;
};
Mutex settings_mu;
Settings& Process() ABSL_EXCLUSIVE_LOCKS_REQUIRED(settings_mu) {
  // Never destroyed: threads of gRPC may outlive main().
  static auto* const settings = new Settings;
  return *settings;
}

absl::string_view Value(const CallMetadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return "";
  return absl::string_view(found->second.data(), found->second.size());
}

// Empty: the call brings none.
absl::string_view TokenOf(const CallMetadata& metadata) {
  absl::string_view token = Value(metadata, kAuthorization);
  return absl::ConsumePrefix(&token, kBearer) ? token : "";
}

std::shared_ptr<OidcTokens> ProcessOidc() {
  MutexLock lock(&settings_mu);
  return Process().oidc;
}

class UserCheck final : public grpc::AuthMetadataProcessor {
 public:
  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata,
                       grpc::AuthContext* context, OutputMetadata*,
                       OutputMetadata*) override {
    const absl::string_view path = Value(metadata, kPath);
    const absl::Status may = CheckUserBeforeRequest(path, metadata);
    if (!may.ok()) TellRefused(CallerOf(metadata, context), path, may);
    return ToGrpcStatus(may);
  }
};

}  // namespace

void SetProcessTokens(std::shared_ptr<UserTokens> tokens) {
  MutexLock lock(&settings_mu);
  Process().tokens = std::move(tokens);
}

std::shared_ptr<UserTokens> ProcessTokens() {
  MutexLock lock(&settings_mu);
  return Process().tokens;
}

void SetProcessOidc(std::shared_ptr<OidcTokens> tokens) {
  MutexLock lock(&settings_mu);
  Process().oidc = std::move(tokens);
}

bool PeopleNeedTokens() {
  MutexLock lock(&settings_mu);
  return Process().tokens != nullptr || Process().oidc != nullptr;
}

void SetOnRefused(OnRefused on_refused) {
  MutexLock lock(&settings_mu);
  Process().on_refused =
      std::make_shared<const OnRefused>(std::move(on_refused));
}

void TellRefused(absl::string_view who, absl::string_view path,
                 const absl::Status& why) {
  std::shared_ptr<const OnRefused> on_refused;
  {
    MutexLock lock(&settings_mu);
    on_refused = Process().on_refused;
  }
  if (on_refused != nullptr && *on_refused != nullptr) {
    (*on_refused)(who, path, why);
  }
}

absl::StatusOr<TokenEntry> FindBearer(absl::string_view token) {
  const auto tokens = ProcessTokens();
  const auto oidc = ProcessOidc();
  const bool is_for_oidc =
      oidc != nullptr && (tokens == nullptr || OidcTokens::IsWebToken(token));
  if (token.empty() && is_for_oidc) {
    return absl::UnauthenticatedError(
        "this scheduler wants a token of its OpenID Connect issuer: set "
        "SYNCLINE_TOKEN, or SYNCLINE_TOKEN_FILE to a file that has it");
  }
  return is_for_oidc ? oidc->Find(token, absl::Now())
                     : tokens->Find(token, absl::Now());
}

absl::Status CheckUser(absl::string_view path, const CallMetadata& metadata) {
  if (!absl::StartsWith(path, kUsersService)) return absl::OkStatus();
  if (!PeopleNeedTokens()) return absl::OkStatus();
  SYNCLINE_ASSIGN_OR_RETURN(const TokenEntry entry,
                            FindBearer(TokenOf(metadata)));
  return CheckRole(entry, path);
}

void SetUserGate(GateChecks checks) {
  MutexLock lock(&settings_mu);
  Process().gate_checks = checks;
}

absl::Status CheckUserBeforeRequest(absl::string_view path,
                                    const CallMetadata& metadata) {
  GateChecks gate_checks = nullptr;
  {
    MutexLock lock(&settings_mu);
    gate_checks = Process().gate_checks;
  }
  if (gate_checks != nullptr && gate_checks(path)) return absl::OkStatus();
  return CheckUser(path, metadata);
}

absl::StatusOr<JobScope> ScopeOf(const CallMetadata& metadata) {
  if (!PeopleNeedTokens()) return JobScope();
  SYNCLINE_ASSIGN_OR_RETURN(const TokenEntry entry,
                            FindBearer(TokenOf(metadata)));
  const auto tokens = ProcessTokens();
  // Any token of an issuer may name a tenant.
  const bool has_tenants = ProcessOidc() != nullptr || tokens->HasTenants();
  return JobScope{.all = entry.SeesAllJobs(),
                  .tenant = entry.tenant,
                  .has_tenants = has_tenants};
}

std::shared_ptr<grpc::ServerCredentials> LoopbackCredentials() {
  auto credentials = grpc::experimental::LocalServerCredentials(LOCAL_TCP);
  credentials->SetAuthMetadataProcessor(std::make_shared<UserCheck>());
  return credentials;
}

std::string CallerOf(const CallMetadata& metadata,
                     const grpc::AuthContext* context) {
  const absl::string_view token = TokenOf(metadata);
  if (PeopleNeedTokens() && !token.empty()) {
    const auto found = FindBearer(token);
    if (found.ok()) return absl::StrCat("token:", found->name);
  }
  const auto security = ProcessSecurity();
  if (security == nullptr || context == nullptr) return "unknown";
  return Describe(PeersOf(*context, security->cluster()));
}

std::string LimitNameOf(const grpc::CallbackServerContext& call) {
  const auto scope = ScopeOf(call.client_metadata());
  if (scope.ok() && !scope->tenant.empty()) {
    return absl::StrCat("tenant:", scope->tenant);
  }
  return CallerOf(call);
}

std::string CallerOf(const grpc::CallbackServerContext& call) {
  const auto context = call.auth_context();
  return CallerOf(call.client_metadata(), context.get());
}

void SetCallToken(std::string token) {
  MutexLock lock(&settings_mu);
  Process().call_token = std::move(token);
}

absl::StatusOr<std::unique_ptr<grpc::ClientContext>> MakeUserContext(
    const std::string& address, absl::Time deadline) {
  auto context = MakeContext(deadline);
  const bool is_encrypted = ProcessSecurity() != nullptr;
  MutexLock lock(&settings_mu);
  const std::string& token = Process().call_token;
  if (token.empty()) return context;
  const auto host = ParseHostPort(address);
  if (!is_encrypted && !(host.ok() && host->IsLoopback())) {
    return absl::FailedPreconditionError(
        absl::StrCat("the token would be sent in plain text to ", address,
                     "; give --tls-cert, --tls-key and --tls-ca"));
  }
  context->AddMetadata(kAuthorization, absl::StrCat(kBearer, token));
  return context;
}

}  // namespace syncline

#include "common/rpc/transport_security.h"

#include <functional>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/rpc/certificate_ages.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/user_calls.h"
#include "common/security/certificate.h"
#include "common/system/file.h"
#include "grpcpp/security/auth_metadata_processor.h"
#include "grpcpp/security/tls_certificate_verifier.h"
#include "grpcpp/security/tls_credentials_options.h"

namespace syncline {
namespace {

namespace tls = grpc::experimental;

// The names that gRPC 1.51 gives to what it finds in a peer's certificate.
constexpr char kPeerUri[] = "peer_uri";
constexpr char kPeerCertificate[] = "x509_pem_cert";
constexpr char kPathKey[] = ":path";

absl::string_view View(grpc::string_ref text) {
  return absl::string_view(text.data(), text.size());
}

// Refuses a server that is not whom the caller expects. Runs in the handshake,
// after the chain was verified.
class ServerVerifier final : public tls::ExternalCertificateVerifier {
 public:
  ServerVerifier(std::string cluster, ExpectedPeer expected,
                 std::shared_ptr<RevokedCertificates> revoked)
      : cluster_(std::move(cluster)),
        expected_(expected),
        revoked_(std::move(revoked)) {}

  bool Verify(tls::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)>,
              grpc::Status* sync_status) override {
    std::vector<std::string> uris;
    for (const grpc::string_ref& uri : request->uri_names()) {
      uris.emplace_back(uri.data(), uri.size());
    }
    absl::Status may = CheckServer(expected_, IdentitiesOf(cluster_, uris));
    if (may.ok() && revoked_ != nullptr) {
      may = revoked_->Check(View(request->peer_cert()), MonotonicNow());
    }
    *sync_status = ToGrpcStatus(may);
    return true;
  }
  void Cancel(tls::TlsCustomVerificationCheckRequest*) override {}

 private:
  const std::string cluster_;
  const ExpectedPeer expected_;
  const std::shared_ptr<RevokedCertificates> revoked_;
};

// Refuses callers that a method is not for. Runs before a call reaches its
// service.
class CallerCheck final : public grpc::AuthMetadataProcessor {
 public:
  CallerCheck(std::string cluster, std::shared_ptr<RevokedCertificates> revoked)
      : cluster_(std::move(cluster)), revoked_(std::move(revoked)) {}

  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata,
                       grpc::AuthContext* context, OutputMetadata*,
                       OutputMetadata*) override {
    const auto path = metadata.find(kPathKey);
    if (path == metadata.end()) {
      return grpc::Status(grpc::PERMISSION_DENIED, "a call without a path");
    }
    absl::Status may =
        CheckCall(View(path->second), PeersOf(*context, cluster_));
    if (may.ok()) may = ages_.Check(CertificateOf(*context), absl::Now());
    if (may.ok() && revoked_ != nullptr) {
      may = revoked_->Check(CertificateOf(*context), MonotonicNow());
    }
    if (may.ok()) may = CheckUserBeforeRequest(View(path->second), metadata);
    if (!may.ok()) {
      TellRefused(CallerOf(metadata, context), View(path->second), may);
    }
    return ToGrpcStatus(may);
  }

 private:
  const std::string cluster_;
  const std::shared_ptr<RevokedCertificates> revoked_;
  CertificateAges ages_;
};

absl::StatusOr<std::string> ReadPem(const std::string& path) {
  return ReadFile(path, kPemBytesMax);
}

Mutex process_mu;
std::shared_ptr<const TransportSecurity>& Process()
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(process_mu) {
  // Never destroyed: threads of gRPC may outlive main().
  static auto* const security = new std::shared_ptr<const TransportSecurity>;
  return *security;
}

}  // namespace

std::string CertificateOf(const grpc::AuthContext& context) {
  const auto found = context.FindPropertyValues(kPeerCertificate);
  if (found.empty()) return "";
  return std::string(found[0].data(), found[0].size());
}

absl::Status TransportSecurity::CheckRevoked(absl::string_view pem) const {
  if (revoked_ == nullptr) return absl::OkStatus();
  return revoked_->Check(pem, MonotonicNow());
}

void SetProcessSecurity(std::shared_ptr<const TransportSecurity> security) {
  MutexLock lock(&process_mu);
  Process() = std::move(security);
}

std::shared_ptr<const TransportSecurity> ProcessSecurity() {
  MutexLock lock(&process_mu);
  return Process();
}

std::vector<PeerIdentity> PeersOf(const grpc::AuthContext& context,
                                  absl::string_view cluster) {
  if (!context.IsPeerAuthenticated()) return {};
  std::vector<std::string> uris;
  for (const grpc::string_ref& uri : context.FindPropertyValues(kPeerUri)) {
    uris.emplace_back(uri.data(), uri.size());
  }
  return IdentitiesOf(cluster, uris);
}

absl::StatusOr<absl::Time> CertificateExpiry(const TlsFiles& files) {
  SYNCLINE_ASSIGN_OR_RETURN(const std::string pem, ReadPem(files.certificate));
  const auto info = ReadCertificate(pem);
  if (!info.ok()) return Annotate(info.status(), files.certificate);
  return info->not_after;
}

absl::StatusOr<std::shared_ptr<const TransportSecurity>>
TransportSecurity::Load(const TlsFiles& files,
                        absl::Duration connection_age_max, absl::Time now) {
  SYNCLINE_ASSIGN_OR_RETURN(const std::string certificate,
                            ReadPem(files.certificate));
  SYNCLINE_ASSIGN_OR_RETURN(const std::string key, ReadPem(files.key));
  SYNCLINE_ASSIGN_OR_RETURN(const std::string authority,
                            ReadPem(files.authority));
  const auto info = ReadCertificate(certificate);
  if (!info.ok()) return Annotate(info.status(), files.certificate);
  SYNCLINE_RETURN_IF_ERROR(
      Annotate(CheckKeyMatches(certificate, key), files.key));
  SYNCLINE_RETURN_IF_ERROR(Annotate(
      CheckIssuedBy(certificate, authority, now),
      absl::StrCat(files.certificate, ", by the authority ", files.authority)));
  std::vector<PeerIdentity> identities;
  for (const std::string& uri : info->uris) {
    auto identity = ParseIdentityUri(uri);
    if (!identity.ok()) continue;
    if (!identities.empty() && identities[0].cluster != identity->cluster) {
      return absl::InvalidArgumentError(
          absl::StrCat(files.certificate, ": names two clusters, ",
                       identities[0].cluster, " and ", identity->cluster));
    }
    identities.push_back(*std::move(identity));
  }
  if (identities.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        files.certificate,
        ": no URI of its subject alternative names is "
        "syncline://CLUSTER/ROLE, such as syncline://CLUSTER/worker/3; "
        "`synctl certs` makes such certificates"));
  }
  std::shared_ptr<RevokedCertificates> revoked;
  if (!files.revoked.empty()) {
    SYNCLINE_ASSIGN_OR_RETURN(revoked,
                              RevokedCertificates::Open(files.revoked));
  }
  return absl::WrapUnique(new TransportSecurity(
      files, connection_age_max, std::move(identities), std::move(revoked)));
}

TransportSecurity::TransportSecurity(
    const TlsFiles& files, absl::Duration connection_age_max,
    std::vector<PeerIdentity> identities,
    std::shared_ptr<RevokedCertificates> revoked)
    : files_(files),
      connection_age_max_(connection_age_max),
      cluster_(identities[0].cluster),
      identities_(std::move(identities)),
      revoked_(std::move(revoked)),
      provider_(std::make_shared<tls::FileWatcherCertificateProvider>(
          files.key, files.certificate, files.authority,
          absl::ToInt64Seconds(kReloadInterval))) {
  for (const ExpectedPeer expected :
       {ExpectedPeer::kMember, ExpectedPeer::kScheduler, ExpectedPeer::kPs}) {
    tls::TlsChannelCredentialsOptions options;
    options.set_certificate_provider(provider_);
    options.watch_root_certs();
    options.watch_identity_key_cert_pairs();
    options.set_check_call_host(false);
    options.set_certificate_verifier(
        tls::ExternalCertificateVerifier::Create<ServerVerifier>(
            cluster_, expected, revoked_));
    channels_.push_back(tls::TlsCredentials(options));
  }
}

const std::shared_ptr<grpc::ChannelCredentials>& TransportSecurity::Channel(
    ExpectedPeer expected) const {
  return channels_[static_cast<size_t>(expected)];
}

std::shared_ptr<grpc::ServerCredentials> TransportSecurity::Server() const {
  tls::TlsServerCredentialsOptions options(provider_);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  auto credentials = tls::TlsServerCredentials(options);
  credentials->SetAuthMetadataProcessor(
      std::make_shared<CallerCheck>(cluster_, revoked_));
  return credentials;
}

}  // namespace syncline

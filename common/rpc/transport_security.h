#ifndef SYNCLINE_COMMON_RPC_TRANSPORT_SECURITY_H_
#define SYNCLINE_COMMON_RPC_TRANSPORT_SECURITY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/security/peer_identity.h"
#include "common/security/revoked_certificates.h"
#include "grpcpp/security/auth_context.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/security/tls_certificate_provider.h"

namespace syncline {

// Paths of PEM files. All empty: no TLS.
struct TlsFiles {
  std::string certificate;   // this process's, with the chain below the CA
  std::string key;           // without a passphrase
  std::string authority;     // the CAs of the cluster
  std::string revoked = {};  // of certificates that count no more; empty: none
  bool empty() const {
    return certificate.empty() && key.empty() && authority.empty();
  }
};

// Mutual TLS of one process: what it shows to others and what it wants to see.
// Both ends of a connection show a certificate of the cluster's CA. The names
// in it are roles (PeerIdentity), and no host name is checked: an address is
// where a process happens to run, its role is what it may do.
//
// The files are read again within kReloadInterval of a change. Connections that
// exist keep what they were made with until the server's connection_age_max
// ends them. Thread-safe.
class TransportSecurity {
 public:
  static constexpr absl::Duration kReloadInterval = absl::Seconds(1);

  // Reads and checks the files as of `now`, by the wall clock. Errors: a file
  // cannot be read; InvalidArgument, naming the file: not a certificate, not
  // its key, no name of a cluster in it; PermissionDenied: another CA's, or
  // not valid at `now`.
  static absl::StatusOr<std::shared_ptr<const TransportSecurity>> Load(
      const TlsFiles& files, absl::Duration connection_age_max, absl::Time now);

  // For a channel to `expected`; others who answer are refused in the
  // handshake. Channels with the same credentials share connections.
  const std::shared_ptr<grpc::ChannelCredentials>& Channel(
      ExpectedPeer expected) const;
  // For a server: a peer without a certificate of the CA gets no connection,
  // and each call is checked by CheckCall.
  std::shared_ptr<grpc::ServerCredentials> Server() const;

  // Whether some certificates may be revoked while they are valid.
  bool has_revocations() const { return revoked_ != nullptr; }
  // OK: the certificate `pem` of a peer is not revoked. Errors:
  // RevokedCertificates::Check's.
  absl::Status CheckRevoked(absl::string_view pem) const;
  // RevokedCertificates::IsFileUsable. REQUIRES: has_revocations().
  bool IsRevocationFileUsable() const { return revoked_->IsFileUsable(); }

  const TlsFiles& files() const { return files_; }
  absl::Duration connection_age_max() const { return connection_age_max_; }
  const std::string& cluster() const { return cluster_; }
  // Of this process, as the files were when they were loaded.
  const std::vector<PeerIdentity>& identities() const { return identities_; }

 private:
  TransportSecurity(const TlsFiles& files, absl::Duration connection_age_max,
                    std::vector<PeerIdentity> identities,
                    std::shared_ptr<RevokedCertificates> revoked);

  const TlsFiles files_;
  const absl::Duration connection_age_max_;
  const std::string cluster_;
  const std::vector<PeerIdentity> identities_;
  const std::shared_ptr<RevokedCertificates> revoked_;  // null: none
  std::shared_ptr<grpc::experimental::CertificateProviderInterface> provider_;
  std::vector<std::shared_ptr<grpc::ChannelCredentials>> channels_;
};

// The TLS of MakeChannel and StartServer where they are told nothing else.
// Null: plain text. A process has one identity, so this is set once, by its
// main function, before the first channel.
void SetProcessSecurity(std::shared_ptr<const TransportSecurity> security);
std::shared_ptr<const TransportSecurity> ProcessSecurity();

// The peer's identities in `cluster`, by its certificate. Empty without TLS.
std::vector<PeerIdentity> PeersOf(const grpc::AuthContext& context,
                                  absl::string_view cluster);

// The peer's certificate in PEM form; empty without TLS.
std::string CertificateOf(const grpc::AuthContext& context);

// When this process's certificate ends, as the file says now. Errors: the file
// cannot be read, or is no certificate.
absl::StatusOr<absl::Time> CertificateExpiry(const TlsFiles& files);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_RPC_TRANSPORT_SECURITY_H_

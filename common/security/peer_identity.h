#ifndef SYNCLINE_COMMON_SECURITY_PEER_IDENTITY_H_
#define SYNCLINE_COMMON_SECURITY_PEER_IDENTITY_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace syncline {

// The role of a process in a cluster. The names are those of task types.
enum class PeerRole { kScheduler, kPs, kWorker, kChief, kEvaluator, kClient };
absl::string_view PeerRoleName(PeerRole role);  // "scheduler"

// One URI in the subject alternative names of a certificate:
//
//   syncline://CLUSTER/scheduler
//   syncline://CLUSTER/worker        any worker
//   syncline://CLUSTER/worker/3      worker 3 alone
//   syncline://CLUSTER/client/alice  a person or program with synctl
//
// A certificate may have several: a chief that hosts the scheduler has two.
struct PeerIdentity {
  std::string cluster;
  PeerRole role = PeerRole::kClient;
  std::optional<uint32_t> index;  // of a task; unset: any
  std::string name;               // of a client; may be empty

  std::string ToUri() const;
  // Without scheme and cluster: "worker/3", "client/alice".
  std::string ToString() const;
  friend bool operator==(const PeerIdentity&, const PeerIdentity&) = default;
};

// Names of clusters, clients, tokens and tenants have 1 to 64 characters of
// [A-Za-z0-9._-]. `what` is "a client", for the error: InvalidArgument.
absl::Status CheckSecurityName(absl::string_view what, absl::string_view name);

// `text` is "worker/3", without scheme and cluster. Errors:
// InvalidArgument, saying what is wrong.
absl::StatusOr<PeerIdentity> ParseIdentity(absl::string_view cluster,
                                           absl::string_view text);
// `uri` as above. Errors: InvalidArgument.
absl::StatusOr<PeerIdentity> ParseIdentityUri(absl::string_view uri);

// The identities among `uris` that are of `cluster`; other URIs are skipped.
std::vector<PeerIdentity> IdentitiesOf(absl::string_view cluster,
                                       absl::Span<const std::string> uris);

// "worker/3, scheduler"; "nobody" where there is none.
std::string Describe(absl::Span<const PeerIdentity> identities);

// Whether one of `callers` may call the method that gRPC names `path`
// ("/syncline.Jobs/Cancel"). A method that the table in peer_identity.cc does
// not have is refused. Errors: PermissionDenied, saying who may.
absl::Status CheckCall(absl::string_view path,
                       absl::Span<const PeerIdentity> callers);

// Whether one of `peers` may act as the task `type`:`index`; `index` unset: the
// scheduler is to pick one, which an identity with an index does not allow.
// Errors: PermissionDenied, saying who it is.
absl::Status CheckTask(absl::Span<const PeerIdentity> peers,
                       absl::string_view type, std::optional<uint32_t> index);

// The server that a process means to call.
enum class ExpectedPeer {
  kMember,     // any process of the cluster but a client
  kScheduler,  // nobody else
  kPs,         // nobody else
};
// Errors: PermissionDenied, saying who answers instead.
absl::Status CheckServer(ExpectedPeer expected,
                         absl::Span<const PeerIdentity> servers);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_SECURITY_PEER_IDENTITY_H_

#ifndef SYNCLINE_WORKER_COLLECTIVES_PEER_MEETING_H_
#define SYNCLINE_WORKER_COLLECTIVES_PEER_MEETING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/system/file_descriptor.h"
#include "common/system/local_socket.h"
#include "common/system/memory_claim.h"
#include "common/system/shared_region.h"
#include "worker/collectives/peer_hello.h"
#include "worker/collectives/peer_stream.h"
#include "worker/collectives/peer_transport.h"
#include "worker/collectives/stream_transport.h"
#include "worker/collectives/tls_stream.h"

namespace syncline::worker {

// How a rank can be reached by one other rank. It travels over a channel that
// authenticates both (worker/collectives/peer_rendezvous.h): who has it may
// connect, once.
struct PeerInvitation {
  std::string boot_id;     // of its host
  uint32_t port = 0;       // of its host, for TCP; 0: it accepts none
  std::string local_name;  // of its local socket; empty: it shares no memory
  std::string token;       // 16 random bytes, for the one that asked
};

// One rank's part in making the connections of a group: its sockets that listen
// for as long as this lives, and the streams to the other ranks as they come.
//
// Of two ranks the lower one calls: it gives the higher one its invitation
// (Invite), has one in return, and connects (Connect). Between processes of one
// host memory is offered over local sockets, each side's to the other; if that
// fails, or they are on different hosts, the lower one connects by TCP. A
// connection says who it is from by the token of the invitation, in its first
// 64 bytes. What says something else, or nothing for a few seconds, is closed;
// at most kUnknownMax are heard at a time.
class PeerMeeting {
 public:
  static constexpr size_t kUnknownMax = 64;

  struct Options {
    PeerGroup group;
    std::string listen_host = "127.0.0.1";  // as the daemon's
    bool shared_memory = true;
    // Connections between hosts are encrypted (TlsStream). The same at all
    // ranks.
    bool encrypts = false;
    StreamTransport::Options transport = {};
  };
  // Listens. Errors: Unavailable: no port, no random bytes.
  static absl::StatusOr<std::unique_ptr<PeerMeeting>> Create(
      const Options& options);
  PeerMeeting(const PeerMeeting&) = delete;
  PeerMeeting& operator=(const PeerMeeting&) = delete;

  // This rank's invitation to `peer`. Thread-safe; the same at each call.
  PeerInvitation InvitationFor(uint32_t peer) const;
  // Takes what a lower rank has told this one. Thread-safe. Errors:
  // InvalidArgument: it cannot be an invitation; a rank that is not lower.
  absl::Status OnInvitation(uint32_t peer, const PeerInvitation& invitation)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Connects to a higher rank at `host`. Blocks for a connection at most, and
  // asks `go_on`, unless it is null, every 250 ms. Errors: Unavailable,
  // DeadlineExceeded: naming the rank; what `go_on` returned.
  absl::Status Connect(uint32_t peer, absl::string_view host,
                       const PeerInvitation& invitation, absl::Time deadline,
                       const GoOnCheck& go_on = nullptr)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until there is a stream to each rank. Errors: DeadlineExceeded: names
  // those who have not come; Unavailable, as of Connect.
  absl::StatusOr<std::unique_ptr<StreamTransport>> Finish(absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mu_);

  // For tests: the TCP port.
  uint32_t port() const { return port_; }

 private:
  struct Peer {
    std::string token;          // const
    PeerInvitation invitation;  // theirs
    bool has_invitation = false;
    std::string host;  // of a higher rank
    std::unique_ptr<PeerStream> stream;
    TlsStream* tls = nullptr;  // `stream`, until its handshake has ended
    // Memory under way: what this rank sent, and what it has received.
    std::shared_ptr<SharedRegion> own;
    FileDescriptor to_other;
    std::shared_ptr<SharedRegion> other;
    FileDescriptor from_other;
    absl::Time fall_back_at = absl::InfiniteFuture();
  };
  struct Unknown {
    FileDescriptor socket;
    std::string bytes;
    absl::Time deadline;
    bool is_local = false;
  };

  explicit PeerMeeting(const Options& options) : options_(options) {}
  absl::Status Listen();
  bool OffersMemoryTo(const PeerInvitation& invitation) const;
  absl::Status OfferMemory(uint32_t peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status ConnectByTcp(uint32_t peer, absl::Time deadline,
                            const GoOnCheck& go_on) ABSL_LOCKS_EXCLUDED(mu_);
  void AcceptAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // False: it is to be closed, or has become a stream.
  bool Hear(Unknown* unknown) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool HearLocal(Unknown* unknown) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The handshakes of TLS, as far as they go. Errors: Unavailable, naming the
  // rank that this one has connected to.
  absl::Status MeetByTls() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void MakeSharedStreams() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string Missing() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The rank that says this hello, by its token, or with `is_proof` by the
  // proof of it, in constant time.
  bool Find(const PeerHello& hello, bool is_proof, uint32_t* peer) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  std::string boot_id_;
  FileDescriptor listener_;
  uint32_t port_ = 0;
  LocalListener local_;
  std::vector<std::string> tokens_;  // by rank: what it must show
  mutable Mutex mu_;
  std::vector<Peer> peers_ ABSL_GUARDED_BY(mu_);  // by rank
  std::vector<Unknown> unknown_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COLLECTIVES_PEER_MEETING_H_

#ifndef SYNCLINE_TESTS_TESTING_BORROWED_PEER_H_
#define SYNCLINE_TESTS_TESTING_BORROWED_PEER_H_

#include <atomic>
#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "tests/testing/in_process_peers.h"
#include "worker/collectives/peer_transport.h"

namespace syncline::worker {

// A rank's transport of an InProcessPeers, for those who own theirs: when it
// goes, its messages are cancelled and their callbacks have run, as
// PeerTransport promises.
class BorrowedPeer final : public PeerTransport {
 public:
  // `peers` outlives it.
  static std::unique_ptr<PeerTransport> Of(InProcessPeers* peers,
                                           uint32_t rank) {
    return std::make_unique<BorrowedPeer>(peers->at(rank));
  }
  explicit BorrowedPeer(PeerTransport* inner) : inner_(*inner) {}
  ~BorrowedPeer() override {
    inner_.Cancel(absl::CancelledError("the rank has gone"));
    SYNCLINE_CHECK(inner_.Await([this] { return under_way_.load() == 0; },
                                MonotonicNow() + absl::Seconds(60)));
  }

  const PeerGroup& group() const override { return inner_.group(); }
  void Send(uint32_t to, const PeerTag& tag,
            absl::Span<const ConstPeerMemory> pieces, absl::Time deadline,
            Done sent) override {
    inner_.Send(to, tag, pieces, deadline, Counted(std::move(sent)));
  }
  void Receive(uint32_t from, const PeerTag& tag, PeerMemory memory,
               absl::Time deadline, Done received) override {
    inner_.Receive(from, tag, memory, deadline, Counted(std::move(received)));
  }
  void ReceivePieces(uint32_t from, const PeerTag& tag, size_t size,
                     absl::Time deadline, Sink sink, Done received) override {
    inner_.ReceivePieces(from, tag, size, deadline, std::move(sink),
                         Counted(std::move(received)));
  }
  bool Await(absl::FunctionRef<bool()> done, absl::Time deadline) override {
    return inner_.Await(done, deadline);
  }
  void Cancel(const absl::Status& reason) override { inner_.Cancel(reason); }
  absl::Status status() const override { return inner_.status(); }
  Counters counters() const override { return inner_.counters(); }
  // Messages that have not ended.
  int under_way() const { return under_way_.load(); }

 private:
  Done Counted(Done done) {
    ++under_way_;
    return [this, done = std::move(done)](absl::Status status) mutable {
      done(std::move(status));
      --under_way_;
    };
  }

  PeerTransport& inner_;
  std::atomic<int> under_way_{0};
};

}  // namespace syncline::worker

#endif  // SYNCLINE_TESTS_TESTING_BORROWED_PEER_H_

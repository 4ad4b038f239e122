#include "worker/collectives/peer_transport.h"

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"

namespace syncline::worker {

std::string ToText(const PeerTag& tag) {
  return absl::StrCat("clock ", tag.clock, ", kind ", tag.kind, ", item ",
                      tag.item);
}

std::string PeerGroup::NameOf(uint32_t rank) const {
  if (rank >= peers.size()) return absl::StrCat("rank ", rank);
  return absl::StrCat("rank ", rank, " (", peers[rank].name, " at ",
                      peers[rank].address, ")");
}

absl::Status PeerTransport::SwapAll(const PeerTag& tag,
                                    absl::Span<const uint8_t> own,
                                    absl::Span<uint8_t* const> theirs,
                                    absl::Time deadline) {
  std::atomic<uint32_t> left = 2 * (ranks() - 1);
  absl::Status result;  // callbacks come one at a time
  bool started = false;
  const ConstPeerMemory piece = {own.data(), own.size()};
  Await(
      [&] {
        for (uint32_t r = 0; !started && r < ranks(); ++r) {
          if (r == rank()) continue;
          const auto done = [&](absl::Status status) {
            if (!status.ok()) result = std::move(status);
            left.fetch_sub(1, std::memory_order_acq_rel);
          };
          Receive(r, tag, {theirs[r], own.size()}, deadline, done);
          Send(r, tag, {&piece, 1}, deadline, done);
        }
        started = true;
        return left.load(std::memory_order_acquire) == 0;
      },
      absl::InfiniteFuture());
  return result;
}

}  // namespace syncline::worker

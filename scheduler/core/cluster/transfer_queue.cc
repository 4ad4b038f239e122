#include "scheduler/core/cluster/transfer_queue.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace syncline::scheduler {

absl::Status TransferQueue::Add(uint64_t id, absl::string_view client) {
  if (waiting_.size() >= options_.waiting_max) {
    return absl::UnavailableError(
        absl::StrCat("the scheduler has too much to do: ", waiting_.size(),
                     " uploads wait for their turn already"));
  }
  transfers_[id].client = std::string(client);
  waiting_.push_back(id);
  return absl::OkStatus();
}

void TransferQueue::Remove(uint64_t id) {
  const auto found = transfers_.find(id);
  if (found == transfers_.end()) return;
  if (found->second.reading) {
    --reading_;
    const auto of_client = reading_of_.find(found->second.client);
    if (--of_client->second == 0) reading_of_.erase(of_client);
  } else {
    waiting_.remove(id);
  }
  transfers_.erase(found);
}

std::vector<uint64_t> TransferQueue::NextTurns() {
  std::vector<uint64_t> turns;
  for (auto it = waiting_.begin();
       it != waiting_.end() && reading_ < options_.reading_max;) {
    Transfer& transfer = transfers_.at(*it);
    size_t& of_client = reading_of_[transfer.client];
    if (of_client >= options_.reading_per_client_max) {
      ++it;
      continue;
    }
    ++of_client;
    ++reading_;
    transfer.reading = true;
    turns.push_back(*it);
    it = waiting_.erase(it);
  }
  return turns;
}

absl::Status TransferPace::Add(absl::Duration waited, size_t bytes,
                               absl::Duration patience) {
  waited_ += waited;
  bytes_ += bytes;
  const double expected =
      absl::ToDoubleSeconds(waited_ - patience) * kBytesPerSecondMin;
  if (static_cast<double>(bytes_) >= expected) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrFormat(
      "the upload is too slow: %d bytes came in %.1f s; at least %.0f bytes a "
      "second are expected",
      bytes_, absl::ToDoubleSeconds(waited_), kBytesPerSecondMin));
}

std::string ClientOfPeer(absl::string_view peer) {
  const size_t port = peer.rfind(':');
  return std::string(peer.substr(0, port));
}

}  // namespace syncline::scheduler

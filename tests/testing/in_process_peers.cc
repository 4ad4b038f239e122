#include "tests/testing/in_process_peers.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace syncline::worker {

class InProcessPeers::Peer : public PeerTransport {
 public:
  Peer(InProcessPeers* peers, PeerGroup group)
      : peers_(peers), group_(std::move(group)) {
    for (uint32_t i = 0; i < group_.ranks(); ++i) {
      channels_.push_back(std::make_unique<PeerChannel>(&group_, i));
    }
  }

  const PeerGroup& group() const override { return group_; }

  void Send(uint32_t to, const PeerTag& tag,
            absl::Span<const ConstPeerMemory> pieces, absl::Time deadline,
            Done sent) override {
    MutexLock lock(&peers_->mu_);
    if (!status_.ok() || to >= ranks() || to == rank()) {
      return Reject(to, std::move(sent));
    }
    channels_[to]->Send(tag, pieces, deadline, std::move(sent));
    peers_->moved_.SignalAll();
  }
  void Receive(uint32_t from, const PeerTag& tag, PeerMemory memory,
               absl::Time deadline, Done received) override {
    Receive(from, tag, memory, deadline, nullptr, std::move(received));
  }
  void ReceivePieces(uint32_t from, const PeerTag& tag, size_t size,
                     absl::Time deadline, Sink sink, Done received) override {
    Receive(from, tag, {nullptr, size}, deadline, std::move(sink),
            std::move(received));
  }
  bool Await(absl::FunctionRef<bool()> done, absl::Time deadline) override {
    return peers_->Await(done, deadline);
  }
  void Cancel(const absl::Status& reason) override {
    MutexLock lock(&peers_->mu_);
    peers_->End(rank(), reason);
    peers_->moved_.SignalAll();
  }
  absl::Status status() const override {
    MutexLock lock(&peers_->mu_);
    return status_;
  }
  Counters counters() const override {
    MutexLock lock(&peers_->mu_);
    Counters counters;
    for (const auto& channel : channels_) {
      counters.messages_sent += channel->messages_sent();
      counters.messages_received += channel->messages_received();
      counters.bytes_sent += channel->bytes_sent();
      counters.bytes_received += channel->bytes_received();
    }
    return counters;
  }

 private:
  friend class InProcessPeers;

  void Receive(uint32_t from, const PeerTag& tag, PeerMemory memory,
               absl::Time deadline, Sink sink, Done received) {
    MutexLock lock(&peers_->mu_);
    if (!status_.ok() || from >= ranks() || from == rank()) {
      return Reject(from, std::move(received));
    }
    channels_[from]->Receive(tag, memory, deadline, std::move(sink),
                             std::move(received));
    peers_->moved_.SignalAll();
  }
  void Reject(uint32_t peer, Done done)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(peers_->mu_) {
    if (status_.ok()) {
      peers_->End(rank(), absl::InvalidArgumentError(absl::StrCat(
                              "no messages with rank ", peer, " of ", ranks(),
                              " at rank ", rank())));
    }
    rejected_.emplace_back(std::move(done), status_);
    peers_->moved_.SignalAll();
  }

  InProcessPeers* const peers_;
  const PeerGroup group_;
  // Guarded by peers_->mu_, which is also the mutex of who looks in here; the
  // compiler does not see that they are one.
  std::vector<std::unique_ptr<PeerChannel>> channels_;
  absl::Status status_;
  Completed rejected_;
};

PeerTransport* InProcessPeers::at(uint32_t rank) { return peers_[rank].get(); }

InProcessPeers::InProcessPeers(const Options& options)
    : options_(options), random_(options.seed) {
  PeerGroup group;
  group.job = "j-test";
  group.epoch = options.epoch;
  for (uint32_t i = 0; i < options.ranks; ++i) {
    group.peers.push_back(
        {absl::StrCat("worker:", i), absl::StrCat("host-", i, ":1")});
  }
  MutexLock lock(&mu_);
  streams_.resize(size_t{options.ranks} * options.ranks);
  for (Stream& stream : streams_) {
    stream.capacity = size_t{64} << random_.Below(13);
  }
  for (const Loss& loss : options.losses) {
    StreamOf(loss.from, loss.to)->loss = loss;
  }
  for (uint32_t i = 0; i < options.ranks; ++i) {
    group.rank = i;
    peers_.push_back(std::make_unique<Peer>(this, group));
  }
}

InProcessPeers::~InProcessPeers() {
  Completed completed;
  {
    MutexLock lock(&mu_);
    for (uint32_t i = 0; i < options_.ranks; ++i) {
      End(i, absl::CancelledError("the test has ended"));
    }
    Settle(&completed);
  }
  for (auto& [done, status] : completed) done(status);
}

void InProcessPeers::End(uint32_t rank, const absl::Status& status) {
  Peer& peer = *peers_[rank];
  if (!peer.status_.ok()) return;
  peer.status_ = status;
  for (auto& channel : peer.channels_) channel->Fail(status);
}

void InProcessPeers::Kill(uint32_t rank) {
  MutexLock lock(&mu_);
  End(rank, absl::UnavailableError("killed by the test"));
  for (uint32_t other = 0; other < options_.ranks; ++other) {
    StreamOf(rank, other)->closed = true;
    StreamOf(other, rank)->closed = true;
  }
  moved_.SignalAll();
}

bool InProcessPeers::MoveOut(uint32_t from, uint32_t to) {
  Stream& stream = *StreamOf(from, to);
  PeerChannel& channel = *peers_[from]->channels_[to];
  if (stream.closed || stream.bytes.size() >= stream.capacity) return false;
  const auto output = channel.Output(1 + random_.Below(8));
  if (output.empty()) return false;
  size_t left = 1 + random_.Below(stream.capacity - stream.bytes.size());
  size_t moved = 0;
  for (const absl::Span<const uint8_t> piece : output) {
    const size_t now = std::min(left, piece.size());
    stream.bytes.insert(stream.bytes.end(), piece.begin(), piece.begin() + now);
    moved += now;
    left -= now;
  }
  channel.OnWritten(moved);
  return true;
}

bool InProcessPeers::MoveIn(uint32_t from, uint32_t to) {
  Stream& stream = *StreamOf(from, to);
  PeerChannel& channel = *peers_[to]->channels_[from];
  size_t ready = stream.bytes.size();
  if (stream.loss.has_value()) {
    const uint64_t left = stream.loss->after_bytes - stream.arrived;
    if (left == 0 && stream.loss->kind == Loss::Kind::kClosed) {
      stream.closed = true;
      StreamOf(to, from)->closed = true;
      End(from, absl::UnavailableError(
                    absl::StrCat(peers_[from]->group_.NameOf(to), " is gone")));
      ready = 0;
    }
    ready = std::min<uint64_t>(ready, left);
  }
  if (ready == 0) {
    if (!stream.closed || !peers_[to]->status_.ok()) return false;
    if (!stream.bytes.empty() && !stream.loss.has_value()) return false;
    End(to, absl::UnavailableError(
                absl::StrCat(peers_[to]->group_.NameOf(from), " is gone")));
    return true;
  }
  size_t moved = 0;
  const auto direct = channel.DirectInput();
  if (!direct.empty() && random_.Below(2) == 0) {
    moved = std::min<size_t>(1 + random_.Below(ready), direct.size());
    std::copy(stream.bytes.begin(), stream.bytes.begin() + moved,
              direct.begin());
    channel.OnDirectInput(moved);
  } else {
    // Bytes that were not taken come again with more behind them.
    const size_t offered =
        std::min<size_t>(ready, kFrameHeaderBytes + random_.Below(ready + 1));
    const std::vector<uint8_t> bytes(stream.bytes.begin(),
                                     stream.bytes.begin() + offered);
    moved = channel.OnInput(bytes);
    if (!channel.failure().ok()) moved = offered;
    // A torn frame's rest never comes.
    if (moved == 0 && stream.closed && peers_[to]->status_.ok()) {
      End(to, absl::UnavailableError(
                  absl::StrCat(peers_[to]->group_.NameOf(from), " is gone")));
      return true;
    }
  }
  stream.bytes.erase(stream.bytes.begin(), stream.bytes.begin() + moved);
  stream.arrived += moved;
  return moved > 0;
}

bool InProcessPeers::Settle(Completed* completed) {
  bool any = false;
  const absl::Time now = options_.now();
  for (uint32_t i = 0; i < options_.ranks; ++i) {
    Peer& peer = *peers_[i];
    for (auto& channel : peer.channels_) {
      if (peer.status_.ok()) channel->OnTime(now);
      if (!channel->failure().ok()) End(i, channel->failure());
    }
    for (auto& channel : peer.channels_) {
      for (auto& each : channel->TakeCompleted()) {
        completed->push_back(std::move(each));
        any = true;
      }
    }
    for (auto& each : std::exchange(peer.rejected_, {})) {
      completed->push_back(std::move(each));
      any = true;
    }
  }
  return any;
}

bool InProcessPeers::Move(Completed* completed) {
  if (Settle(completed)) return true;
  const uint32_t n = options_.ranks;
  const uint64_t first = random_.Below(uint64_t{n} * n * 2);
  for (uint64_t i = 0; i < uint64_t{n} * n * 2; ++i) {
    const uint64_t at = (first + i) % (uint64_t{n} * n * 2);
    const auto from = static_cast<uint32_t>(at / 2 / n);
    const auto to = static_cast<uint32_t>(at / 2 % n);
    if (from == to) continue;
    if (at % 2 == 0 ? MoveOut(from, to) : MoveIn(from, to)) {
      Settle(completed);
      return true;
    }
  }
  return Settle(completed);
}

bool InProcessPeers::Step() {
  Completed completed;
  bool moved;
  {
    MutexLock lock(&mu_);
    moved = Move(&completed);
  }
  for (auto& [done, status] : completed) done(status);
  return moved;
}

absl::Time InProcessPeers::next_deadline() const {
  MutexLock lock(&mu_);
  absl::Time next = absl::InfiniteFuture();
  for (const auto& peer : peers_) {
    for (const auto& channel : peer->channels_) {
      next = std::min(next, channel->next_deadline());
    }
  }
  return next;
}

bool InProcessPeers::Await(absl::FunctionRef<bool()> done,
                           absl::Time deadline) {
  while (!done()) {
    if (options_.now() >= deadline) return false;
    Completed completed;
    {
      MutexLock lock(&mu_);
      if (moving_) {
        moved_.WaitUntil(&mu_, MonotonicNow() + absl::Milliseconds(1));
        continue;
      }
      moving_ = true;
      if (!Move(&completed)) {
        moving_ = false;
        moved_.WaitUntil(&mu_, MonotonicNow() + absl::Milliseconds(1));
        continue;
      }
    }
    for (auto& [callback, status] : completed) callback(status);
    MutexLock lock(&mu_);
    moving_ = false;
    moved_.SignalAll();
  }
  return true;
}

}  // namespace syncline::worker

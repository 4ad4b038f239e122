#include "worker/collectives/stream_transport.h"

#include <sched.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/clock.h"

namespace syncline::worker {
namespace {

std::string SwapText(const PeerTag& tag) {
  return absl::StrCat("the swap of bucket ", tag.item, " at clock ", tag.clock);
}

}  // namespace

StreamTransport::StreamTransport(
    PeerGroup group, std::vector<std::unique_ptr<PeerStream>> streams,
    const Options& options)
    : group_(std::move(group)),
      options_(options),
      wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      threads_("peers", 1) {
  SYNCLINE_CHECK(streams.size() == group_.ranks());
  {
    MutexLock lock(&mu_);
    links_.resize(group_.ranks());
    for (uint32_t i = 0; i < group_.ranks(); ++i) {
      links_[i].channel = std::make_unique<PeerChannel>(&group_, i);
      links_[i].stream = std::move(streams[i]);
    }
  }
  SYNCLINE_CHECK(threads_.TrySubmit([this] { RunOwnThread(); }));
}

StreamTransport::~StreamTransport() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    if (status_.ok()) {
      for (Link& link : links_) link.channel->Leave();
      status_ = absl::CancelledError("the transport was destroyed");
    }
    own_thread_.Signal();
    WakeDriver();
  }
  threads_.Stop();
  const absl::Time until = MonotonicNow() + options_.linger;
  while (true) {
    std::vector<pollfd> wait_for;
    {
      MutexLock lock(&mu_);
      if (Flush() || MonotonicNow() >= until) break;
      for (Link& link : links_) {
        if (link.stream == nullptr || link.closed || !HasOutput(link)) continue;
        link.stream->PrepareSleep(*link.channel, &wait_for);
      }
    }
    // A short wait: room in shared memory has no descriptor.
    poll(wait_for.data(), wait_for.size(), 2);
    MutexLock lock(&mu_);
    for (Link& link : links_) {
      if (link.stream != nullptr) link.stream->EndSleep();
    }
  }
  Completed completed;
  {
    MutexLock lock(&mu_);
    for (Link& link : links_) {
      if (link.stream != nullptr && !link.closed) link.stream->Close();
    }
    TakeCompleted(&completed);
  }
  for (auto& [done, status] : completed) done(status);
}

void StreamTransport::WakeDriver() {
  if (!asleep_ || woken_) return;
  woken_ = true;
  eventfd_write(wake_.get(), 1);
}

void StreamTransport::Post(uint32_t peer, Done* done,
                           absl::FunctionRef<void(PeerChannel*)> post) {
  MutexLock lock(&mu_);
  if (status_.ok() && (peer >= ranks() || peer == rank())) {
    End(absl::InvalidArgumentError(
        absl::StrCat("rank ", rank(), " of ", ranks(),
                     " has no messages with rank ", peer)));
  }
  if (!status_.ok()) {
    rejected_.emplace_back(std::move(*done), status_);
  } else {
    post(links_[peer].channel.get());
  }
  if (driver_ == Driver::kNone && awaiters_ == 0) {
    own_thread_.Signal();
  } else {
    WakeDriver();
  }
}

void StreamTransport::Send(uint32_t to, const PeerTag& tag,
                           absl::Span<const ConstPeerMemory> pieces,
                           absl::Time deadline, Done sent) {
  Post(to, &sent, [&](PeerChannel* channel) {
    channel->Send(tag, pieces, deadline, std::move(sent));
  });
}

void StreamTransport::Receive(uint32_t from, const PeerTag& tag,
                              PeerMemory memory, absl::Time deadline,
                              Done received) {
  Post(from, &received, [&](PeerChannel* channel) {
    channel->Receive(tag, memory, deadline, nullptr, std::move(received));
  });
}

void StreamTransport::ReceivePieces(uint32_t from, const PeerTag& tag,
                                    size_t size, absl::Time deadline, Sink sink,
                                    Done received) {
  Post(from, &received, [&](PeerChannel* channel) {
    channel->Receive(tag, {nullptr, size}, deadline, std::move(sink),
                     std::move(received));
  });
}

void StreamTransport::Cancel(const absl::Status& reason) {
  MutexLock lock(&mu_);
  End(reason);
  own_thread_.Signal();
  WakeDriver();
}

absl::Status StreamTransport::status() const {
  MutexLock lock(&mu_);
  return status_;
}

PeerTransport::Counters StreamTransport::counters() const {
  MutexLock lock(&mu_);
  Counters counters;
  for (const Link& link : links_) {
    counters.messages_sent += link.channel->messages_sent();
    counters.messages_received += link.channel->messages_received();
    counters.bytes_sent += link.channel->bytes_sent();
    counters.bytes_received += link.channel->bytes_received();
  }
  counters.blocked = blocked_;
  return counters;
}

void StreamTransport::End(const absl::Status& status) {
  if (!status_.ok()) return;
  status_ = status;
  for (Link& link : links_) link.channel->Fail(status);
  Flush();
}

bool StreamTransport::Flush() {
  bool all = true;
  for (Link& link : links_) {
    if (link.stream == nullptr || link.closed) continue;
    if (!link.stream->Pump(link.channel.get()).ok()) {
      // This rank's last frame may be stuck; the end of the stream gets there.
      link.stream->Close();
      link.closed = true;
    } else if (HasOutput(link)) {
      all = false;
    }
  }
  return all;
}

bool StreamTransport::PumpAll() {
  bool moved = false;
  for (uint32_t i = 0; i < links_.size() && status_.ok(); ++i) {
    Link& link = links_[i];
    if (link.stream == nullptr) continue;
    PeerChannel& channel = *link.channel;
    if (!link.closed) {
      const absl::StatusOr<bool> pumped = link.stream->Pump(&channel);
      if (pumped.ok()) {
        moved |= *pumped;
      } else if (channel.is_gone()) {
        link.closed = true;
      } else if (channel.failure().ok()) {
        End(absl::Status(
            pumped.status().code(),
            absl::StrCat(group_.NameOf(i), ": ", pumped.status().message())));
        break;
      }
    }
    if (!channel.failure().ok()) EndBecauseOf(i);
  }
  return moved;
}

void StreamTransport::EndBecauseOf(uint32_t peer) {
  absl::Status status = links_[peer].channel->failure();
  // One that waits for this rank in vain has left. Why this rank was late is
  // what it waits for itself.
  std::vector<std::string> others;
  for (uint32_t i = 0; i < links_.size(); ++i) {
    if (i != peer && links_[i].channel->open() > 0) {
      others.push_back(group_.NameOf(i));
    }
  }
  if (absl::IsDeadlineExceeded(status) && !others.empty()) {
    status = absl::Status(
        status.code(),
        absl::StrCat(status.message(), "; rank ", rank(), " waits for ",
                     absl::StrJoin(others, " and ")));
  }
  End(status);
}

void StreamTransport::CheckTime(absl::Time now) {
  std::vector<const Link*> late;
  for (Link& link : links_) {
    if (link.channel->frames_received() != link.frames) {
      link.frames = link.channel->frames_received();
      link.heard = now;
    }
    link.channel->OnTime(now);
    if (!link.channel->failure().ok()) late.push_back(&link);
  }
  if (late.empty()) return;
  // Ranks that wait for the missing one are late, too. The one that has said
  // nothing for the longest time is named first.
  std::stable_sort(late.begin(), late.end(), [](const Link* a, const Link* b) {
    return a->heard < b->heard;
  });
  std::vector<std::string> texts;
  for (const Link* link : late) {
    texts.emplace_back(link->channel->failure().message());
  }
  End(absl::Status(late.front()->channel->failure().code(),
                   absl::StrJoin(texts, "; ")));
}

void StreamTransport::TakeCompleted(Completed* completed) {
  for (Link& link : links_) {
    if (!link.channel->has_completed()) continue;
    for (auto& each : link.channel->TakeCompleted()) {
      completed->push_back(std::move(each));
    }
  }
  for (auto& each : std::exchange(rejected_, {})) {
    completed->push_back(std::move(each));
  }
}

bool StreamTransport::IsBusy() const {
  if (!rejected_.empty()) return true;
  for (const Link& link : links_) {
    if (link.channel->has_completed()) return true;
    if (status_.ok() && (link.channel->open() > 0 || HasOutput(link))) {
      return true;
    }
  }
  return false;
}

bool StreamTransport::Drive() {
  bool moved;
  {
    MutexLock lock(&mu_);
    moved = PumpAll();
    if (!moved && status_.ok()) CheckTime(MonotonicNow());
    TakeCompleted(&to_run_);
  }
  if (to_run_.empty()) return moved;
  for (auto& [done, status] : to_run_) done(status);
  to_run_.clear();
  return true;
}

void StreamTransport::SleepUntil(absl::Time deadline) {
  wait_for_.clear();
  bool sleeps = true;
  {
    MutexLock lock(&mu_);
    for (Link& link : links_) {
      deadline = std::min(deadline, link.channel->next_deadline());
      if (link.stream == nullptr || link.closed || !status_.ok()) continue;
      sleeps &= link.stream->PrepareSleep(*link.channel, &wait_for_);
      if (link.channel->has_completed()) sleeps = false;
    }
    // It has told the other threads nothing yet, and must hear of theirs.
    if (!rejected_.empty() || stopping_) sleeps = false;
    if (driver_ == Driver::kOwnThread && awaiters_ > 0) sleeps = false;
    asleep_ = sleeps;
  }
  if (sleeps) {
    wait_for_.push_back({wake_.get(), POLLIN, 0});
    const absl::Duration wait = deadline - MonotonicNow();
    const int64_t ms = std::clamp<int64_t>(
        wait == absl::InfiniteDuration() ? 1000
                                         : absl::ToInt64Milliseconds(absl::Ceil(
                                               wait, absl::Milliseconds(1))),
        0, 1000);
    poll(wait_for_.data(), wait_for_.size(), static_cast<int>(ms));
  }
  MutexLock lock(&mu_);
  asleep_ = false;
  if (woken_) {
    woken_ = false;
    eventfd_t count;
    eventfd_read(wake_.get(), &count);
  }
  for (Link& link : links_) {
    if (link.stream != nullptr && !link.closed) link.stream->EndSleep();
  }
}

bool StreamTransport::PumpSwap(const PeerTag& tag,
                               absl::Span<const uint8_t> own,
                               absl::Span<uint8_t* const> theirs) {
  // As many turns as another rank that is there takes, and few enough for a
  // core that others wait for.
  constexpr int kTurns = 256;
  for (int turn = 0; turn < kTurns; ++turn) {
    bool has_ended = true;
    for (uint32_t i = 0; i < links_.size(); ++i) {
      Link& link = links_[i];
      if (link.stream == nullptr) continue;
      PeerChannel& channel = *link.channel;
      if (!link.swaps && channel.can_swap()) {
        channel.StartSwap(tag, own, theirs[i]);
        link.swaps = true;
      }
      const bool is_over =
          link.swaps && channel.swap_has_come() && !channel.has_output();
      has_ended &= is_over;
      // A rank that has left cleanly ends no group by itself. But its part of
      // this swap never comes, or this rank's never gets there.
      if (!is_over && channel.is_gone()) {
        End(absl::UnavailableError(absl::StrCat(
            group_.NameOf(i), " has left, and is missing in ", SwapText(tag))));
      }
    }
    if (has_ended || !status_.ok()) return true;
    PumpAll();
    for (const Link& link : links_) {
      if (link.channel->has_completed()) return false;
    }
  }
  return false;
}

absl::Status StreamTransport::SwapAll(const PeerTag& tag,
                                      absl::Span<const uint8_t> own,
                                      absl::Span<uint8_t* const> theirs,
                                      absl::Time deadline) {
  if (own.size() > kSwapBytesMax || theirs.size() != ranks()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a swap of ", own.size(), " bytes among ", theirs.size(), " of ",
        ranks(), " ranks; ", kSwapBytesMax, " bytes can be swapped"));
  }
  if (deadline == absl::InfiniteFuture()) {
    return absl::InvalidArgumentError(
        absl::StrCat(SwapText(tag), " has no deadline"));
  }
  MutexLock one_at_a_time(&swap_mu_);
  {
    MutexLock lock(&mu_);
    for (Link& link : links_) link.swaps = false;
  }
  const bool in_time = Await(
      [&] {
        MutexLock lock(&mu_);
        return PumpSwap(tag, own, theirs);
      },
      deadline);
  MutexLock lock(&mu_);
  if (!status_.ok()) {
    // The error that ended the group need not name the swap.
    const std::string swap = SwapText(tag);
    if (absl::StrContains(status_.message(), swap)) return status_;
    return absl::Status(status_.code(),
                        absl::StrCat(status_.message(), ", in ", swap));
  }
  if (in_time) return status_;
  std::vector<std::string> missing;
  for (uint32_t i = 0; i < links_.size(); ++i) {
    if (links_[i].stream == nullptr) continue;
    if (!links_[i].swaps || !links_[i].channel->swap_has_come()) {
      missing.push_back(group_.NameOf(i));
    }
  }
  End(absl::DeadlineExceededError(
      absl::StrCat(absl::StrJoin(missing, " and "), " has not sent ",
                   own.size(), " bytes in time for ", SwapText(tag))));
  return status_;
}

bool StreamTransport::Await(absl::FunctionRef<bool()> done,
                            absl::Time deadline) {
  {
    MutexLock lock(&mu_);
    ++awaiters_;
    while (driver_ != Driver::kNone) {
      if (driver_ == Driver::kOwnThread) WakeDriver();
      const absl::Time until =
          std::min(deadline, MonotonicNow() + absl::Milliseconds(100));
      changed_.WaitUntil(&mu_, until);
      mu_.Unlock();
      const bool is_done = done();
      mu_.Lock();
      if (is_done || MonotonicNow() >= deadline) {
        --awaiters_;
        if (driver_ == Driver::kNone && IsBusy()) own_thread_.Signal();
        changed_.Signal();
        return is_done;
      }
    }
    driver_ = Driver::kAwait;
  }
  bool is_done;
  absl::Time idle_since = absl::InfiniteFuture();
  absl::Duration blocked;
  while (!(is_done = done())) {
    if (Drive()) {
      if (idle_since != absl::InfiniteFuture()) {
        blocked += MonotonicNow() - idle_since;
        idle_since = absl::InfiniteFuture();
      }
      MutexLock lock(&mu_);
      if (awaiters_ > 1) changed_.SignalAll();
      continue;
    }
    const absl::Time now = MonotonicNow();
    if (now >= deadline) break;
    if (idle_since == absl::InfiniteFuture()) idle_since = now;
    if (now - idle_since < options_.spin) {
      if (now - idle_since >= options_.spin_alone) sched_yield();
    } else {
      SleepUntil(deadline);
    }
  }
  if (idle_since != absl::InfiniteFuture()) {
    blocked += MonotonicNow() - idle_since;
  }
  MutexLock lock(&mu_);
  blocked_ += blocked;
  driver_ = Driver::kNone;
  if (--awaiters_ > 0) {
    changed_.SignalAll();
  } else if (IsBusy()) {
    own_thread_.Signal();
  }
  return is_done;
}

void StreamTransport::RunOwnThread() {
  while (true) {
    {
      MutexLock lock(&mu_);
      while (!stopping_ &&
             (awaiters_ > 0 || driver_ != Driver::kNone || !IsBusy())) {
        own_thread_.WaitUntil(&mu_, MonotonicNow() + absl::Hours(1));
      }
      if (stopping_) return;
      driver_ = Driver::kOwnThread;
    }
    absl::Time idle_since = absl::InfiniteFuture();
    while (true) {
      if (Drive()) {
        idle_since = absl::InfiniteFuture();
      } else {
        const absl::Time now = MonotonicNow();
        if (idle_since == absl::InfiniteFuture()) idle_since = now;
        if (now - idle_since < options_.spin) {
          if (now - idle_since >= options_.spin_alone) sched_yield();
        } else {
          SleepUntil(absl::InfiniteFuture());
        }
      }
      MutexLock lock(&mu_);
      if (stopping_ || awaiters_ > 0 || !IsBusy()) {
        driver_ = Driver::kNone;
        changed_.SignalAll();
        break;
      }
    }
  }
}

}  // namespace syncline::worker

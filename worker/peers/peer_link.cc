#include "worker/peers/peer_link.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"

namespace syncline::worker {
namespace {

// A wait looks at the clock so often.
constexpr absl::Duration kSlice = absl::Milliseconds(250);
constexpr size_t kWhatBytesMax = 95;

int64_t NowNanos() { return absl::ToUnixNanos(MonotonicNow()); }

}  // namespace

struct PeerLink::Report {
  int64_t clock = 0;
  uint64_t done = 0;
  uint64_t total = 0;
  uint64_t reserved = 0;
  char what[kWhatBytesMax + 1] = {};  // ends with a zero
};

PeerLink::PeerLink(Options options, std::unique_ptr<PeerTransport> transport)
    : options_(std::move(options)),
      group_(transport->group()),
      moved_at_nanos_(NowNanos()),
      heard_(transport->ranks()),
      transport_(transport.get()),
      owned_(std::move(transport)) {
  for (uint32_t rank = 0; rank < group_.ranks(); ++rank) {
    if (rank == group_.rank) continue;
    heard_[rank].next = std::make_unique<Report>();
    ReceiveReport(rank);
  }
}

PeerLink::~PeerLink() { Close(); }

void PeerLink::Close() {
  if (owned_ == nullptr) return;
  Cancel(absl::CancelledError("its part of the job is over"));
  owned_.reset();
}

void PeerLink::Moved() { moved_at_nanos_.store(NowNanos()); }

absl::Status PeerLink::status() const {
  MutexLock lock(&mu_);
  return status_;
}

void PeerLink::Cancel(const absl::Status& reason) {
  {
    MutexLock lock(&mu_);
    if (!status_.ok()) return;
    status_ = reason;
  }
  transport_->Cancel(reason);
}

absl::Status PeerLink::Await(absl::FunctionRef<bool()> done,
                             absl::FunctionRef<std::string()> missing) {
  return AwaitGroup(done, missing, /*last=*/false);
}

absl::Status PeerLink::AwaitLast(absl::FunctionRef<bool()> done,
                                 absl::FunctionRef<std::string()> missing) {
  return AwaitGroup(done, missing, /*last=*/true);
}

absl::Status PeerLink::AwaitGroup(absl::FunctionRef<bool()> done,
                                  absl::FunctionRef<std::string()> missing,
                                  bool last) {
  const auto over = [&] { return done() || !transport_->status().ok(); };
  Moved();  // the time before the wait is nobody's
  for (;;) {
    if (absl::Status own = status(); !own.ok()) return own;
    const absl::Time slice_end = MonotonicNow() + kSlice;
    if (transport_->Await(over, slice_end)) break;
    const absl::Time now = MonotonicNow();
    // This process did not run for a while: that is not the others' silence.
    if (now > slice_end + kSlice) {
      moved_at_nanos_.fetch_add(absl::ToInt64Nanoseconds(now - slice_end));
    }
    if (now - absl::FromUnixNanos(moved_at_nanos_.load()) <
        options_.step_timeout) {
      continue;
    }
    Cancel(absl::DeadlineExceededError(
        absl::StrCat(options_.label, ": no rank has moved for ",
                     absl::FormatDuration(options_.step_timeout),
                     ", limits.step_timeout_seconds; missing: ", missing())));
    return status();
  }
  absl::Status own = status();
  if (!own.ok()) return own;
  if (done()) return absl::OkStatus();
  // The transport's error names the rank.
  const absl::Status ended = transport_->status();
  // As one that is killed, or as one that closes.
  if (last && absl::IsUnavailable(ended)) return absl::OkStatus();
  Cancel(absl::Status(ended.code(),
                      absl::StrCat(options_.label, ": ", ended.message(),
                                   "; missing: ", missing())));
  return status();
}

// --- Activity ---

absl::Status PeerLink::ReportActivity(int64_t clock, absl::string_view what,
                                      uint64_t done, uint64_t total) {
  auto report = std::make_shared<Report>();
  report->clock = clock;
  report->done = done;
  report->total = total;
  const size_t length = std::min(what.size(), kWhatBytesMax);
  std::memcpy(report->what, what.data(), length);
  const ConstPeerMemory piece = {reinterpret_cast<const uint8_t*>(report.get()),
                                 sizeof(Report)};
  const PeerTag tag = {.clock = 0, .kind = kActivity, .item = reports_++};
  for (uint32_t rank = 0; rank < group_.ranks(); ++rank) {
    if (rank == group_.rank) continue;
    transport_->Send(rank, tag, {piece}, absl::InfiniteFuture(),
                     [report](const absl::Status&) {});
  }
  if (absl::Status own = status(); !own.ok()) return own;
  return transport_->status();
}

void PeerLink::ReceiveReport(uint32_t rank) {
  Heard& heard = heard_[rank];
  transport_->Receive(
      rank, {.clock = 0, .kind = kActivity, .item = heard.number},
      {reinterpret_cast<uint8_t*>(heard.next.get()), sizeof(Report)},
      absl::InfiniteFuture(), [this, rank](const absl::Status& status) {
        if (status.ok()) OnReport(rank);
      });
}

void PeerLink::OnReport(uint32_t rank) {
  Heard& heard = heard_[rank];
  Report& report = *heard.next;
  report.what[kWhatBytesMax] = 0;
  {
    MutexLock lock(&mu_);
    const bool is_more = report.clock > heard.clock ||
                         report.what != heard.what || report.done > heard.done;
    heard.clock = report.clock;
    heard.what = report.what;
    heard.done = report.done;
    heard.total = report.total;
    if (is_more) Moved();
  }
  ++heard.number;
  ReceiveReport(rank);
}

std::string PeerLink::ActivityText(uint32_t rank) const {
  MutexLock lock(&mu_);
  const Heard& heard = heard_[rank];
  if (heard.clock < 0) return "";
  return absl::StrCat(", which said last: ", heard.what, ", ", heard.done,
                      " of ", heard.total);
}

}  // namespace syncline::worker

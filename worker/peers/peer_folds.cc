#include "worker/peers/peer_folds.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/wire/statistics_limits.h"

namespace syncline::worker {
namespace {

struct Head {
  uint64_t count = 0;  // values that follow; 0: the rank takes part no more
  uint64_t reserved[7] = {};
};

template <typename T>
PeerMemory Writable(T* values, size_t count) {
  return {reinterpret_cast<uint8_t*>(values), count * sizeof(T)};
}
template <typename T>
ConstPeerMemory Readable(const T* values, size_t count) {
  return {reinterpret_cast<const uint8_t*>(values), count * sizeof(T)};
}

}  // namespace

// Memory of one fold's messages, which the callbacks keep.
struct PeerFolds::Parts {
  Parts(uint32_t ranks, int64_t clock_of, uint32_t fold_of, size_t width_of)
      : clock(clock_of),
        fold(fold_of),
        width(width_of),
        heads(ranks),
        bodies(ranks),
        here(ranks) {}

  const int64_t clock;
  const uint32_t fold;
  const size_t width;  // values of a part; 0: this rank takes no part
  Head head_out;
  std::vector<double> body_out;
  std::vector<Head> heads;                  // by rank
  std::vector<std::vector<double>> bodies;  // by rank
  std::vector<std::atomic<bool>> here;      // by rank: all of its part
};

PeerFolds::PeerFolds(std::shared_ptr<PeerLink> link)
    : link_(std::move(link)), absent_(link_->ranks(), false) {}

PeerFolds::~PeerFolds() = default;

void PeerFolds::BeginStep(int64_t clock, StepRecorder* recorder) {
  EndClock();
  clock_ = clock;
  left_ = false;
  fold_ = 0;
  absent_.assign(link_->ranks(), false);
  recorder_ = recorder;
  waited_ = absl::ZeroDuration();
  spoilt_by_others_ = false;
}

absl::Status PeerFolds::Fold(absl::Span<double> values) {
  if (!status_.ok() || values.empty()) return status_;
  const StepRecorder::Interval interval(recorder_, StepProfile::WAIT);
  const absl::Time begin = MonotonicNow();
  const bool own_are_finite = AreFinite(values);
  status_ = Reduce(values);
  waited_ += MonotonicNow() - begin;
  if (status_.ok() && own_are_finite && !AreFinite(values)) {
    spoilt_by_others_ = true;
  }
  return status_;
}

absl::Status PeerFolds::Leave() {
  if (status_.ok()) status_ = link_->status();
  if (status_.ok()) EndClock();
  return status_;
}

void PeerFolds::EndClock() {
  if (std::exchange(left_, true)) return;
  const auto parts = std::make_shared<Parts>(link_->ranks(), clock_, fold_, 0);
  Receive(parts);
  Send({}, parts);
}

void PeerFolds::Send(absl::Span<const double> values,
                     const std::shared_ptr<Parts>& of) {
  of->head_out.count = values.size();
  of->body_out.assign(values.begin(), values.end());
  const auto send = [&](uint32_t to, PeerMessage kind, ConstPeerMemory piece) {
    link_->transport().Send(
        to, {.clock = of->clock, .kind = kind, .item = of->fold}, {piece},
        absl::InfiniteFuture(), [of](const absl::Status&) {});
  };
  for (uint32_t rank = 0; rank < link_->ranks(); ++rank) {
    if (rank == link_->rank() || absent_[rank]) continue;
    send(rank, kFoldHead, Readable(&of->head_out, 1));
    if (values.empty()) continue;
    send(rank, kFoldBody, Readable(of->body_out.data(), values.size()));
  }
}

void PeerFolds::Receive(const std::shared_ptr<Parts>& of) {
  PeerLink* const link = link_.get();
  for (uint32_t rank = 0; rank < link->ranks(); ++rank) {
    if (rank == link->rank() || absent_[rank]) continue;
    const auto on_head = [of, link, rank](const absl::Status& status) {
      if (!status.ok()) return;
      const uint64_t count = of->heads[rank].count;
      if (count > kFoldedValuesMax ||
          (count != 0 && of->width != 0 && count != of->width)) {
        return link->Cancel(absl::InvalidArgumentError(
            absl::StrCat(link->label(), ": ", link->group().NameOf(rank),
                         " folds ", count, " statistics in fold ", of->fold,
                         " of clock ", of->clock, ", this rank ", of->width)));
      }
      link->Moved();
      if (count == 0) {
        of->here[rank] = true;
        return;
      }
      of->bodies[rank].resize(count);
      link->transport().Receive(
          rank, {.clock = of->clock, .kind = kFoldBody, .item = of->fold},
          Writable(of->bodies[rank].data(), count), absl::InfiniteFuture(),
          [of, link, rank](const absl::Status& body) {
            if (!body.ok()) return;
            link->Moved();
            of->here[rank] = true;
          });
    };
    link->transport().Receive(
        rank, {.clock = of->clock, .kind = kFoldHead, .item = of->fold},
        Writable(&of->heads[rank], 1), absl::InfiniteFuture(), on_head);
  }
}

absl::Status PeerFolds::Reduce(absl::Span<double> values) {
  for (size_t begin = 0; begin < values.size(); begin += kFoldedValuesMax) {
    SYNCLINE_RETURN_IF_ERROR(
        ReducePiece(values.subspan(begin, kFoldedValuesMax)));
  }
  return absl::OkStatus();
}

absl::Status PeerFolds::ReducePiece(absl::Span<double> values) {
  const auto parts =
      std::make_shared<Parts>(link_->ranks(), clock_, fold_, values.size());
  const auto lacks = [&](uint32_t rank) {
    return rank != link_->rank() && !absent_[rank] && !parts->here[rank].load();
  };
  Receive(parts);
  Send(values, parts);
  SYNCLINE_RETURN_IF_ERROR(link_->Await(
      [&] {
        for (uint32_t rank = 0; rank < link_->ranks(); ++rank) {
          if (lacks(rank)) return false;
        }
        return true;
      },
      [&] {
        std::vector<std::string> names;
        for (uint32_t rank = 0; rank < link_->ranks(); ++rank) {
          if (!lacks(rank)) continue;
          names.push_back(absl::StrCat(link_->group().NameOf(rank),
                                       link_->ActivityText(rank)));
        }
        return absl::StrCat("the batch statistics of clock ", clock_, ", fold ",
                            fold_, ", of ", absl::StrJoin(names, ", "));
      }));
  ++fold_;
  std::vector<double> sums(values.size(), 0);
  for (uint32_t rank = 0; rank < link_->ranks(); ++rank) {
    const bool is_own = rank == link_->rank();
    if (!is_own && parts->bodies[rank].empty()) {
      absent_[rank] = true;
      continue;
    }
    const double* const part =
        is_own ? values.data() : parts->bodies[rank].data();
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += part[i];
  }
  std::copy(sums.begin(), sums.end(), values.begin());
  return absl::OkStatus();
}

}  // namespace syncline::worker

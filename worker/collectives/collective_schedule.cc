#include "worker/collectives/collective_schedule.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace syncline::worker {
namespace {

using Step = CollectiveStep;
using Kind = CollectiveStep::Kind;

// Parts begin at a cache line.
constexpr size_t kPartUnit = 16;
// Sums of so many segments are under way at a time.
constexpr size_t kSegmentsOpen = 4;
// The second half of messages between two ranks: what owners send back.
constexpr uint32_t kGatherMessages = 1 << 15;

class Builder {
 public:
  Builder(size_t count, uint32_t rank, uint32_t ranks)
      : count_(count), rank_(rank), ranks_(ranks) {}

  uint32_t Add(Step step, std::vector<uint32_t> after = {}) {
    const auto id = static_cast<uint32_t>(schedule_.steps.size());
    step.waits_for = static_cast<uint32_t>(after.size());
    for (const uint32_t before : after) {
      schedule_.steps[before].next.push_back(id);
    }
    schedule_.steps.push_back(std::move(step));
    return id;
  }

  void Exchange();
  void DirectReduce();
  // After DirectReduce, or alone.
  void DirectGather();
  void RingReduce();
  void RingGather();
  void Tree();

  CollectiveSchedule Take() { return std::move(schedule_); }

 private:
  // Of a part, in order.
  std::vector<ElementRange> SegmentsOf(uint32_t owner) const {
    const ElementRange part = PartOf(count_, owner, ranks_);
    std::vector<ElementRange> segments;
    for (size_t begin = part.begin; begin < part.end;
         begin += kSegmentElements) {
      segments.push_back({begin, std::min(part.end, begin + kSegmentElements)});
    }
    return segments;
  }
  // Adds what the others have of `elements` to this rank's, in rank order. Each
  // begins after `after`. Returns the last step.
  uint32_t Fold(const ElementRange& elements, size_t scratch, uint32_t message,
                const std::vector<uint32_t>& after);

  const size_t count_;
  const uint32_t rank_;
  const uint32_t ranks_;
  CollectiveSchedule schedule_;
  // The steps that made segments of the own part final.
  std::vector<uint32_t> reduced_;
  // The step that sent a segment of another's part away, by owner.
  std::vector<std::vector<uint32_t>> sent_;
  uint32_t ring_last_ = 0;
  bool has_ring_last_ = false;
  std::vector<uint32_t> ring_sends_;  // by part
};

uint32_t Builder::Fold(const ElementRange& elements, size_t scratch,
                       uint32_t message, const std::vector<uint32_t>& after) {
  // Sums of two are the same in either order. So rank 1 adds g0 to its own, and
  // only those behind it need a place for the sum of those before them.
  uint32_t last = 0;
  bool first = true;
  for (uint32_t peer = 0; peer < ranks_; ++peer) {
    if (peer == rank_) continue;
    Kind kind = Kind::kAdd;
    if (rank_ >= 2 && peer < rank_) {
      kind = peer == 0           ? Kind::kStage
             : peer + 1 == rank_ ? Kind::kFold
                                 : Kind::kStageAdd;
      schedule_.scratch_elements =
          std::max(schedule_.scratch_elements, scratch + elements.size());
    }
    last = Add({kind, peer, elements, scratch, message},
               first ? after : std::vector<uint32_t>{last});
    first = false;
  }
  return last;
}

void Builder::Exchange() {
  // Nothing is added before all has been sent, and everything is received
  // meanwhile: each rank's messages may wait for the other's Receive.
  const ElementRange all = {0, count_};
  std::vector<uint32_t> messages;
  for (uint32_t i = 1; i < ranks_; ++i) {
    const uint32_t from = (rank_ + ranks_ - i) % ranks_;
    const size_t place = from < rank_ ? from : from - 1;
    messages.push_back(Add({Kind::kStage, from, all, place * count_}));
    messages.push_back(Add({Kind::kSend, (rank_ + i) % ranks_, all}));
  }
  schedule_.scratch_elements = (ranks_ - 1) * count_;
  Add({Kind::kFoldAll, rank_, all}, messages);
}

void Builder::DirectReduce() {
  sent_.resize(ranks_);
  std::vector<std::vector<ElementRange>> segments;
  size_t most = 0;
  for (uint32_t owner = 0; owner < ranks_; ++owner) {
    segments.push_back(SegmentsOf(owner));
    most = std::max(most, segments.back().size());
  }
  for (size_t s = 0; s < most; ++s) {
    for (uint32_t i = 1; i < ranks_; ++i) {
      const uint32_t owner = (rank_ + i) % ranks_;
      if (s >= segments[owner].size()) continue;
      sent_[owner].push_back(Add({Kind::kSend, owner, segments[owner][s], 0,
                                  static_cast<uint32_t>(s)}));
    }
    if (s >= segments[rank_].size()) continue;
    std::vector<uint32_t> after;
    // With one other rank the segments come one after the other anyway.
    if (ranks_ > 2 && s >= kSegmentsOpen) {
      after = {reduced_[s - kSegmentsOpen]};
    }
    reduced_.push_back(Fold(segments[rank_][s],
                            s % kSegmentsOpen * kSegmentElements,
                            static_cast<uint32_t>(s), after));
  }
}

void Builder::DirectGather() {
  for (uint32_t i = 1; i < ranks_; ++i) {
    const uint32_t owner = (rank_ + i) % ranks_;
    const std::vector<ElementRange> segments = SegmentsOf(owner);
    for (size_t s = 0; s < segments.size(); ++s) {
      std::vector<uint32_t> after;
      if (!sent_.empty()) after = {sent_[owner][s]};
      Add({Kind::kReceive, owner, segments[s], 0,
           kGatherMessages + static_cast<uint32_t>(s)},
          after);
    }
  }
  const std::vector<ElementRange> own = SegmentsOf(rank_);
  for (size_t s = 0; s < own.size(); ++s) {
    for (uint32_t i = 1; i < ranks_; ++i) {
      std::vector<uint32_t> after;
      if (!reduced_.empty()) after = {reduced_[s]};
      Add({Kind::kSend, (rank_ + i) % ranks_, own[s], 0,
           kGatherMessages + static_cast<uint32_t>(s)},
          after);
    }
  }
}

void Builder::RingReduce() {
  const uint32_t next = (rank_ + 1) % ranks_;
  const uint32_t previous = (rank_ + ranks_ - 1) % ranks_;
  ring_sends_.resize(ranks_);
  // In round k a rank sends on the part of the rank k + 1 before it, which ends
  // at its owner.
  for (uint32_t k = 0; k + 1 < ranks_; ++k) {
    const uint32_t out = (rank_ + 2 * ranks_ - k - 1) % ranks_;
    const uint32_t in = (rank_ + 2 * ranks_ - k - 2) % ranks_;
    std::vector<uint32_t> after;
    if (has_ring_last_) after = {ring_last_};
    ring_sends_[out] =
        Add({Kind::kSend, next, PartOf(count_, out, ranks_), 0, k}, after);
    ring_last_ =
        Add({Kind::kAdd, previous, PartOf(count_, in, ranks_), 0, k}, {});
    has_ring_last_ = true;
  }
}

void Builder::RingGather() {
  const uint32_t next = (rank_ + 1) % ranks_;
  const uint32_t previous = (rank_ + ranks_ - 1) % ranks_;
  for (uint32_t k = 0; k + 1 < ranks_; ++k) {
    const uint32_t out = (rank_ + ranks_ - k) % ranks_;
    const uint32_t in = (rank_ + 2 * ranks_ - k - 1) % ranks_;
    std::vector<uint32_t> after;
    if (has_ring_last_) after = {ring_last_};
    Add({Kind::kSend, next, PartOf(count_, out, ranks_), 0,
         kGatherMessages + k},
        after);
    // Its old elements may still be on their way to the next rank.
    std::vector<uint32_t> before;
    if (!ring_sends_.empty()) before = {ring_sends_[in]};
    ring_last_ = Add({Kind::kReceive, previous, PartOf(count_, in, ranks_), 0,
                      kGatherMessages + k},
                     before);
    has_ring_last_ = true;
  }
}

void Builder::Tree() {
  const ElementRange all = {0, count_};
  std::vector<uint32_t> children;
  uint32_t parent = 0;
  for (uint32_t bit = 1; bit < ranks_; bit <<= 1) {
    if ((rank_ & bit) != 0) {
      parent = rank_ & ~bit;
      break;
    }
    if ((rank_ | bit) < ranks_) children.push_back(rank_ | bit);
  }
  std::vector<uint32_t> last;
  for (const uint32_t child : children) {
    last = {Add({Kind::kAdd, child, all}, last)};
  }
  if (rank_ != 0) {
    last = {Add({Kind::kSend, parent, all}, last)};
    last = {Add({Kind::kReceive, parent, all, 0, kGatherMessages}, last)};
  }
  for (size_t i = children.size(); i-- > 0;) {
    Add({Kind::kSend, children[i], all, 0, kGatherMessages}, last);
  }
}

}  // namespace

absl::string_view NameOf(CollectiveAlgorithm algorithm) {
  switch (algorithm) {
    case CollectiveAlgorithm::kExchange:
      return "exchange";
    case CollectiveAlgorithm::kDirect:
      return "direct";
    case CollectiveAlgorithm::kRing:
      return "ring";
    case CollectiveAlgorithm::kTree:
      return "tree";
  }
  return "";
}

ElementRange PartOf(size_t count, uint32_t rank, uint32_t ranks) {
  const size_t units = (count + kPartUnit - 1) / kPartUnit;
  const auto begin_of = [&](size_t r) {
    const size_t unit = units / ranks * r + std::min(r, units % ranks);
    return std::min(count, unit * kPartUnit);
  };
  return {begin_of(rank), begin_of(size_t{rank} + 1)};
}

CollectiveSchedule MakeSchedule(CollectiveKind kind,
                                CollectiveAlgorithm algorithm, size_t count,
                                uint32_t rank, uint32_t ranks) {
  SYNCLINE_CHECK(rank < ranks && count <= kCollectiveElementsMax);
  Builder builder(count, rank, ranks);
  if (ranks == 1 || count == 0) return builder.Take();
  const bool all = kind == CollectiveKind::kAllReduce;
  const bool reduces = kind != CollectiveKind::kAllGather;
  const bool gathers = kind != CollectiveKind::kReduceScatter;
  if (all && algorithm == CollectiveAlgorithm::kExchange &&
      count <= kExchangeElementsMax) {
    builder.Exchange();
  } else if (all && algorithm == CollectiveAlgorithm::kTree) {
    builder.Tree();
  } else if (algorithm == CollectiveAlgorithm::kRing) {
    if (reduces) builder.RingReduce();
    if (gathers) builder.RingGather();
  } else {
    if (reduces) builder.DirectReduce();
    if (gathers) builder.DirectGather();
  }
  return builder.Take();
}

}  // namespace syncline::worker

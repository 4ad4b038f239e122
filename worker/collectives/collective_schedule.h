#ifndef SYNCLINE_WORKER_COLLECTIVES_COLLECTIVE_SCHEDULE_H_
#define SYNCLINE_WORKER_COLLECTIVES_COLLECTIVE_SCHEDULE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"

namespace syncline::worker {

// The effect of a collective on a vector of float32 that each rank has. A part
// is what PartOf says; its owner is the rank of that number.
enum class CollectiveKind {
  kReduceScatter = 0,  // each owner has the sum of its part
  kAllGather = 1,      // every rank has every owner's part
  kAllReduce = 2,      // every rank has the sum of everything
};

// The algorithm of a collective. Sums of kExchange and kDirect have the same
// bits: ((g0 + g1) + g2) ..., in rank order. So do those of every job that has
// its blocks' owners sum them. kRing adds a part's gradients in the order of
// the ring, from the rank behind the owner on; kTree adds those of subtrees.
enum class CollectiveAlgorithm {
  kExchange = 0,  // each sends all to each: one round. Up to
                  // kExchangeElementsMax; longer ones are kDirect
  kDirect = 1,    // each sends each owner its part, which it sends back: two
  kRing = 2,      // 2 (n - 1) rounds, to the next rank alone
  kTree = 3,      // to rank 0 and back, over a binomial tree
};
absl::string_view NameOf(CollectiveAlgorithm algorithm);

// Elements [begin, end) of a vector.
struct ElementRange {
  size_t begin = 0;
  size_t end = 0;
  size_t size() const { return end - begin; }
  friend bool operator==(const ElementRange& a, const ElementRange& b) {
    return a.begin == b.begin && a.end == b.end;
  }
};

// The part of `count` elements that `rank` of `ranks` owns: as equal as
// multiples of 16 allow, in rank order; the last ones may be empty.
ElementRange PartOf(size_t count, uint32_t rank, uint32_t ranks);

// A step of one rank in a collective. It begins when those before it have
// ended. Both sides of a message give it the same `message`.
struct CollectiveStep {
  enum class Kind {
    kSend,      // own elements
    kReceive,   // own = what comes
    kAdd,       // own = own + what comes
    kStage,     // scratch = what comes
    kStageAdd,  // scratch = scratch + what comes
    kFold,      // own = (scratch + what comes) + own
    kFoldAll,  // no message: own = the sum in rank order of own and of what the
               // other ranks have staged, one behind the other in rank order
  };
  Kind kind = Kind::kSend;
  uint32_t peer = 0;
  ElementRange elements;  // of the rank's vector
  size_t scratch = 0;     // the first element of the scratch, where used
  uint32_t message = 0;   // < 2^16
  // Steps that begin once this one and others have ended, and how many must
  // have ended before this one.
  std::vector<uint32_t> next = {};
  uint32_t waits_for = 0;
};

struct CollectiveSchedule {
  std::vector<CollectiveStep> steps;
  size_t scratch_elements = 0;
};

// Longer vectors are not exchanged as a whole: each rank would add up all of
// it.
inline constexpr size_t kExchangeElementsMax = 16 << 10;
// Most elements of a vector: a rank's part is at most 2^15 messages.
inline constexpr size_t kSegmentElements = 64 << 10;
inline constexpr size_t kCollectiveElementsMax =
    (size_t{1} << 15) * kSegmentElements;

// The schedule of `rank`. Pure. kReduceScatter and kAllGather know kDirect and
// kRing; for these kExchange and kTree mean kDirect. REQUIRES: rank < ranks,
// count <= kCollectiveElementsMax.
CollectiveSchedule MakeSchedule(CollectiveKind kind,
                                CollectiveAlgorithm algorithm, size_t count,
                                uint32_t rank, uint32_t ranks);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COLLECTIVES_COLLECTIVE_SCHEDULE_H_

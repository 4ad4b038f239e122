#ifndef SYNCLINE_COMMON_REGIME_LIVE_REGIMES_H_
#define SYNCLINE_COMMON_REGIME_LIVE_REGIMES_H_

#include <atomic>
#include <cstdint>
#include <deque>

#include "common/regime/regime_schedule.h"

namespace syncline {

// The regimes of a job that runs, for threads that ask for the regime of a
// clock while another thread adds one. What a clock was answered stays valid as
// long as this: nothing is removed or moved.
//
// Thread-safe: At from any thread, without a lock; Add from one at a time. A
// thread sees a regime that was added before its work was handed to it.
class LiveRegimes {
 public:
  explicit LiveRegimes(const RegimeSchedule& regimes) {
    for (const TrainingRegime& regime : regimes.regimes()) Add(regime);
  }
  LiveRegimes(const LiveRegimes&) = delete;
  LiveRegimes& operator=(const LiveRegimes&) = delete;

  // As RegimeSchedule::At.
  const TrainingRegime& At(int64_t clock) const {
    const Node* node = last_.load(std::memory_order_acquire);
    while (node->before != nullptr && node->regime.first_clock > clock) {
      node = node->before;
    }
    return node->regime;
  }
  // Whether values travel, or have travelled, in this type.
  bool HasWireType(ElementType type) const {
    const Node* node = last_.load(std::memory_order_acquire);
    while (node != nullptr && node->regime.wire_type != type) {
      node = node->before;
    }
    return node != nullptr;
  }
  // REQUIRES: no clock of it has begun, and it is behind the others;
  // RegimeSchedule::Add has said so.
  void Add(const TrainingRegime& regime) {
    const Node* const before = last_.load(std::memory_order_relaxed);
    nodes_.push_back({regime, before});  // moves none of the others
    last_.store(&nodes_.back(), std::memory_order_release);
  }

 private:
  struct Node {
    TrainingRegime regime;
    const Node* before;
  };

  std::deque<Node> nodes_;  // of the adding thread
  std::atomic<const Node*> last_ = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_REGIME_LIVE_REGIMES_H_

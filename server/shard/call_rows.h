#ifndef SYNCLINE_SERVER_SHARD_CALL_ROWS_H_
#define SYNCLINE_SERVER_SHARD_CALL_ROWS_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/update/float_source.h"
#include "server/memory/in_flight_budget.h"
#include "server/shard/shard_layout.h"

namespace syncline::ps {

// The rows of one call, for as long as a lane works on them.
struct CallRows {
  std::vector<RowList> lists;
  std::shared_ptr<const FloatSource> values;  // of a push; null in a pull
  InFlightBudget::Hold hold;                  // of the keys
  InFlightBudget::Hold payload_hold;  // where the values outlive their call
};

// Part of one list of a call: [first, first + count).
struct CallRowSpan {
  uint32_t rank = 0;
  std::shared_ptr<CallRows> call;
  const RowList* list = nullptr;
  uint32_t first = 0;
  uint32_t count = 0;

  absl::Span<const int64_t> keys() const {
    return absl::MakeConstSpan(list->keys).subspan(first, count);
  }
  // Of the first value, as RowList::first.
  size_t first_element(uint32_t dim) const {
    return list->first + size_t{first} * dim;
  }
  // `next` begins where this one ends.
  bool IsFollowedBy(const CallRowSpan& next) const {
    return rank == next.rank && list == next.list &&
           first + count == next.first;
  }
};

// The rows of the call's `index`-th touched slot, counted over all its lists.
inline CallRowSpan RowsOfSlot(const std::shared_ptr<CallRows>& call,
                              size_t index, uint32_t rank) {
  const RowList* list = call->lists.data();
  for (; index >= list->runs.size(); ++list) index -= list->runs.size();
  const SlotRun& run = list->runs[index];
  return {rank, call, list, run.first, run.count};
}

// Gradients of slots that have arrived and are not applied yet: in SYNC those
// of the ranks that came first, else for the moment between two actions.
// Thread-compatible.
class SlotGradients {
 public:
  explicit SlotGradients(size_t slots) : slots_(slots) {}

  void Buffer(size_t slot, CallRowSpan rows) {
    std::vector<CallRowSpan>& gradients = slots_[slot];
    auto behind = gradients.end();
    while (behind != gradients.begin() && (behind - 1)->rank > rows.rank)
      --behind;
    gradients.insert(behind, std::move(rows));
  }
  // By rank.
  const std::vector<CallRowSpan>& Of(size_t slot) const { return slots_[slot]; }
  // Those of one rank. The slot has none of it afterwards.
  std::vector<CallRowSpan> TakeOf(size_t slot, uint32_t rank) {
    std::vector<CallRowSpan> taken;
    std::vector<CallRowSpan> left;
    for (CallRowSpan& rows : slots_[slot]) {
      (rows.rank == rank ? taken : left).push_back(std::move(rows));
    }
    slots_[slot] = std::move(left);
    return taken;
  }
  // The same of all. The slot is empty afterwards.
  std::vector<CallRowSpan> Take(size_t slot) {
    return std::exchange(slots_[slot], {});
  }

 private:
  std::vector<std::vector<CallRowSpan>> slots_;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SHARD_CALL_ROWS_H_

#ifndef SYNCLINE_SERVER_SHARD_PENDING_CALLS_H_
#define SYNCLINE_SERVER_SHARD_PENDING_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "common/base/element_type.h"
#include "common/update/float_source.h"
#include "server/consistency/shard_call.h"
#include "server/memory/in_flight_budget.h"
#include "server/memory/shared_regions.h"
#include "server/shard/call_rows.h"
#include "server/shard/lane_executor.h"

namespace syncline::ps {

// A received payload, its part of the in-flight budget, and the area for the
// answer if that may go into shared memory.
struct CallPayload {
  std::shared_ptr<const FloatSource> values;  // null: none
  InFlightBudget::Hold hold;
  // Rows to push, whose values are those above, and rows to pull; null: none.
  std::shared_ptr<CallRows> pushed;
  std::shared_ptr<CallRows> pulled;
  // Of the list of blocks to pull, until it is answered.
  InFlightBudget::Hold pull_hold;
  AnswerArea answer;
  // The payload came over the network. Its bytes fill its sender's window until
  // the sender is told that the lanes have taken the payload.
  bool fills_window = false;
};

// A call that has not ended.
struct PendingCall {
  uint32_t rank = 0;
  absl::Time arrived;
  absl::Time deadline;
  CallPayload payload;
  std::vector<size_t> offsets;  // of the payload's blocks, in elements
  std::vector<BlockIndex> pulled;
  ElementType pulled_type = ElementType::kFloat32;
  ValueForm pulled_form = ValueForm::kOwn;
  std::shared_ptr<CallRows> pulled_rows;
  InFlightBudget::Hold pull_hold;
  AnswerArea answer;
  uint64_t parked_bytes = 0;  // as of SetParkedBytes
  bool may_read = false;      // waits for earlier answers alone
  absl::AnyInvocable<void()> taken;
  PullReading::Done done;

  // Bytes of the budget that it holds: payload, list of blocks, keys of rows.
  uint64_t BytesHeld() const;
};

// The calls to a shard that have not ended, and the bytes of the budget that
// those hold which must wait. Thread-compatible.
class PendingCalls {
 public:
  // Adds an empty call with a token of its own. The call stays where it is
  // until the next Add.
  CallToken Add();
  // Null: it has ended.
  PendingCall* Find(CallToken token);
  // REQUIRES: it has not ended.
  PendingCall& At(CallToken token);
  // Removes the call and no longer counts its bytes. REQUIRES: as At.
  PendingCall Extract(CallToken token);

  // Frees the payload and its part of the budget; no bytes count as parked.
  void ReleasePayload(PendingCall* call);
  // From now on `bytes` of the call count as parked.
  void SetParkedBytes(PendingCall* call, uint64_t bytes);
  uint64_t parked_bytes() const { return parked_bytes_; }

  // Gives every call so much more time.
  void ExtendDeadlines(absl::Duration by);

 private:
  absl::flat_hash_map<CallToken, PendingCall> calls_;
  CallToken next_token_ = 1;
  uint64_t parked_bytes_ = 0;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SHARD_PENDING_CALLS_H_

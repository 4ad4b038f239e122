#ifndef SYNCLINE_COMMON_RPC_STEADY_EVENT_ENGINE_H_
#define SYNCLINE_COMMON_RPC_STEADY_EVENT_ENGINE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"

namespace syncline {

// Functions that are to run at a moment, the earliest first. Pure.
// Thread-compatible.
class TimerQueue {
 public:
  using Function = absl::AnyInvocable<void()>;

  // Returns the timer's id, which is never 0 and never used again.
  int64_t Add(absl::Time due, Function function);
  // Nothing if the timer has been taken, or there never was one.
  std::optional<Function> Take(int64_t id);
  // Takes those that are due, in the order of their moments; those of one
  // moment in the order in which they were added.
  std::vector<Function> TakeDue(absl::Time now);
  // InfiniteFuture() if there is none.
  absl::Time next_due() const;

 private:
  std::map<std::pair<absl::Time, int64_t>, Function> timers_;
  absl::flat_hash_map<int64_t, absl::Time> due_;  // by id
  int64_t last_id_ = 0;
};

// From the first call on, the timers of gRPC's event engine (reconnects above
// all) follow the monotonic clock. Debian's gRPC waits for them with Abseil, by
// the wall clock: once that clock is set back by an hour, a lost connection is
// not tried again for an hour. All else stays with gRPC's own engine. Call it
// before the process makes a channel or a server. Thread-safe.
void UseSteadyEventEngine();

}  // namespace syncline

#endif  // SYNCLINE_COMMON_RPC_STEADY_EVENT_ENGINE_H_

#include "worker/client/transport/call_windows.h"

#include <cstdint>
#include <utility>

namespace syncline::worker {
namespace {

// A push in shared memory is answered before others may enter its window, and
// its answer may wait for the same push of another worker. So there all workers
// keep to one order, that of their Start.
int64_t RankOf(const ActiveCall& active) {
  return active.route == CallRoute::kShared &&
                 active.call.direction == FanoutCall::Direction::kPush
             ? 0
             : active.call.rank;
}

}  // namespace

CallWindows::CallWindows(const FanoutCall::Options& options)
    : answers_need_later_pushes_(options.shared.answers_need_later_pushes),
      push_(options.push_window_bytes),
      pull_(options.pull_window_bytes),
      shared_push_(options.shared.window_bytes),
      shared_pull_(options.shared.window_bytes) {}

CallRoute CallWindows::ChooseRoute(const FanoutCall::Call& call,
                                   bool has_shared_memory) const {
  if (!has_shared_memory || call.bytes == 0) return CallRoute::kNetwork;
  // Calls that only pull may wait: nothing waits for them.
  if (answers_need_later_pushes_ &&
      call.direction == FanoutCall::Direction::kPush &&
      !shared_push_.HasRoom(call.bytes)) {
    return CallRoute::kNetwork;
  }
  return CallRoute::kShared;
}

bool CallWindows::TryEnter(const ActiveCallPtr& active) {
  return WindowOf(*active).TryEnter(active->call.bytes, active,
                                    RankOf(*active));
}

bool CallWindows::TryEnterAgain(const ActiveCallPtr& active) {
  if (std::exchange(active->in_window, true)) return true;
  return TryEnter(active);
}

std::vector<ActiveCallPtr> CallWindows::OnTaken(ActiveCall* active) {
  // A payload in shared memory takes up room there until the call is answered.
  if (active->call.direction != FanoutCall::Direction::kPush ||
      active->route == CallRoute::kShared) {
    return {};
  }
  return OnEnded(active);
}

std::vector<ActiveCallPtr> CallWindows::OnEnded(ActiveCall* active) {
  if (!std::exchange(active->in_window, false)) return {};
  return WindowOf(*active).Leave(active->call.bytes);
}

size_t CallWindows::Clear() {
  return push_.Clear() + pull_.Clear() + shared_push_.Clear() +
         shared_pull_.Clear();
}

CallWindows::Window& CallWindows::WindowOf(const ActiveCall& active) {
  const bool is_shared = active.route == CallRoute::kShared;
  if (active.call.direction == FanoutCall::Direction::kPush) {
    return is_shared ? shared_push_ : push_;
  }
  return is_shared ? shared_pull_ : pull_;
}

}  // namespace syncline::worker

#include "scheduler/core/job/checkpoint_requests.h"

#include "absl/algorithm/container.h"

namespace syncline::scheduler {

template <typename Predicate>
std::vector<uint64_t> CheckpointRequests::TakeIf(Predicate predicate) {
  std::vector<uint64_t> taken;
  std::vector<Open> rest;
  for (const Open& open : open_) {
    if (predicate(open)) {
      taken.push_back(open.request);
    } else {
      rest.push_back(open);
    }
  }
  open_ = rest;
  return taken;
}

std::vector<uint64_t> CheckpointRequests::TakeReached(int64_t clock,
                                                      absl::string_view path) {
  return TakeIf([&](const Open& open) {
    return open.clock <= clock && open.known != path;
  });
}

std::vector<uint64_t> CheckpointRequests::TakeOverdue(absl::Time now) {
  return TakeIf([now](const Open& open) { return open.deadline <= now; });
}

std::vector<uint64_t> CheckpointRequests::TakeAll() {
  return TakeIf([](const Open&) { return true; });
}

bool CheckpointRequests::Contains(uint64_t request) const {
  return absl::c_any_of(
      open_, [request](const Open& open) { return open.request == request; });
}

}  // namespace syncline::scheduler

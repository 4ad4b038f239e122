#include "server/consistency/straggler_log.h"

#include <algorithm>

namespace syncline::ps {

void StragglerLog::Update(const std::optional<Holder>& holder, absl::Time now) {
  if (holder == holder_) return;
  if (holder_.has_value()) {
    Blame& blame = blames_[holder_->rank];
    blame.time += std::max(now - since_, absl::ZeroDuration());
    ++blame.clocks;
  }
  holder_ = holder;
  since_ = now;
}

StragglerLog::Blame StragglerLog::Of(uint32_t rank, absl::Time now) const {
  Blame blame = blames_[rank];
  if (holder_.has_value() && holder_->rank == rank) {
    blame.time += std::max(now - since_, absl::ZeroDuration());
  }
  return blame;
}

}  // namespace syncline::ps

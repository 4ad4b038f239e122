#include "server/consistency/leased_clocks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/regime/leased_clock.h"

namespace syncline::ps {

void LeasedClocks::Begin(int64_t start, int64_t total) {
  total_ = total;
  const auto workers = static_cast<uint32_t>(leases_.size());
  for (uint32_t rank = 0; rank < workers; ++rank) {
    Leases& of = leases_[rank];
    of.current = FirstLeasedClock(start, rank, total);
    of.next = FirstLeasedClock(start + workers, rank, total);
  }
  free_ = std::min(start + 2 * int64_t{workers}, total);
}

absl::Status LeasedClocks::Check(uint32_t rank, absl::string_view name,
                                 const PushFacts& push) const {
  const Leases& of = leases_[rank];
  if (push.clock == of.current && push.next_clock() == of.next &&
      push.finished == (of.next == total_)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "push of clock ", push.clock, " by ", name, ", ",
      push.finished ? "its last" : absl::StrCat("before ", push.next_clock()),
      "; leased to it are ", of.current, " and ",
      of.next == total_ ? "no later one" : absl::StrCat("then ", of.next)));
}

void LeasedClocks::Deal(uint32_t rank) {
  Leases& of = leases_[rank];
  of.current = of.next;
  of.next = total_;
  if (!of.is_lost && free_ < total_) of.next = free_++;
}

void LeasedClocks::Return(uint32_t rank, absl::Span<const int64_t> clocks) {
  Leases& of = leases_[rank];
  of.is_lost = true;
  of.current = clocks.empty() ? total_ : clocks[0];
  of.next = clocks.size() > 1 ? clocks[1] : total_;
}

std::vector<int64_t> LeasedClocks::Of(uint32_t rank) const {
  std::vector<int64_t> clocks;
  for (const int64_t clock : {leases_[rank].current, leases_[rank].next}) {
    if (clock < total_) clocks.push_back(clock);
  }
  return clocks;
}

}  // namespace syncline::ps

#include "common/wire/smallest_cut.h"

#include <algorithm>
#include <string>

#include "absl/strings/cord.h"
#include "common/cuts/cut_id.h"
#include "proto/parameter_server.pb.h"

namespace syncline {

absl::Status WithSmallestCut(absl::Status refusal,
                             absl::Span<const int64_t> clocks) {
  SmallestCut detail;
  for (const int64_t clock : clocks) detail.add_clocks(clock);
  refusal.SetPayload(kCutClocksDetail, absl::Cord(detail.SerializeAsString()));
  return refusal;
}

std::optional<std::vector<int64_t>> SmallestCutOf(const absl::Status& refusal,
                                                  size_t workers) {
  const auto payload = refusal.GetPayload(kCutClocksDetail);
  SmallestCut detail;
  if (!payload.has_value() || !detail.ParseFromString(std::string(*payload)) ||
      static_cast<size_t>(detail.clocks_size()) != workers) {
    return std::nullopt;
  }
  std::vector<int64_t> clocks(detail.clocks().begin(), detail.clocks().end());
  const bool valid = std::all_of(
      clocks.begin(), clocks.end(),
      [](int64_t clock) { return clock >= 0 && clock <= kCutClockMax; });
  if (!valid) return std::nullopt;
  return clocks;
}

}  // namespace syncline

#include "common/job/auc.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace syncline {

std::optional<double> Auc(std::vector<float> positive,
                          std::vector<float> negative) {
  if (positive.empty() || negative.empty()) return std::nullopt;
  std::sort(positive.begin(), positive.end());
  std::sort(negative.begin(), negative.end());
  // Half pairs, so no rounding before the one division.
  uint64_t half_pairs = 0;
  size_t below = 0;      // negatives < the positive at hand
  size_t not_above = 0;  // negatives <= it
  for (const float score : positive) {
    while (below < negative.size() && negative[below] < score) ++below;
    while (not_above < negative.size() && negative[not_above] <= score) {
      ++not_above;
    }
    half_pairs += below + not_above;
  }
  return static_cast<double>(half_pairs) /
         (2.0 * static_cast<double>(positive.size()) *
          static_cast<double>(negative.size()));
}

}  // namespace syncline

#include "common/update/step_rule.h"

#include <cmath>

namespace syncline {

float StepRule::GradientScale(uint64_t sample_count,
                              double squared_norm) const {
  double scale = 1.0 / static_cast<double>(sample_count);
  if (clip_norm > 0 && squared_norm > clip_norm * clip_norm) {
    scale *= clip_norm / std::sqrt(squared_norm);
  }
  return static_cast<float>(scale);
}

}  // namespace syncline

#include "worker/data/label_map.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/data/batch.h"

namespace syncline::worker {

LabelMap::LabelMap(const Label& label, int64_t class_count)
    : classes_(label.classes().begin(), label.classes().end()),
      class_count_(class_count) {
  if (label.has_ignore()) ignored_ = static_cast<float>(label.ignore());
}

absl::Status LabelMap::Check(float value) const {
  if (value == ignored_) return absl::OkStatus();
  const float mapped = Map(value);
  if (!classes_.empty() && mapped == classes_.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "label ", value,
        " is not among label.classes: ", absl::StrJoin(classes_, ", ")));
  }
  if (class_count_ == 0) return absl::OkStatus();
  if (mapped >= 0 && mapped < class_count_ && mapped == std::floor(mapped)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "label ", value,
      classes_.empty() ? "" : absl::StrCat(" (class ", mapped, ")"),
      " is not one of the ", class_count_, " classes, 0..", class_count_ - 1));
}

float LabelMap::Map(float value) const {
  if (value == ignored_) return kIgnoredLabel;
  if (classes_.empty()) return value;
  return std::find(classes_.begin(), classes_.end(), value) - classes_.begin();
}

}  // namespace syncline::worker

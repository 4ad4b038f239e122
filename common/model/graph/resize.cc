#include "common/model/graph/resize.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace syncline {
namespace {

// Products with it stay far from overflow; larger results are refused later.
constexpr int64_t kSizeMax = int64_t{1} << 46;

absl::StatusOr<std::vector<int64_t>> NamedAxes(const ResizeGiven& given,
                                               int64_t rank) {
  std::vector<int64_t> axes = given.axes;
  if (axes.empty()) {
    axes.resize(rank);
    std::iota(axes.begin(), axes.end(), 0);
  }
  std::vector<bool> named(rank, false);
  for (int64_t& axis : axes) {
    if (axis < -rank || axis >= rank) {
      return absl::InvalidArgumentError(absl::StrCat(
          "axis ", axis, " is outside the input's ", rank, " dimensions"));
    }
    if (axis < 0) axis += rank;
    if (named[axis]) {
      return absl::InvalidArgumentError(
          absl::StrCat("axes name dimension ", axis, " twice"));
    }
    named[axis] = true;
  }
  return axes;
}

absl::Status SetScales(const ResizeGiven& given, absl::Span<const int64_t> dims,
                       std::vector<ResizedAxis>* axes) {
  for (size_t i = 0; i < axes->size(); ++i) {
    ResizedAxis& axis = (*axes)[i];
    const float scale = given.scales[i];
    // In float32, as ONNX's own rule has it. Written so that NaN fails.
    const float size = std::floor(static_cast<float>(dims[axis.axis]) * scale);
    if (!(scale > 0) || !(size < static_cast<float>(kSizeMax))) {
      return absl::InvalidArgumentError(
          absl::StrCat("dimension ", axis.axis, " of ", dims[axis.axis],
                       " cannot be scaled by ", scale));
    }
    axis.scale = scale;
    axis.size = static_cast<int64_t>(size);
  }
  return absl::OkStatus();
}

absl::Status SetSizes(const ResizeGiven& given, absl::Span<const int64_t> dims,
                      std::vector<ResizedAxis>* axes) {
  for (size_t i = 0; i < axes->size(); ++i) {
    ResizedAxis& axis = (*axes)[i];
    axis.size = given.sizes[i];
    if (axis.size < 0 || axis.size > kSizeMax ||
        (dims[axis.axis] == 0 && axis.size > 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("dimension ", axis.axis, " of ", dims[axis.axis],
                       " cannot become one of ", axis.size));
    }
    axis.scale = dims[axis.axis] == 0
                     ? 1
                     : static_cast<double>(axis.size) /
                           static_cast<double>(dims[axis.axis]);
  }
  if (given.aspect_ratio == "stretch" || axes->empty()) return absl::OkStatus();
  const bool larger = given.aspect_ratio == "not_smaller";
  if (!larger && given.aspect_ratio != "not_larger") {
    return absl::InvalidArgumentError(
        absl::StrCat("keep_aspect_ratio_policy is \"", given.aspect_ratio,
                     "\"; it must be stretch, not_larger or not_smaller"));
  }
  double scale = (*axes)[0].scale;
  for (const ResizedAxis& axis : *axes) {
    scale = larger ? std::max(scale, axis.scale) : std::min(scale, axis.scale);
  }
  for (ResizedAxis& axis : *axes) {
    const double size = scale * static_cast<double>(dims[axis.axis]);
    axis.scale = scale;
    axis.size = static_cast<int64_t>(std::floor(size + 0.5));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<ResizedAxis>> ResizedAxes(
    const ResizeGiven& given, absl::Span<const int64_t> dims) {
  SYNCLINE_ASSIGN_OR_RETURN(
      const std::vector<int64_t> named,
      NamedAxes(given, static_cast<int64_t>(dims.size())));
  if (given.scales.empty() == given.sizes.empty()) {
    return absl::InvalidArgumentError(
        "one of scales and sizes must be given, and the other not");
  }
  const size_t count =
      given.scales.empty() ? given.sizes.size() : given.scales.size();
  if (count != named.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "there are ", count, given.scales.empty() ? " sizes" : " scales",
        " for ", named.size(), " axes"));
  }
  std::vector<ResizedAxis> axes;
  for (const int64_t axis : named) axes.push_back({.axis = axis});
  SYNCLINE_RETURN_IF_ERROR(given.scales.empty()
                               ? SetSizes(given, dims, &axes)
                               : SetScales(given, dims, &axes));
  return axes;
}

}  // namespace syncline

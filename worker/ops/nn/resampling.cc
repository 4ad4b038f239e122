#include "worker/ops/nn/resampling.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "common/model/graph/resize.h"

namespace syncline::worker {
namespace {

absl::Status CheckName(absl::string_view attribute, absl::string_view name,
                       absl::Span<const absl::string_view> known) {
  if (std::find(known.begin(), known.end(), name) != known.end()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(attribute, " is \"", name,
                                                 "\"; what is computed is ",
                                                 absl::StrJoin(known, ", ")));
}

// place / scale. A scale in float32 stands for the decimal number that it was
// made of: in float32 the quotient is rounded to what that would give, as 5 for
// 1 / 0.2f, which is less.
double Unscaled(double place, double scale) {
  const auto single = static_cast<float>(scale);
  if (static_cast<double>(single) != scale) return place / scale;
  return static_cast<double>(static_cast<float>(place) / single);
}

// Where place o of the result lies in the input. Where the scale is that of the
// two sizes, whole numbers stay whole.
double Origin(const Interpolation& how, int64_t in, int64_t out, double scale,
              int64_t o) {
  const auto at = static_cast<double>(o);
  const auto from = static_cast<double>(in);
  const auto to = static_cast<double>(out);
  const bool is_ratio = scale == to / from;
  const double size = is_ratio || how.whole_sizes ? to : scale * from;
  const auto unscaled = [&](double place) {
    return is_ratio ? place * from / to : Unscaled(place, scale);
  };
  if (how.coordinates == "asymmetric") return unscaled(at);
  if (how.coordinates == "align_corners") {
    return size <= 1 ? 0 : at * (from - 1) / (size - 1);
  }
  if (how.coordinates == "pytorch_half_pixel" && out <= 1) return 0;
  const double middle = unscaled(at + 0.5) - 0.5;
  if (how.coordinates != "half_pixel_symmetric") return middle;
  return from / 2 * (1 - to / size) + middle;
}

struct Taps {
  int64_t first = 0;  // relative to the place left of the origin
  std::vector<double> weights;
};

// `ratio` in (0, 1] is how far right of that place the origin is.
Taps NearestTaps(const std::string& nearest, double ratio) {
  const bool right = ratio == 1 || nearest == "ceil" ||
                     (nearest == "round_prefer_floor" && ratio > 0.5) ||
                     (nearest == "round_prefer_ceil" && ratio >= 0.5);
  return {right ? 1 : 0, {1.0}};
}

// Keys, 1981: piecewise cubic convolution.
double Cubic(double a, double distance) {
  const double x = std::fabs(distance);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

// Of a kernel of `reach` places to each side, which becomes wider where the
// result is smaller (`stretch` < 1).
template <typename Kernel>
Taps KernelTaps(int64_t reach, double stretch, double ratio, Kernel kernel) {
  const double width = static_cast<double>(reach) / stretch;
  Taps taps;
  taps.first = static_cast<int64_t>(std::floor(-width)) + 1;
  const int64_t count = 2 * (1 - taps.first);
  for (int64_t t = 0; t < count; ++t) {
    taps.weights.push_back(
        kernel((static_cast<double>(taps.first + t) - ratio) * stretch));
  }
  return taps;
}

Taps TapsOf(const Interpolation& how, double scale, double ratio) {
  if (how.mode == "nearest") return NearestTaps(how.nearest, ratio);
  const double stretch = how.antialias ? std::min(scale, 1.0) : 1.0;
  if (how.mode == "cubic") {
    return KernelTaps(2, stretch, ratio,
                      [&](double x) { return Cubic(how.cubic_a, x); });
  }
  return KernelTaps(1, stretch, ratio,
                    [](double x) { return std::max(0.0, 1 - std::fabs(x)); });
}

// Their sum becomes 1.
void Normalize(std::vector<double>* weights) {
  double sum = 0;
  for (const double weight : *weights) sum += weight;
  if (sum == 0) return;
  for (double& weight : *weights) weight /= sum;
}

}  // namespace

absl::StatusOr<Interpolation> InterpolationOf(const Node& node) {
  Interpolation how;
  how.mode = node.String("mode", "nearest");
  how.coordinates = node.String("coordinate_transformation_mode", "half_pixel");
  how.nearest = node.String("nearest_mode", "round_prefer_floor");
  how.cubic_a = node.Float("cubic_coeff_a", -0.75f);
  how.exclude_outside = node.Int("exclude_outside", 0) != 0;
  how.antialias = node.Int("antialias", 0) != 0;
  how.whole_sizes = node.Int(kWholeSizes, 0) != 0;
  absl::Status status =
      CheckName("mode", how.mode, {"nearest", "linear", "cubic"});
  status.Update(
      CheckName("coordinate_transformation_mode", how.coordinates,
                {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel",
                 "align_corners", "asymmetric"}));
  status.Update(
      CheckName("nearest_mode", how.nearest,
                {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}));
  if (!status.ok()) return status;
  return how;
}

Resampling MakeResampling(const Interpolation& how, int64_t in, int64_t out,
                          double scale) {
  Resampling r;
  r.in = in;
  r.out = out;
  for (int64_t o = 0; o < out; ++o) {
    const double origin = Origin(how, in, out, scale, o);
    const double left = std::ceil(origin) - 1;
    Taps taps = TapsOf(how, scale, origin - left);
    const auto place = [&](size_t t) {
      return static_cast<int64_t>(left) + taps.first + static_cast<int64_t>(t);
    };
    if (how.exclude_outside) {
      for (size_t t = 0; t < taps.weights.size(); ++t) {
        if (place(t) < 0 || place(t) >= in) taps.weights[t] = 0;
      }
    }
    if (how.exclude_outside || how.antialias) Normalize(&taps.weights);
    r.taps = static_cast<int64_t>(taps.weights.size());
    for (size_t t = 0; t < taps.weights.size(); ++t) {
      // A place outside repeats the border.
      r.places.push_back(std::clamp<int64_t>(place(t), 0, in - 1));
      r.weights.push_back(static_cast<float>(taps.weights[t]));
    }
  }
  return r;
}

}  // namespace syncline::worker

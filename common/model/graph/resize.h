#ifndef SYNCLINE_COMMON_MODEL_GRAPH_RESIZE_H_
#define SYNCLINE_COMMON_MODEL_GRAPH_RESIZE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace syncline {

// An attribute that Resize has besides ONNX's, int 1: "align_corners" puts the
// last place of the result, whose size is a whole number, onto the last one of
// the input, as PyTorch does. ONNX takes scale times size, which need not be
// whole. So in all files that PyTorch wrote.
inline constexpr char kWholeSizes[] = "syncline.whole_sizes";

// The size of its result as a Resize node gives it.
struct ResizeGiven {
  // One of them: factors, or sizes. By axis, or by entry of `axes`.
  std::vector<float> scales;
  std::vector<int64_t> sizes;
  std::vector<int64_t> axes;  // empty: all, in order
  // With sizes: "stretch", "not_larger" or "not_smaller".
  std::string aspect_ratio = "stretch";
};

struct ResizedAxis {
  int64_t axis = 0;
  int64_t size = 0;  // of the result
  double scale = 1;  // result / input
};

// The axes that are named, in order. Errors: InvalidArgument: neither or both
// of scales and sizes, as many of them as there are no axes, an axis twice or
// outside, a scale or size that is none.
absl::StatusOr<std::vector<ResizedAxis>> ResizedAxes(
    const ResizeGiven& given, absl::Span<const int64_t> dims);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_GRAPH_RESIZE_H_

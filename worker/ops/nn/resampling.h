#ifndef SYNCLINE_WORKER_OPS_NN_RESAMPLING_H_
#define SYNCLINE_WORKER_OPS_NN_RESAMPLING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/graph/node.h"

namespace syncline::worker {

// How Resize finds the value at a place of its result, by ONNX's names.
struct Interpolation {
  std::string mode = "nearest";  // or "linear", "cubic"
  std::string coordinates = "half_pixel";
  std::string nearest = "round_prefer_floor";
  double cubic_a = -0.75;
  bool exclude_outside = false;
  bool antialias = false;
  bool whole_sizes = false;  // kWholeSizes
};

// Reads the attributes. Errors: InvalidArgument: a name that ONNX does not
// have, or that is not computed here, with what is.
absl::StatusOr<Interpolation> InterpolationOf(const Node& node);

// The tables of kernels/resample.h, on the host.
struct Resampling {
  int64_t in = 0;  // places along the axis
  int64_t out = 0;
  int64_t taps = 1;  // of each place of the result
  std::vector<int64_t> places;
  std::vector<float> weights;
};

// The weights along an axis of `in` places that becomes one of `out`; a place
// of the input is `scale` places of the result. ONNX's definitions.
Resampling MakeResampling(const Interpolation& how, int64_t in, int64_t out,
                          double scale);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_NN_RESAMPLING_H_

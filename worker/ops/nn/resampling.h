#ifndef SYNCLINE_WORKER_OPS_NN_RESAMPLING_H_
#define SYNCLINE_WORKER_OPS_NN_RESAMPLING_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/model/graph/node.h"
#include "kernels/resample.h"

namespace syncline::worker {

// How Resize finds the value at a place of its result, by ONNX's names.
struct Interpolation {
  std::string mode = "nearest";  // or "linear", "cubic"
  std::string coordinates = "half_pixel";
  std::string nearest = "round_prefer_floor";
  double cubic_a = -0.75;
  bool exclude_outside = false;
  bool antialias = false;
};

// Reads the attributes. Errors: InvalidArgument: a name that ONNX does not
// have, or that is not computed here, with what is.
absl::StatusOr<Interpolation> InterpolationOf(const Node& node);

// The weights along an axis of `in` places that becomes one of `out`; a place
// of the input is `scale` places of the result. ONNX's definitions.
Resampling MakeResampling(const Interpolation& how, int64_t in, int64_t out,
                          double scale);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_NN_RESAMPLING_H_

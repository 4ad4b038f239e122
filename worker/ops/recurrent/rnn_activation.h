#ifndef SYNCLINE_WORKER_OPS_RECURRENT_RNN_ACTIVATION_H_
#define SYNCLINE_WORKER_OPS_RECURRENT_RNN_ACTIVATION_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/graph/node.h"
#include "kernels/rnn_activation.h"

namespace syncline::worker {

// The functions of a recurrent node's cell, one direction's after the other's:
// from activations, activation_alpha, activation_beta and clip, or those that
// the cell usually has. Alphas and betas go to those functions that have one,
// in their order, as ONNX Runtime hands them out; those that get none have
// ONNX's defaults (Affine and ScaledTanh, for which it has none: alpha 1, beta
// 0 and 1).
// Errors: InvalidArgument: another number of functions, an unknown one, more
// alphas or betas than functions have, a clip that is not above 0.
absl::StatusOr<std::vector<RnnActivation>> RnnActivationsOf(
    const Node& node, int64_t directions,
    absl::Span<const RnnActivation::Kind> usual);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_RECURRENT_RNN_ACTIVATION_H_

#ifndef SYNCLINE_COMMON_MODEL_IMPORT_FLOAT64_REWRITE_H_
#define SYNCLINE_COMMON_MODEL_IMPORT_FLOAT64_REWRITE_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace onnx {
class GraphProto;
}  // namespace onnx

namespace syncline {

// Training computes in float32. A value of float64 that depends on what is fed
// or trained becomes float32: graph inputs, initializers, casts to float64, and
// what follows from them. Float64 that follows from constants and shapes alone
// is known before training and stays as it is (constant_folding.h); where both
// meet it is cast.
//
// An initializer of float64 counts as trained if the file has weights of it: a
// graph input of float64, or an initializer of more than one element. An
// initializer that only gives a CastLike its type is neither.

// Content of float64 initializers that float32 rounds, by name.
using ExactContents = absl::flat_hash_map<std::string, std::string>;

// True if a graph has such values.
bool ComputesInFloat64(int opset_version, const onnx::GraphProto& graph);

// Rewrites them in place. Initializers keep their order. Appends one line per
// problem: a number that float32 does not have, integers made from such a
// value, which would be others; and one to `notes`, naming what is rounded.
// `exact_contents` gets what rounding takes from initializers: those that are
// not trained are exported as they were.
void RewriteFloat64(int opset_version, onnx::GraphProto* graph,
                    std::vector<std::string>* problems,
                    std::vector<std::string>* notes,
                    ExactContents* exact_contents);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_IMPORT_FLOAT64_REWRITE_H_

#ifndef SYNCLINE_COMMON_MODEL_ZOO_LAYERS_H_
#define SYNCLINE_COMMON_MODEL_ZOO_LAYERS_H_

// Layers that several models have. Internal to this folder.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/model/zoo/graph_writer.h"

namespace syncline {

// x [N, inputs] times NAME.weight plus NAME.bias: [N, outputs].
std::string Dense(absl::string_view name, const std::string& x, int64_t inputs,
                  int64_t outputs, GraphWriter* graph);

// One after another of these widths, each with a Relu: layers NAME1, NAME2 ...
// Sets `*width`, x's, to the last one's.
std::string DenseRelus(absl::string_view name, std::string x,
                       const std::vector<int64_t>& widths, int64_t* width,
                       GraphWriter* graph);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_ZOO_LAYERS_H_

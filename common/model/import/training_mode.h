#ifndef SYNCLINE_COMMON_MODEL_IMPORT_TRAINING_MODE_H_
#define SYNCLINE_COMMON_MODEL_IMPORT_TRAINING_MODE_H_

// Which layers a file has in training mode and which in inference mode, as
// PyTorch's .train() and .eval() set them.

#include <vector>

#include "common/model/graph/node.h"

namespace syncline {

struct Graph;

// By ValueId: a running mean or variance that only such BatchNormalization
// nodes normalise by as the file has in inference mode, in a file that has
// other nodes in training mode: it keeps its value.
std::vector<bool> KeptStatistics(const Graph& graph);

// True if any BatchNormalization or Dropout is in training mode.
bool HasTrainingMode(const Graph& graph);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_IMPORT_TRAINING_MODE_H_

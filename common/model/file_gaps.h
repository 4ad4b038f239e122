#ifndef SYNCLINE_COMMON_MODEL_FILE_GAPS_H_
#define SYNCLINE_COMMON_MODEL_FILE_GAPS_H_

// Training settings of a PyTorch program that an ONNX file does not hold. The
// user must read of them before the job runs.

#include <string>
#include <vector>

#include "common/model/training_graph.h"

namespace syncline {

// One line for each: a row of an embedding that PyTorch would not train
// (padding_idx), a block that may be under torch.no_grad(), layers in inference
// mode that train by their batches, weights that the exporter may have computed
// from others or has written as constants, a Resize that ONNX Runtime computes
// otherwise.
//   training  its parameters and tables
//   reached   by ValueId: a gradient of the loss reaches it
// REQUIRES: the model is whole.
std::vector<std::string> DescribeFileGaps(const Model& model,
                                          const TrainingGraph& training,
                                          const std::vector<bool>& reached);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_FILE_GAPS_H_

#ifndef SYNCLINE_COMMON_MODEL_MIXED_SAMPLES_H_
#define SYNCLINE_COMMON_MODEL_MIXED_SAMPLES_H_

// Operators that combine the samples of a batch: a mean over it, a product of
// samples with each other, a Softmax along it. Their results depend on what
// else is in the batch, so a batch that is computed in parts, or divided among
// more workers, is another one to them.

#include <string>
#include <vector>

#include "common/model/graph/graph.h"

namespace syncline {

// Those that `output` depends on, in the order of the file, in words:
// "node 'm' (ReduceMean, opset 13)". BatchNormalization is not among them:
// whether it takes its batch is the job's choice. By shapes: a node that loses
// the dimension of samples, or gets one more, or computes along it.
// REQUIRES: all shapes are known. `output` may be kNoValue.
std::vector<std::string> FindMixedSamples(const Graph& graph, ValueId output);

// The first of them: "node 'a' (ReduceMean, opset 13) and 2 others".
// REQUIRES: not empty.
std::string DescribeMixed(const std::vector<std::string>& mixed);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_MIXED_SAMPLES_H_

#ifndef SYNCLINE_TESTS_TESTING_ONNX_NODE_CASE_H_
#define SYNCLINE_TESTS_TESTING_ONNX_NODE_CASE_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/model.h"

namespace syncline::testing {

// One of ONNX's backend node tests: a graph of one or a few nodes, what is fed
// and what comes out.
struct OnnxNodeCase {
  absl::StatusOr<std::shared_ptr<const Model>> model;  // or why it is refused
  std::map<std::string, ConstantTensor> inputs;        // by name
  std::vector<ConstantTensor> outputs;                 // as the graph has them
};

// In the suite every input is fed, settings included. Which of them a model has
// of its own instead, as users' files have them: none; as constants those that
// are not float32; besides, as weights, those that are; or all as constants.
enum class KnownInputs { kNone, kIntegers, kWeights, kAll };

// Reads a folder of the suite. Errors: Unimplemented: none of ours, because of
// an operator, an opset or an element type that no model of ours has;
// InvalidArgument: a file cannot be read.
absl::StatusOr<OnnxNodeCase> ReadOnnxNodeCase(const std::string& folder,
                                              KnownInputs known);

}  // namespace syncline::testing

#endif  // SYNCLINE_TESTS_TESTING_ONNX_NODE_CASE_H_

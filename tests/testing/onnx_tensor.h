#ifndef SYNCLINE_TESTS_TESTING_ONNX_TENSOR_H_
#define SYNCLINE_TESTS_TESTING_ONNX_TENSOR_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/model/graph.h"

namespace syncline::testing {

// Reads a file that holds one ONNX TensorProto, as ONNX's own tests do.
absl::StatusOr<ConstantTensor> ReadOnnxTensor(const std::string& path);

}  // namespace syncline::testing

#endif  // SYNCLINE_TESTS_TESTING_ONNX_TENSOR_H_

#include "tests/testing/onnx_tensor.h"

#include <fstream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/model/onnx_file.h"
#include "onnx/onnx_pb.h"

namespace syncline::testing {

absl::StatusOr<ConstantTensor> ReadOnnxTensor(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  onnx::TensorProto tensor;
  if (!tensor.ParseFromIstream(&file)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a tensor"));
  }
  return TakeTensor(&tensor);
}

}  // namespace syncline::testing

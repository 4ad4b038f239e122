#ifndef SYNCLINE_TESTS_UNIT_COMMON_MODEL_INFERENCE_SHAPE_INFERENCE_FIXTURE_H_
#define SYNCLINE_TESTS_UNIT_COMMON_MODEL_INFERENCE_SHAPE_INFERENCE_FIXTURE_H_

// The parts of shape_inference_test share models in ONNX text and their shapes.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/graph/describe.h"
#include "common/model/graph/graph_builder.h"
#include "common/model/graph/onnx_file.h"
#include "common/model/inference/shape_inference.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx/onnx_pb.h"

namespace syncline {

struct Inferred {
  Graph graph;
  std::vector<InferredValue> values;
  std::vector<std::string> problems;

  // "float32[2,3]", or "?" if it is not known.
  std::string operator[](absl::string_view name) const {
    const InferredValue& value = values.at(graph.FindValue(name));
    return value.known ? DescribeTensor(value.dtype, value.dims) : "?";
  }
};

inline Inferred Infer(int opset, const std::string& text, int64_t batch = 5,
                      BatchStyle style = BatchStyle::kNumber) {
  onnx::ModelProto model;
  const absl::Status status =
      ReadOnnxFile(absl::StrCat("<ir_version: 8, opset_import: [\"\" : ", opset,
                                "]> g ", text),
                   &model);
  EXPECT_TRUE(status.ok()) << status;
  std::vector<std::string> build_problems;
  BuiltGraph built = BuildGraph({}, &model, &build_problems);
  EXPECT_THAT(build_problems, ::testing::IsEmpty());
  Inferred result;
  result.values = InferValues(built.graph, built.graph.nodes, model.graph(),
                              built.file_nodes, batch, style, &result.problems);
  result.graph = std::move(built.graph);
  return result;
}

// The output `y` of one node over inputs declared as `inputs`.
inline std::string Output(int opset, const std::string& inputs,
                          const std::string& node) {
  const Inferred inferred =
      Infer(opset, absl::StrCat("(", inputs, ") => (y) { y = ", node, " }"));
  EXPECT_THAT(inferred.problems, ::testing::IsEmpty());
  return inferred["y"];
}

}  // namespace syncline

#endif  // SYNCLINE_TESTS_UNIT_COMMON_MODEL_INFERENCE_SHAPE_INFERENCE_FIXTURE_H_

// Goal: a node that an operator cannot compute is refused, with its name and
// what is wrong with it. Method: one fault per node, and the text of the error.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/op_device.h"
#include "tests/unit/worker/ops/op_table_fixture.h"
#include "worker/ops/op_table.h"

namespace syncline::worker {
namespace {

// The error with which a factory refuses a node.
absl::Status Refused(const std::string& op_type, std::vector<TensorType> inputs,
                     std::map<std::string, Attribute> attributes = {}) {
  Node node;
  node.name = "it";
  node.op_type = op_type;
  node.since_version = 13;
  node.attributes = std::move(attributes);
  OpSpec spec = testing::HostSpec();
  spec.node = &node;
  spec.outputs = {inputs[0]};
  spec.inputs = std::move(inputs);
  return CreateOp(spec).status();
}

TEST(OpTableTest, AnIndexOutsideTheDimensionIsRefused) {
  const std::vector<float> x = {1, 2, 3};
  std::vector<float> y(2);
  for (const int64_t bad : {int64_t{3}, int64_t{-4}, int64_t{1} << 40}) {
    const std::vector<int64_t> indices = {0, bad};
    EXPECT_EQ(RunOnce("Gather", Typed(DType::kFloat32, {3}), x.data(),
                      Typed(DType::kFloat32, {2}), &y,
                      Typed(DType::kInt64, {2}), indices.data()),
              absl::InvalidArgumentError(
                  absl::StrCat("index ", bad,
                               ", number 1 of 2, is outside a dimension of "
                               "3")));
  }
}

TEST(OpTableTest, RefusalsNameTheNode) {
  const TensorType matrix = {.present = true, .dims = {2, 3}};
  const TensorType cube = {.present = true, .dims = {2, 3, 4}};
  TensorType integers = matrix;
  integers.dtype = DType::kInt64;
  const std::vector<std::pair<absl::Status, std::string>> cases = {
      {Refused("Loop", {matrix}),
       "node \"it\" (Loop): the operator is not supported"},
      {Refused("Conv", {matrix, cube}),
       "node \"it\" (Conv): input 0 is [2,3]; it must be [batch, channels] "
       "and 1 to 3 spatial dimensions"},
      {Refused("Conv", {cube, matrix}),
       "node \"it\" (Conv): the weights are [2,3]; they must have 2 dimensions "
       "and those of the window"},
      {Refused("Conv", {cube, cube},
               {{"kernel_shape", std::vector<int64_t>{5}}}),
       "node \"it\" (Conv): kernel_shape is [5], but the weights are [2,3,4]"},
      {Refused("Conv", {cube, cube}, {{"strides", std::vector<int64_t>{0}}}),
       "node \"it\" (Conv): strides has 0; it must be in [1, 16777216]"},
      {Refused("Conv", {cube, cube}, {{"pads", std::vector<int64_t>{1}}}),
       "node \"it\" (Conv): pads has 1 numbers; it must have 2"},
      {Refused("Conv", {cube, cube}),
       "node \"it\" (Conv): 1 windows fit into a dimension of 4, but the "
       "output [2,3,4] has 4"},
      {Refused("Conv", {cube, {.present = true, .dims = {4, 3, 1}}}),
       "node \"it\" (Conv): weights [4,3,1] in 1 groups do not lead from "
       "[2,3,4] to [2,3,4]"},
      {Refused("ConvTranspose", {cube, {.present = true, .dims = {3, 3, 1}}},
               {{"pads", std::vector<int64_t>{1, 1}},
                {"output_padding", std::vector<int64_t>{2}}}),
       "node \"it\" (ConvTranspose): a dimension of 4 ends 1 behind what the "
       "input's last window reaches, with a stride of 1; it must be less than "
       "the stride"},
      {Refused("MaxPool", {cube}),
       "node \"it\" (MaxPool): kernel_shape is missing"},
      {Refused("AveragePool", {cube},
               {{"auto_pad", std::string("SAME")},
                {"kernel_shape", std::vector<int64_t>{2}}}),
       "node \"it\" (AveragePool): auto_pad is \"SAME\"; it must be NOTSET, "
       "VALID, SAME_UPPER or SAME_LOWER"},
      {Refused("GlobalMaxPool", {matrix}),
       "node \"it\" (GlobalMaxPool): input 0 is [2,3]; it must have at least "
       "one spatial dimension"},
      {Refused("Add", {matrix, integers}),
       "node \"it\" (Add): input 1 is int64; only float32 is computed"},
      {Refused("Add", {integers, matrix}),
       "node \"it\" (Add): inputs 0 and 1 are int64 and float32; they must be "
       "of one integer type"},
      {Refused("Mod", {matrix, matrix}),
       "node \"it\" (Mod): fmod is 0, which ONNX defines for integers only"},
      {Refused("IsNaN", {integers}),
       "node \"it\" (IsNaN): input 0 is int64; it must be float"},
      {Refused("Add", {matrix, {.present = true, .dims = {2}}}),
       "node \"it\" (Add): shapes [2,3] and [2] do not broadcast"},
      {Refused("Gemm", {matrix, matrix}),
       "node \"it\" (Gemm): the inner dimensions differ"},
      {Refused("MatMul", {matrix, {.present = true, .dims = {}}}),
       "node \"it\" (MatMul): a scalar has no matrix product"},
      {Refused("Gelu", {matrix}, {{"approximate", std::string("cube")}}),
       "node \"it\" (Gelu): approximate is \"cube\"; it must be \"none\" or "
       "\"tanh\""},
      {Refused("Gather", {matrix, matrix}),
       "node \"it\" (Gather): indices are float32; they must be int32 or "
       "int64"},
      {Refused("Gather", {matrix, integers}, {{"axis", int64_t{-3}}}),
       "node \"it\" (Gather): axis -3 is outside the input's 2 dimensions"},
      {Refused("ReduceSum", {matrix, integers}),
       "node \"it\" (ReduceSum): axes must be constant, of type int64"},
      {Refused("ReduceMean", {integers}),
       "node \"it\" (ReduceMean): input 0 is int64; only float32 is computed"},
      {Refused("Concat", {matrix, integers}),
       "node \"it\" (Concat): int64[2,3] cannot be a part of float32[2,3]"},
      {Refused("Transpose", {matrix}, {{"perm", std::vector<int64_t>{1, 1}}}),
       "node \"it\" (Transpose): perm is no permutation of 2 dimensions"},
      {Refused("ScatterND",
               {cube,
                {.present = true, .dtype = DType::kInt64, .dims = {2, 1}},
                cube},
               {{"reduction", std::string("mean")}}),
       "node \"it\" (ScatterND): reduction is \"mean\"; it must be none, add, "
       "mul, max or min"},
      {Refused("ScatterElements", {matrix, integers, cube}),
       "node \"it\" (ScatterElements): updates [2,3,4] are not of the "
       "indices' shape [2,3]"},
      {Refused("PRelu", {matrix, cube}),
       "node \"it\" (PRelu): shapes [2,3] and [2,3,4] do not broadcast"},
      {Refused("PRelu", {{.present = true, .dims = {3}}, matrix}),
       "node \"it\" (PRelu): the slope is [2,3], which cannot be repeated to "
       "[3]"},
      {Refused("Clip", {matrix, matrix}),
       "node \"it\" (Clip): min is [2,3]; it must be a scalar"},
      {Refused("Pad", {matrix, integers}),
       "node \"it\" (Pad): pads must be constant, of type int64 or int32"},
      {Refused("Pad", {matrix, integers}, {{"mode", std::string("mirror")}}),
       "node \"it\" (Pad): mode is \"mirror\"; it must be constant, edge, "
       "reflect or wrap"},
      {Refused("SoftmaxCrossEntropyLoss", {matrix, matrix}),
       "node \"it\" (SoftmaxCrossEntropyLoss): scores are float32 and labels "
       "float32; they must be float32 and int32 or int64"},
      {Refused("NegativeLogLikelihoodLoss", {matrix, integers}),
       "node \"it\" (NegativeLogLikelihoodLoss): scores [2,3] and labels "
       "[2,3]; they must be [N,classes,...] and [N,...]"},
      {Refused("ScatterND", {matrix, integers, matrix},
               {{"reduction", std::string("add")}}),
       "node \"it\" (ScatterND): data [2,3], indices [2,3] and updates [2,3] "
       "do not fit"},
      {Refused("Softmax", {matrix}, {{"axis", int64_t{2}}}),
       "node \"it\" (Softmax): axis 2 is outside the input's 2 dimensions"},
  };
  for (const auto& [status, message] : cases) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), message);
  }
}

}  // namespace
}  // namespace syncline::worker

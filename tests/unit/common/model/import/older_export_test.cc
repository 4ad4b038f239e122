// Goal: what PyTorch's older exporter merged is parted again, what it folded is
// found, and nothing else is touched. Method: messages as it writes them.

#include "common/model/import/older_export.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx/onnx_pb.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

onnx::ModelProto PytorchModel() {
  onnx::ModelProto model;
  model.set_producer_name("pytorch");
  model.mutable_graph()->add_output()->set_name("scores");
  return model;
}

void AddWeight(const std::string& name, const std::vector<int64_t>& dims,
               const std::vector<float>& values, onnx::ModelProto* model) {
  onnx::TensorProto* const tensor = model->mutable_graph()->add_initializer();
  tensor->set_name(name);
  tensor->set_data_type(onnx::TensorProto::FLOAT);
  for (const int64_t dim : dims) tensor->add_dims(dim);
  tensor->set_raw_data(values.data(), values.size() * sizeof(float));
}

void AddNode(const std::string& name, const std::string& op_type,
             const std::vector<std::string>& inputs, const std::string& output,
             onnx::ModelProto* model) {
  onnx::NodeProto* const node = model->mutable_graph()->add_node();
  node->set_name(name);
  node->set_op_type(op_type);
  for (const std::string& input : inputs) node->add_input(input);
  node->add_output(output);
}

std::vector<std::string> Parted(onnx::ModelProto* model) {
  std::vector<std::string> problems;
  PartMergedParameters(model, &problems);
  return problems;
}

TEST(PartMergedParametersTest, EachGetsAnInitializerOfItsOwn) {
  onnx::ModelProto model = PytorchModel();
  AddWeight("norm1.bias", {2}, {0, 0}, &model);
  AddNode("Identity_7", "Identity", {"norm1.bias"}, "norm2.bias", &model);
  AddNode("/Add", "Add", {"norm1.bias", "norm2.bias"}, "scores", &model);
  EXPECT_THAT(Parted(&model), IsEmpty());
  ASSERT_EQ(model.graph().node_size(), 1);
  EXPECT_EQ(model.graph().node(0).op_type(), "Add");
  ASSERT_EQ(model.graph().initializer_size(), 2);
  EXPECT_EQ(model.graph().initializer(1).name(), "norm2.bias");
  EXPECT_EQ(model.graph().initializer(1).raw_data(),
            model.graph().initializer(0).raw_data());
}

TEST(PartMergedParametersTest, OtherIdentitiesStay) {
  onnx::ModelProto model = PytorchModel();
  AddWeight("a", {2}, {0, 0}, &model);
  AddWeight("b", {2}, {0, 0}, &model);
  AddNode("Identity_1", "Identity", {"a"}, "scores", &model);  // the result
  AddNode("/drop/Identity", "Identity", {"a"}, "c", &model);   // the model's
  AddNode("Identity_2", "Identity", {"a"}, "/drop/Dropout_output_0", &model);
  AddNode("Identity_3", "Identity", {"a"}, "12", &model);
  AddNode("Identity_4", "Identity", {"a"}, "b", &model);  // is there already
  AddNode("Identity_5", "Identity", {"x"}, "d", &model);  // of no initializer
  const std::string before = model.SerializeAsString();
  EXPECT_THAT(Parted(&model), IsEmpty());
  EXPECT_EQ(model.SerializeAsString(), before);
}

TEST(PartMergedParametersTest, OtherProducersKeepTheirs) {
  onnx::ModelProto model = PytorchModel();
  model.set_producer_name("another");
  AddWeight("a", {2}, {0, 0}, &model);
  AddNode("Identity_1", "Identity", {"a"}, "b", &model);
  const std::string before = model.SerializeAsString();
  EXPECT_THAT(Parted(&model), IsEmpty());
  EXPECT_EQ(model.SerializeAsString(), before);
}

TEST(PartMergedParametersTest, AFileMayNotFillTheMemory) {
  onnx::ModelProto model = PytorchModel();
  AddWeight("a", {1 << 20}, std::vector<float>(1 << 20), &model);
  for (int i = 0; i < 100; ++i) {
    const std::string number = std::to_string(i);
    AddNode("Identity_" + number, "Identity", {"a"}, "b" + number, &model);
  }
  EXPECT_THAT(Parted(&model), ElementsAre(HasSubstr("TrainingMode.TRAINING")));
  EXPECT_EQ(model.graph().initializer_size(), 1);
}

TEST(FindFoldedParametersTest, WeightsOfConvolutions) {
  onnx::ModelProto model = PytorchModel();
  AddWeight("onnx::Conv_45", {1, 1, 1, 1}, {2}, &model);
  AddWeight("onnx::Conv_46", {1}, {3}, &model);
  AddNode("/conv/Conv", "Conv", {"x", "onnx::Conv_45", "onnx::Conv_46"},
          "scores", &model);
  EXPECT_THAT(FindFoldedParameters(model),
              ElementsAre(testing::AllOf(HasSubstr("'onnx::Conv_45'"),
                                         HasSubstr("do_constant_folding"))));
}

TEST(FindFoldedParametersTest, NumbersThatArithmeticReads) {
  onnx::ModelProto model = PytorchModel();
  AddWeight("onnx::Add_7", {2}, {1, 2}, &model);
  AddWeight("onnx::Mul_8", {1, 1}, {2}, &model);
  AddWeight("onnx::PRelu_9", {2, 1, 1}, {1, 2}, &model);
  EXPECT_THAT(FindFoldedParameters(model),
              ElementsAre(HasSubstr("1 weights of its own ('onnx::Add_7')")));
}

TEST(FindFoldedParametersTest, WhatHasNoGradientIsNoWeight) {
  onnx::ModelProto model = PytorchModel();
  AddWeight("onnx::Resize_5", {4}, {1, 1, 2, 2}, &model);
  AddWeight("onnx::Resize_6", {8}, {0, 0, 0, 0, 1, 1, 1, 1}, &model);
  AddWeight("onnx::OneHot_7", {2}, {0, 1}, &model);
  AddNode("/Resize", "Resize", {"x", "onnx::Resize_6", "onnx::Resize_5"}, "y",
          &model);
  AddNode("/OneHot", "OneHot", {"i", "depth", "onnx::OneHot_7"}, "z", &model);
  AddNode("Identity_3", "Identity", {"onnx::Resize_5"}, "onnx::Resize_8",
          &model);
  AddNode("/Resize_1", "Resize", {"y", "onnx::Resize_6", "onnx::Resize_8"}, "u",
          &model);
  EXPECT_THAT(FindFoldedParameters(model), IsEmpty());
  // Something computes with them as well.
  AddNode("/Mul", "Mul", {"y", "onnx::Resize_5"}, "scores", &model);
  EXPECT_THAT(
      FindFoldedParameters(model),
      ElementsAre(HasSubstr("1 weights of its own ('onnx::Resize_5')")));
}

TEST(FindFoldedParametersTest, MergedWeightsThatNoParameterNames) {
  onnx::ModelProto model = PytorchModel();
  AddWeight("onnx::MatMul_9", {2, 1}, {1, 2}, &model);
  AddWeight("onnx::Div_4", {}, {2}, &model);
  AddNode("Identity_1", "Identity", {"onnx::MatMul_9"}, "onnx::MatMul_12",
          &model);
  AddNode("Identity_2", "Identity", {"onnx::Div_4"}, "onnx::Div_5", &model);
  EXPECT_THAT(
      FindFoldedParameters(model),
      ElementsAre(HasSubstr("1 weights with others ('onnx::MatMul_9' and "
                            "'onnx::MatMul_12')")));
  EXPECT_THAT(Parted(&model), IsEmpty());
  EXPECT_EQ(model.graph().node_size(), 2);
}

TEST(FindFoldedParametersTest, ATiedWeightThatIsThereTwice) {
  onnx::ModelProto model = PytorchModel();
  AddWeight("embedding.weight", {3, 2}, {1, 2, 3, 4, 5, 6}, &model);
  AddWeight("onnx::MatMul_9", {2, 3}, {1, 3, 5, 2, 4, 6}, &model);
  EXPECT_THAT(
      FindFoldedParameters(model),
      ElementsAre(HasSubstr("'embedding.weight' and 'onnx::MatMul_9'")));
}

// One layer that is used twice, in training mode with constants folded.
TEST(FindFoldedParametersTest, WeightsOfARecurrentLayerThatAreThereTwice) {
  onnx::ModelProto model = PytorchModel();
  AddWeight("onnx::LSTM_1", {1, 2, 2}, {1, 2, 3, 4}, &model);
  AddWeight("onnx::LSTM_2", {1, 2, 2}, {0, 0, 0, 0}, &model);
  AddWeight("onnx::LSTM_3", {1, 2, 2}, {0, 0, 0, 0}, &model);
  AddWeight("onnx::LSTM_4", {1, 4, 1}, {1, 2, 3, 4}, &model);
  // A forget gate's bias, as it is often begun with.
  AddWeight("onnx::LSTM_7", {1, 4}, {0, 1, 0, 0}, &model);
  AddWeight("onnx::LSTM_8", {1, 4}, {0, 1, 0, 0}, &model);
  AddWeight("onnx::GRU_5", {1, 2, 2}, {1, 2, 3, 5}, &model);
  EXPECT_THAT(FindFoldedParameters(model), IsEmpty())
      << "zeros, another shape and another value are no copies";
  AddWeight("onnx::LSTM_6", {1, 2, 2}, {1, 2, 3, 4}, &model);
  EXPECT_THAT(
      FindFoldedParameters(model),
      ElementsAre(HasSubstr("1 weights of recurrent layers that are equal to "
                            "others ('onnx::LSTM_1' and 'onnx::LSTM_6')")));
}

TEST(FindFoldedParametersTest, TransposesAloneAreFine) {
  onnx::ModelProto model = PytorchModel();
  AddWeight("first.weight", {3, 2}, {1, 2, 3, 4, 5, 7}, &model);
  AddWeight("zeros", {3, 2}, {0, 0, 0, 0, 0, 0}, &model);
  AddWeight("onnx::MatMul_9", {2, 3}, {1, 3, 5, 2, 4, 6}, &model);
  AddWeight("onnx::MatMul_10", {2, 3}, {0, 0, 0, 0, 0, 0}, &model);
  AddWeight("onnx::LSTM_11", {2, 3}, {1, 3, 5, 2, 4, 7}, &model);
  AddNode("/fc/MatMul", "MatMul", {"x", "onnx::MatMul_9"}, "scores", &model);
  EXPECT_THAT(FindFoldedParameters(model), IsEmpty());
}

TEST(FindFoldedParametersTest, HostileDimensionsAreNoMatrix) {
  onnx::ModelProto model = PytorchModel();
  AddWeight("a", {-1, int64_t{1} << 62}, {1, 2}, &model);
  AddWeight("b", {int64_t{1} << 40, int64_t{1} << 40}, {1, 2}, &model);
  AddWeight("onnx::MatMul_1", {int64_t{1} << 62, -1}, {1, 2}, &model);
  AddWeight("onnx::MatMul_2", {0, 2}, {}, &model);
  EXPECT_THAT(FindFoldedParameters(model), IsEmpty());
}

}  // namespace
}  // namespace syncline

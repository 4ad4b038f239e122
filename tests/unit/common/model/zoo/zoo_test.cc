// Goal: every model of the zoo is ONNX that a job can train, with what is set.
// Method: each is parsed and its shapes inferred; weights are counted; seeds
// change weights and nothing else.

#include "common/model/zoo/zoo.h"

#include "common/model/model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using Settings = std::map<std::string, std::string>;

std::shared_ptr<const Model> Read(absl::string_view name,
                                  const Settings& settings) {
  const auto bytes = WriteZooModel(name, settings);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  auto model = Model::Parse(bytes.ok() ? *bytes : "", name);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

int64_t WeightCount(const Model& model) {
  int64_t count = 0;
  const Graph& graph = model.graph();
  for (const Initializer& initializer : graph.initializers) {
    if (initializer.tensor.dtype == DType::kFloat32) {
      count += ElementCount(initializer.tensor.dims);
    }
  }
  return count;
}

TEST(ZooTest, EveryModelIsReadable) {
  for (const ZooEntry& entry : ZooModels()) {
    SCOPED_TRACE(std::string(entry.name));
    const auto model = Read(entry.name, {});
    ASSERT_NE(model, nullptr);
    EXPECT_TRUE(model->InferShapes(3).ok());
    ASSERT_EQ(model->graph().outputs.size(), 1u);
    EXPECT_GT(WeightCount(*model), 0);
  }
}

TEST(ZooTest, WeightsAreCounted) {
  const auto count = [](absl::string_view name, const Settings& settings) {
    const auto model = Read(name, settings);
    return model == nullptr ? 0 : WeightCount(*model);
  };
  EXPECT_EQ(count("mlp", {{"hidden", "256"}}), 784 * 256 + 256 + 2570);
  EXPECT_EQ(count("lenet", {}), 832 + 51264 + 401536 + 1290);
  // What torchvision counts, and two running values for each channel.
  EXPECT_EQ(count("resnet18", {}), 11'689'512 + 2 * 4800);
  EXPECT_EQ(count("resnet50", {}), 25'557'032 + 2 * 26'560);
  EXPECT_EQ(count("resnet18", {{"stem", "cifar"}}), 11'173'962 + 2 * 4800);
}

TEST(ZooTest, AResnetHalvesItsImages) {
  struct Case {
    const char* stem;
    const char* side;
    int64_t last;  // of the last convolution
  };
  for (const Case& c : {Case{"imagenet", "224", 7}, Case{"imagenet", "33", 2},
                        Case{"cifar", "32", 4}, Case{"cifar", "28", 4}}) {
    for (const char* name : {"resnet18", "resnet50"}) {
      SCOPED_TRACE(::testing::Message() << name << c.stem << c.side);
      const auto model = Read(name, {{"stem", c.stem},
                                     {"side", c.side},
                                     {"channels", "1"},
                                     {"width", "4"},
                                     {"classes", "5"}});
      ASSERT_NE(model, nullptr);
      const auto shapes = *model->InferShapes(3);
      const Graph& graph = model->graph();
      const int64_t depth = name == std::string("resnet50") ? 128 : 32;
      EXPECT_EQ(shapes[graph.FindValue("layer4.1.out")],
                (Dims{3, depth, c.last, c.last}));
      EXPECT_EQ(shapes[graph.outputs[0]], (Dims{3, 5}));
    }
  }
}

TEST(ZooTest, SettingsThatAreNoneAreNamed) {
  const auto problem = [](const Settings& settings) {
    return std::string(WriteZooModel("resnet18", settings).status().message());
  };
  EXPECT_EQ(problem({{"stem", "mnist"}}),
            "stem: 'mnist' is not one of imagenet, cifar");
  EXPECT_EQ(problem({{"side", "7"}}),
            "side: '7' is not a whole number from 8 to 4096");
}

TEST(ZooTest, ASeedChangesWeightsAndNothingElse) {
  const auto first = WriteZooModel("mlp", {{"hidden", "4"}});
  EXPECT_EQ(first, WriteZooModel("mlp", {{"hidden", "4"}, {"seed", "0"}}));
  const auto other = WriteZooModel("mlp", {{"hidden", "4"}, {"seed", "1"}});
  EXPECT_EQ(other->size(), first->size());
  EXPECT_NE(other, first);
}

}  // namespace
}  // namespace syncline

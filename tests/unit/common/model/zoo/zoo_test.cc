// Goal: every model of the zoo is ONNX that a job can train, with what is set.
// Method: each is parsed and its shapes inferred; weights are counted; seeds
// change weights and nothing else.

#include "common/model/zoo/zoo.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
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
  auto model = Model::Parse(bytes.ok() ? *bytes : "", name, /*initialize=*/{},
                            /*tables=*/{"wide", "deep", "linear", "embedding"});
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

int64_t WeightCount(const Model& model) {
  int64_t count = 0;
  const Graph& graph = model.graph();
  for (const Initializer& initializer : graph.initializers) {
    if (initializer.tensor.dtype == DType::kFloat32 &&
        initializer.origin == Initializer::Origin::kFile) {
      count += ElementCount(initializer.tensor.dims);
    }
  }
  return count;
}

TEST(ZooTest, EveryModelIsReadable) {
  for (const ZooEntry& entry : ZooModels()) {
    SCOPED_TRACE(std::string(entry.name));
    const bool is_wide = absl::StartsWith(entry.name, "resnet");
    const auto model =
        Read(entry.name, is_wide ? Settings{{"width", "4"}} : Settings());
    ASSERT_NE(model, nullptr);
    EXPECT_TRUE(model->InferShapes(3).ok());
    ASSERT_EQ(model->graph().outputs.size(), 1u);
    EXPECT_GT(WeightCount(*model), 0);
  }
}

TEST(ZooTest, SequencesMayHaveAnyLength) {
  for (const char* name : {"lstm", "gpt", "bert"}) {
    for (const char* attention : {"nodes", "operator"}) {
      SCOPED_TRACE(absl::StrCat(name, " ", attention));
      Settings settings = {{"sequence", "symbolic"}, {"length", "12"}};
      if (std::string(name) != "lstm") settings["attention"] = attention;
      const auto bytes = WriteZooModel(name, settings);
      ASSERT_TRUE(bytes.ok()) << bytes.status();
      const auto model = Model::Parse(*bytes, name, {}, {}, {"sequence", 12});
      ASSERT_TRUE(model.ok()) << model.status();
      for (const int64_t length : {1, 5, 12}) {
        const auto shapes = (*model)->InferShapes(3, length);
        ASSERT_TRUE(shapes.ok()) << shapes.status();
        EXPECT_EQ((*shapes)[(*model)->graph().inputs[0]], (Dims{3, length}));
      }
    }
  }
}

TEST(ZooTest, AnLstmStartsByRemembering) {
  for (const float forget_bias : {1.0f, 0.0f}) {
    const Settings settings = {{"hidden", "2"},
                               {"layers", "1"},
                               {"forget_bias", forget_bias == 1 ? "1" : "0"}};
    const auto model = Read("lstm", settings);
    ASSERT_NE(model, nullptr);
    const Graph& graph = model->graph();
    const Value& bias = graph.values[graph.FindValue("lstm1.bias")];
    // In ONNX's order: input, output, forget, cell; then those of the state.
    EXPECT_THAT(graph.initializers[bias.initializer].tensor.floats(),
                ::testing::ElementsAre(0, 0, 0, 0, forget_bias, forget_bias, 0,
                                       0, 0, 0, 0, 0, 0, 0, 0, 0));
  }
}

TEST(ZooTest, WeightsAreCounted) {
  const auto count = [](absl::string_view name, const Settings& settings) {
    const auto model = Read(name, settings);
    return model == nullptr ? 0 : WeightCount(*model);
  };
  EXPECT_EQ(count("mlp", {{"hidden", "256"}}), 784 * 256 + 256 + 2570);
  EXPECT_EQ(count("lenet", {}), 832 + 51264 + 401536 + 1290);
  EXPECT_EQ(
      count("lstm", {{"vocabulary", "7"},
                     {"width", "3"},
                     {"hidden", "5"},
                     {"layers", "2"}}),
      7 * 3 + (20 * 3 + 20 * 5 + 40) + (20 * 5 + 20 * 5 + 40) + 5 * 7 + 7);
  // torchvision's count, and two running values for each channel.
  EXPECT_EQ(count("resnet18", {}), 11'689'512 + 2 * 4800);
  EXPECT_EQ(count("resnet50", {}), 25'557'032 + 2 * 26'560);
  // The stem is 3x3 in place of 7x7, and there are fewer classes.
  const Settings cifar = {{"stem", "cifar"}, {"width", "4"}};
  EXPECT_EQ(count("resnet18", {{"width", "4"}}) - count("resnet18", cifar),
            3 * 4 * (49 - 9) + (32 + 1) * (1000 - 10));
  const int64_t layer = 12 * 8 * 8;  // of width 8, without biases and norms
  EXPECT_EQ(count("gpt", {{"width", "8"},
                          {"layers", "2"},
                          {"length", "5"},
                          {"vocabulary", "9"}}),
            2 * (layer + 32) + (9 + 5) * 8 + 16);
  EXPECT_EQ(count("bert", {{"width", "8"},
                           {"layers", "2"},
                           {"length", "5"},
                           {"vocabulary", "9"},
                           {"types", "2"}}),
            2 * (layer + 72 + 32) + (9 + 5 + 2) * 8 + 16 + 72 + 18);
  // Tables that are open have no values.
  const Settings three = {{"dense", "2"}, {"categories", "3"}, {"dim", "4"}};
  const int64_t bottom = 3 * 32 + 33 * 4;
  const int64_t top = (8 + 6 + 1) * 64 + 65;
  EXPECT_EQ(count("dlrm", three), bottom + top);
  Settings with_rows = three;
  with_rows["rows"] = "10";
  EXPECT_EQ(count("dlrm", with_rows), 10 * 4 + bottom + top);
  with_rows["tables"] = "each";
  EXPECT_EQ(count("dlrm", with_rows), 3 * 10 * 4 + bottom + top);
}

TEST(ZooTest, ATableEachHasAnInputEach) {
  const auto model =
      Read("deepfm", {{"categories", "3"}, {"tables", "each"}, {"rows", "7"}});
  ASSERT_NE(model, nullptr);
  const Graph& graph = model->graph();
  std::vector<std::string> inputs;
  for (const ValueId id : graph.inputs) inputs.push_back(graph.values[id].name);
  EXPECT_THAT(inputs, testing::ElementsAre("dense", "category1", "category2",
                                           "category3"));
  for (const char* table : {"embedding1", "embedding3", "linear1", "linear3"}) {
    EXPECT_NE(graph.FindValue(table), kNoValue) << table;
  }
}

TEST(ZooTest, SettingsThatDoNotFitAreNamed) {
  const auto problem = [](absl::string_view name, const Settings& settings) {
    return std::string(WriteZooModel(name, settings).status().message());
  };
  EXPECT_EQ(problem("gpt", {{"width", "10"}, {"heads", "4"}}),
            "width: 10 is not a multiple of heads, which is 4");
  EXPECT_EQ(problem("gpt", {{"dropout", "1.5"}}),
            "dropout: '1.5' is not a number from 0 to 0.9");
  EXPECT_EQ(problem("bert", {{"head", "words"}}),
            "head: 'words' is not one of classes, tokens");
  EXPECT_EQ(problem("dlrm", {{"rows", "100000000"}, {"dim", "64"}}),
            "rows: 100000000 make tables of more than 1024 MiB, too many for a "
            "model file; 0 leaves them to the job's tables");
}

// Each of the settings is within its own bounds.
TEST(ZooTest, WhatIsMoreThanAFileHoldsIsRefusedBeforeItTakesMemory) {
  const auto problem = [](absl::string_view name, const Settings& settings) {
    return std::string(WriteZooModel(name, settings).status().message());
  };
  EXPECT_EQ(problem("lstm", {{"vocabulary", "1048576"},
                             {"width", "65536"},
                             {"hidden", "1"},
                             {"layers", "1"}}),
            "lstm with hidden=1, layers=1, vocabulary=1048576, width=65536: "
            "the weights are 256.0 GiB, and an ONNX file holds 2 GiB; the "
            "largest is \"embedding.weight\" [1048576,65536]");
  EXPECT_THAT(problem("resnet50", {{"width", "4096"}}),
              testing::HasSubstr("resnet50 with width=4096: the weights are "));
  EXPECT_THAT(problem("mlp", {{"hidden", "65536,65536"}}),
              testing::HasSubstr("an ONNX file holds 2 GiB"));
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

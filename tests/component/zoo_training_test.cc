// Goal: every model of the zoo trains. Method: a few steps of plain SGD with
// the worker's executor on one batch, in small sizes and with each setting that
// changes the graph: the loss falls.

#include "tests/testing/zoo_training.h"

#include <map>

#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

constexpr int kSteps = 30;

class ZooTrainingTest : public testing::TestWithParam<ZooCase> {};

TEST_P(ZooTrainingTest, StepsLowerTheLoss) {
  ASSERT_OK_AND_ASSIGN(const std::vector<double> losses,
                       TrainZooModel(GetParam(), kSteps));
  EXPECT_LT(losses.back(), 0.9 * losses.front()) << absl::StrJoin(losses, " ");
}

INSTANTIATE_TEST_SUITE_P(
    Zoo, ZooTrainingTest,
    testing::Values(
        ZooCase{"Mlp", "mlp", {{"inputs", "8"}, {"hidden", "16,16"}}},
        ZooCase{"Lenet", "lenet", {{"channels", "4,8"}, {"hidden", "16"}}},
        ZooCase{"Gpt", "gpt", SmallModel({}), 0.5f},
        ZooCase{"GptDropout", "gpt", SmallModel({{"dropout", "0.1"}}), 0.5f},
        ZooCase{"GptOperator", "gpt", SmallModel({{"attention", "operator"}}),
                0.5f},
        ZooCase{"GptAnyLength", "gpt", SmallModel({{"sequence", "symbolic"}}),
                0.5f},
        ZooCase{"LstmAnyLength",
                "lstm",
                {{"sequence", "symbolic"},
                 {"vocabulary", "11"},
                 {"layers", "1"},
                 {"hidden", "32"}},
                2},
        ZooCase{"Bert", "bert", SmallModel({}), 0.3f},
        ZooCase{"BertAnyLength", "bert",
                SmallModel({{"sequence", "symbolic"}, {"padding", "0"}}), 0.3f},
        ZooCase{"BertTypesAndPadding", "bert",
                SmallModel({{"types", "2"}, {"padding", "0"}}), 0.3f},
        ZooCase{"BertPadding", "bert", SmallModel({{"padding", "0"}}), 0.3f},
        ZooCase{"BertPaddingOperator", "bert",
                SmallModel({{"padding", "0"}, {"attention", "operator"}}),
                0.3f},
        ZooCase{"BertTokensNormFirst", "bert",
                SmallModel({{"head", "tokens"}, {"norm", "pre"}}), 0.5f},
        ZooCase{"WideAndDeep", "wide-and-deep", ClickModel({})},
        ZooCase{"WideAndDeepEach", "wide-and-deep",
                ClickModel({{"tables", "each"}})},
        ZooCase{"DeepFm", "deepfm", ClickModel({})},
        ZooCase{"DeepFmEach", "deepfm", ClickModel({{"tables", "each"}})},
        ZooCase{"Dlrm", "dlrm", ClickModel({})},
        ZooCase{"DlrmEach", "dlrm", ClickModel({{"tables", "each"}})}),
    [](const auto& info) { return info.param.name; });

TEST(ZooAttentionTest, OpenLengthsTrainAsFixedOnes) {
  for (const char* attention : {"nodes", "operator"}) {
    const auto losses = [&](const char* sequence) {
      return TrainZooModel({.name = "",
                            .model = "gpt",
                            .settings = SmallModel({{"attention", attention},
                                                    {"sequence", sequence}})},
                           3);
    };
    ASSERT_OK_AND_ASSIGN(const std::vector<double> fixed, losses("fixed"));
    ASSERT_OK_AND_ASSIGN(const std::vector<double> any, losses("symbolic"));
    EXPECT_EQ(fixed, any);
  }
}

TEST(ZooAttentionTest, NodesAndOperatorTrainAlike) {
  for (const char* model : {"gpt", "bert"}) {
    SCOPED_TRACE(model);
    const auto losses = [&](const char* attention) {
      auto settings = SmallModel({{"attention", attention}});
      if (std::string(model) == "bert") settings["padding"] = "0";
      return TrainZooModel({.name = "", .model = model, .settings = settings},
                           3);
    };
    ASSERT_OK_AND_ASSIGN(const std::vector<double> nodes, losses("nodes"));
    ASSERT_OK_AND_ASSIGN(const std::vector<double> whole, losses("operator"));
    for (size_t i = 0; i < nodes.size(); ++i) {
      EXPECT_NEAR(nodes[i], whole[i], 1e-4 * nodes[i]);
    }
  }
}

}  // namespace
}  // namespace syncline

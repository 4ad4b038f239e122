// Goal: every model of the zoo trains. Method: a few steps of plain SGD with
// the worker's executor on one batch, in small sizes and with each setting that
// changes the graph: the loss falls.

#include <map>

#include "absl/strings/str_join.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/job/job_spec_validator.h"
#include "common/model/training_graph.h"
#include "common/model/zoo/zoo.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "worker/compute/executor.h"

namespace syncline {
namespace {

constexpr int64_t kSamples = 16;
constexpr int kSteps = 30;
// Of models that take any.
const LengthDimension kLength = {"sequence", 6};

struct ZooCase {
  std::string name;  // of the test
  std::string model;
  std::map<std::string, std::string> settings;
  float rate = 0.1f;
};

std::ostream& operator<<(std::ostream& out, const ZooCase& c) {
  return out << c.name;
}

// Ids are below this in every case.
constexpr int64_t kIds = 11;

void FillFeeds(const Graph& graph, Random* random, worker::Batch* batch) {
  for (const ValueId id : graph.inputs) {
    const Value& input = graph.values[id];
    const absl::Span<const int64_t> dims(input.dims);
    const int64_t count = kSamples * ElementCount(dims.subspan(1));
    std::vector<float>& numbers = batch->feeds.emplace_back();
    std::vector<int64_t>& ids = batch->int_feeds.emplace_back();
    if (input.dtype == DType::kInt64) {
      const uint64_t most = input.name == "token_types" ? 2 : kIds;
      for (int64_t i = 0; i < count; ++i) {
        ids.push_back(static_cast<int64_t>(random->Below(most)));
      }
    } else {
      for (int64_t i = 0; i < count; ++i) {
        numbers.push_back(static_cast<float>(random->Normal()));
      }
    }
  }
}

// The logit of a click is one number; else there are classes.
void FillLabels(const Dims& output, Random* random, worker::Batch* batch) {
  const uint64_t classes =
      output.back() == 1 ? 2 : static_cast<uint64_t>(output.back());
  int64_t labels = kSamples;
  for (size_t i = 1; i + 1 < output.size(); ++i) labels *= output[i];
  for (int64_t i = 0; i < labels; ++i) {
    batch->labels.push_back(static_cast<float>(random->Below(classes)));
  }
  batch->label_width = labels / kSamples;
}

// The mean loss of each of `steps` on one random batch.
absl::StatusOr<std::vector<double>> Train(const ZooCase& c, int steps) {
  SYNCLINE_ASSIGN_OR_RETURN(const std::string bytes,
                            WriteZooModel(c.model, c.settings));
  SYNCLINE_ASSIGN_OR_RETURN(const auto model,
                            Model::Parse(bytes, c.model, {}, {}, kLength));
  const Graph& graph = model->graph();
  const Dims& output = graph.values[graph.outputs[0]].dims;
  JobSpec spec;
  for (const ValueId id : graph.inputs) {
    spec.mutable_data()->add_feeds()->set_input(graph.values[id].name);
  }
  spec.mutable_loss()->set_kind(output.back() == 1
                                    ? LossSpec::SIGMOID_CROSS_ENTROPY
                                    : LossSpec::SOFTMAX_CROSS_ENTROPY);
  spec.mutable_training()->set_batch_size(kSamples);
  std::vector<std::string> problems;
  const TrainingGraph training =
      ResolveTrainingGraph(WithDefaults(spec), *model, &problems);
  if (!problems.empty()) {
    return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
  }
  SYNCLINE_ASSIGN_OR_RETURN(
      const auto executor,
      worker::Executor::Create(model, training,
                               {.loss = spec.loss(), .batch_size = kSamples}));
  Random random(1);
  worker::Batch batch;
  batch.size = kSamples;
  FillFeeds(graph, &random, &batch);
  FillLabels(output, &random, &batch);
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    SYNCLINE_ASSIGN_OR_RETURN(const auto result,
                              executor->TrainStep(batch, step, [](int) {}));
    losses.push_back(result.loss_sum / kSamples);
    for (size_t i = 0; i < training.parameters.size(); ++i) {
      const auto gradient = executor->gradient(static_cast<int>(i));
      const auto values = executor->parameter(static_cast<int>(i));
      for (size_t k = 0; k < values.size(); ++k) {
        values[k] -= c.rate * gradient[k] / kSamples;
      }
    }
  }
  return losses;
}

class ZooTrainingTest : public testing::TestWithParam<ZooCase> {};

TEST_P(ZooTrainingTest, StepsLowerTheLoss) {
  ASSERT_OK_AND_ASSIGN(const std::vector<double> losses,
                       Train(GetParam(), kSteps));
  EXPECT_LT(losses.back(), 0.9 * losses.front()) << absl::StrJoin(losses, " ");
}

std::map<std::string, std::string> Small(
    std::map<std::string, std::string> settings) {
  settings.insert({{"layers", "2"},
                   {"width", "16"},
                   {"heads", "2"},
                   {"length", "6"},
                   {"vocabulary", "11"}});
  return settings;
}

std::map<std::string, std::string> Clicks(
    std::map<std::string, std::string> settings) {
  settings.insert({{"dense", "3"}, {"categories", "4"}, {"rows", "11"}});
  return settings;
}

INSTANTIATE_TEST_SUITE_P(
    Zoo, ZooTrainingTest,
    testing::Values(
        ZooCase{"Mlp", "mlp", {{"inputs", "8"}, {"hidden", "16,16"}}},
        ZooCase{"Lenet", "lenet", {{"channels", "4,8"}, {"hidden", "16"}}},
        ZooCase{"Gpt", "gpt", Small({}), 0.5f},
        ZooCase{"GptDropout", "gpt", Small({{"dropout", "0.1"}}), 0.5f},
        ZooCase{"GptOperator", "gpt", Small({{"attention", "operator"}}), 0.5f},
        ZooCase{"GptAnyLength", "gpt", Small({{"sequence", "symbolic"}}), 0.5f},
        ZooCase{"LstmAnyLength",
                "lstm",
                {{"sequence", "symbolic"},
                 {"vocabulary", "11"},
                 {"layers", "1"},
                 {"hidden", "32"}},
                2},
        ZooCase{"Bert", "bert", Small({}), 0.3f},
        ZooCase{"BertAnyLength", "bert",
                Small({{"sequence", "symbolic"}, {"padding", "0"}}), 0.3f},
        ZooCase{"BertTypesAndPadding", "bert",
                Small({{"types", "2"}, {"padding", "0"}}), 0.3f},
        ZooCase{"BertPadding", "bert", Small({{"padding", "0"}}), 0.3f},
        ZooCase{"BertPaddingOperator", "bert",
                Small({{"padding", "0"}, {"attention", "operator"}}), 0.3f},
        ZooCase{"BertTokensNormFirst", "bert",
                Small({{"head", "tokens"}, {"norm", "pre"}}), 0.5f},
        ZooCase{"WideAndDeep", "wide-and-deep", Clicks({})},
        ZooCase{"WideAndDeepEach", "wide-and-deep",
                Clicks({{"tables", "each"}})},
        ZooCase{"DeepFm", "deepfm", Clicks({})},
        ZooCase{"DeepFmEach", "deepfm", Clicks({{"tables", "each"}})},
        ZooCase{"Dlrm", "dlrm", Clicks({})},
        ZooCase{"DlrmEach", "dlrm", Clicks({{"tables", "each"}})}),
    [](const auto& info) { return info.param.name; });

TEST(ZooAttentionTest, OpenLengthsTrainAsFixedOnes) {
  for (const char* attention : {"nodes", "operator"}) {
    const auto losses = [&](const char* sequence) {
      return Train({.name = "",
                    .model = "gpt",
                    .settings = Small(
                        {{"attention", attention}, {"sequence", sequence}})},
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
      auto settings = Small({{"attention", attention}});
      if (std::string(model) == "bert") settings["padding"] = "0";
      return Train({.name = "", .model = model, .settings = settings}, 3);
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

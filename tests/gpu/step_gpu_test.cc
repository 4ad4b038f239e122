// Goal: whole training steps run on a GPU. Method: the small models of
// executor_cuda_test, and models of the zoo over several steps, on the GPU and
// on this machine's processors.

#include <vector>

#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "tests/gpu/gpu.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/zoo_training.h"
#include "tests/unit/worker/compute/device_steps.h"

namespace syncline {
namespace {

using worker::Block;
using worker::Convolutions;
using worker::ExpectSameBitsAsQueued;
using worker::ExpectSameStepsOn;
using worker::Masked;

TEST(StepGpuTest, ATransformersBlock) {
  OnGpu gpu;
  ASSERT_NE(gpu.device(), nullptr);
  ExpectSameStepsOn(gpu.device(), Block(), 1, 1, DType::kFloat32, 5e-5);
}

TEST(StepGpuTest, InPartsAndWithWhatRunsAgain) {
  OnGpu gpu;
  ASSERT_NE(gpu.device(), nullptr);
  ExpectSameStepsOn(gpu.device(), Block(), 2, 2, DType::kFloat32, 5e-5);
}

TEST(StepGpuTest, ConvolutionsAndPooling) {
  OnGpu gpu;
  ASSERT_NE(gpu.device(), nullptr);
  ExpectSameStepsOn(gpu.device(), Convolutions(), 1, 1, DType::kFloat32, 2e-4);
}

// A sum that is rounded to 16 bits may be rounded to the next number.
TEST(StepGpuTest, In16Bits) {
  OnGpu gpu;
  ASSERT_NE(gpu.device(), nullptr);
  ExpectSameStepsOn(gpu.device(), Block(), 1, 1, DType::kBfloat16, 4.0 / 256);
}

// In float32 and in 16 bits, whole and in parts.
TEST(StepGpuTest, GraphsHaveTheBitsOfQueuedSteps) {
  OnGpu queued = OnGpu::Queued();
  OnGpu gpu;
  ASSERT_NE(queued.device(), nullptr);
  ASSERT_NE(gpu.device(), nullptr);
  for (const auto& model : {Masked(), Block(), Convolutions()}) {
    for (const DType type : {DType::kFloat32, DType::kBfloat16}) {
      for (const int64_t parts : {1, 2}) {
        ExpectSameBitsAsQueued(queued.device(), gpu.device(), model, parts,
                               type);
      }
    }
  }
}

constexpr int kSteps = 10;
// Of a loss; differences grow from step to step.
constexpr double kTolerance = 1e-3;

class ZooGpuTest : public ::testing::TestWithParam<ZooCase> {};

TEST_P(ZooGpuTest, TrainsAsOnThisMachine) {
  OnGpu gpu;
  ASSERT_NE(gpu.device(), nullptr);
  ASSERT_OK_AND_ASSIGN(const std::vector<double> want,
                       TrainZooModel(GetParam(), kSteps));
  ASSERT_OK_AND_ASSIGN(const std::vector<double> got,
                       TrainZooModel(GetParam(), kSteps, gpu.device()));
  ASSERT_EQ(got.size(), want.size());
  for (int i = 0; i < kSteps; ++i) {
    EXPECT_NEAR(got[i], want[i], kTolerance * want[i]) << "step " << i;
  }
  ASSERT_OK_AND_ASSIGN(const std::vector<double> again,
                       TrainZooModel(GetParam(), kSteps, gpu.device()));
  EXPECT_EQ(again, got) << "not the same bits";
}

INSTANTIATE_TEST_SUITE_P(
    Zoo, ZooGpuTest,
    ::testing::Values(
        ZooCase{"Mlp", "mlp", {{"inputs", "8"}, {"hidden", "16,16"}}},
        ZooCase{"Lenet", "lenet", {{"channels", "4,8"}, {"hidden", "16"}}},
        ZooCase{"Gpt", "gpt", SmallModel({}), 0.5f},
        ZooCase{"GptDropout", "gpt", SmallModel({{"dropout", "0.1"}}), 0.5f},
        ZooCase{"GptOperator", "gpt", SmallModel({{"attention", "operator"}}),
                0.5f},
        ZooCase{"Lstm",
                "lstm",
                {{"sequence", "symbolic"},
                 {"vocabulary", "11"},
                 {"layers", "1"},
                 {"hidden", "32"}},
                2},
        ZooCase{"BertTypesAndPadding", "bert",
                SmallModel({{"types", "2"}, {"padding", "0"}}), 0.3f},
        ZooCase{"WideAndDeep", "wide-and-deep", ClickModel({})},
        ZooCase{"DeepFm", "deepfm", ClickModel({})},
        ZooCase{"Dlrm", "dlrm", ClickModel({})}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace syncline

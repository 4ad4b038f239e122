// Goal: a job trains on the GPUs of its workers, or on their processors where
// it says so; what a GPU cannot hold is refused with what it could; a GPU that
// fails costs the job that ran, with its name, and no worker. Method: ps and
// workers in this process with emulated GPUs, against the same job on the
// processors; the test plays the scheduler.

#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/cuda_emulator/cudnn_double.h"
#include "tests/testing/cuda_emulator/emulated_device.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/training_cluster.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using testing::EmulatedDevice;
using ::testing::HasSubstr;

constexpr int kHidden = 12;

// 28 x 28 images, a convolution of two filters and the logits.
constexpr char kConvolution[] =
    R"(<ir_version: 8, opset_import: ["" : 13]>
convolution (float[N,784] x, float[2,1,5,5] w1, float[2] b1, float[288,10] w2,
             float[10] b2) => (float[N,10] logits)
<int64[4] shape = {0, 1, 28, 28}> {
  image = Reshape(x, shape)
  planes = Conv <strides = [2, 2]> (image, w1, b1)
  active = Relu(planes)
  flat = Flatten <axis = 1> (active)
  logits = Gemm(flat, w2, b2)
}
)";

JobSpec Job(ResourcesSpec::Device device) {
  JobSpec spec = DigitsJob();
  spec.mutable_data()->mutable_train()->mutable_digits()->set_count(64);
  spec.mutable_data()->mutable_test()->mutable_digits()->set_count(32);
  spec.mutable_training()->set_batch_size(16);
  spec.mutable_training()->set_eval_batch_size(16);
  spec.mutable_training()->set_epochs(1);
  spec.mutable_resources()->set_device(device);
  return spec;
}

class DeviceTrainingTest : public ::testing::Test {
 protected:
  TrainingCluster::Options OptionsOf(uint32_t workers,
                                     std::vector<Device*> gpus) {
    return TrainingCluster::Options{
        .workers = workers,
        .ps = 1,
        .work_dir = dir_.File(absl::StrCat("c", ++clusters_)),
        .data_root = "",
        .gpus = std::move(gpus),
        .on_gpu_lost = [this](const absl::Status& why, bool has_worked) {
          lost_.emplace_back(why.message());
          had_worked_ = has_worked;
        }};
  }
  void Start(uint32_t workers, std::vector<Device*> gpus) {
    cluster_ =
        std::make_unique<TrainingCluster>(OptionsOf(workers, std::move(gpus)));
  }
  // Its chief measures algorithms of matrix products.
  TrainingCluster::Options Measuring(uint32_t workers,
                                     std::vector<Device*> gpus) {
    TrainingCluster::Options options = OptionsOf(workers, std::move(gpus));
    options.product_tuning.measures = true;
    return options;
  }
  TrainingCluster::Outcome Train(ResourcesSpec::Device device) {
    return cluster_->RunJob(Job(device), MlpModel(784, kHidden, 10));
  }

  // A GPU that outlives the workers.
  EmulatedDevice& MakeGpu(uint64_t seed = 1,
                          uint64_t memory_bytes = uint64_t{1} << 40) {
    gpus_.push_back(std::make_unique<EmulatedDevice>(seed, memory_bytes));
    return *gpus_.back();
  }

  TempDir dir_;
  int clusters_ = 0;
  std::vector<std::unique_ptr<EmulatedDevice>> gpus_;
  std::vector<std::string> lost_;
  bool had_worked_ = false;
  std::unique_ptr<TrainingCluster> cluster_;
};

TEST_F(DeviceTrainingTest, GpusTrainAsProcessorsDo) {
  EmulatedDevice& first = MakeGpu();
  EmulatedDevice& second = MakeGpu();
  Start(2, {&first, &second});
  const auto here = Train(ResourcesSpec::CPU);
  ASSERT_EQ(here.status, absl::OkStatus());
  EXPECT_EQ(first.launches() + second.launches(), 0);
  const auto there = Train(ResourcesSpec::CUDA);
  ASSERT_EQ(there.status, absl::OkStatus());
  EXPECT_EQ(first.health(), absl::OkStatus());
  EXPECT_GT(first.launches(), 10);
  EXPECT_GT(second.launches(), 10);
  ASSERT_EQ(there.weights.size(), here.weights.size());
  for (const auto& [name, want] : here.weights) {
    const std::vector<float>& got = there.weights.at(name);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], 1e-4) << name << " " << i;
    }
  }
  ASSERT_EQ(there.evaluations.size(), here.evaluations.size());
  EXPECT_NEAR(there.evaluations.back().loss(), here.evaluations.back().loss(),
              1e-4);
}

TEST_F(DeviceTrainingTest, Tf32IsForGpus) {
  Start(1, {&MakeGpu()});
  const auto train = [&](ResourcesSpec::Device device, Precision precision) {
    JobSpec spec = Job(device);
    spec.set_precision(precision);
    return cluster_->RunJob(spec, MlpModel(784, kHidden, 10));
  };
  const auto whole = train(ResourcesSpec::CUDA, FLOAT32);
  const auto rounded = train(ResourcesSpec::CUDA, TF32);
  ASSERT_EQ(rounded.status, absl::OkStatus());
  EXPECT_NE(rounded.weights, whole.weights);
  EXPECT_NEAR(rounded.evaluations.back().loss(),
              whole.evaluations.back().loss(), 1e-2);
  EXPECT_EQ(train(ResourcesSpec::CUDA, FLOAT32).weights, whole.weights);
  EXPECT_EQ(train(ResourcesSpec::CPU, TF32).weights,
            train(ResourcesSpec::CPU, FLOAT32).weights);
}

TEST_F(DeviceTrainingTest, AGpuTrainsTwiceWithTheSameBits) {
  Start(1, {&MakeGpu(1)});
  const auto first = Train(ResourcesSpec::AUTO);
  ASSERT_EQ(first.status, absl::OkStatus());
  Start(1, {&MakeGpu(2)});  // another order of blocks and threads
  EXPECT_EQ(Train(ResourcesSpec::AUTO).weights, first.weights);
}

std::vector<absl::Duration> Milliseconds(std::vector<double> values) {
  std::vector<absl::Duration> times;
  for (const double value : values) times.push_back(absl::Milliseconds(value));
  return times;
}

// The second GPU's own choice would be another one.
TEST_F(DeviceTrainingTest, AllWorkersMultiplyAsTheChiefHasMeasured) {
  EmulatedDevice& first = MakeGpu();
  EmulatedDevice& second = MakeGpu(/*seed=*/2);
  EmulatedDevice& third = MakeGpu(/*seed=*/3);
  first.products().times = Milliseconds({3, 2, 1});
  second.products().times = Milliseconds({3, 1, 2});
  third.products().times = Milliseconds({1, 2, 3});
  TrainingCluster::Options options = Measuring(2, {&first, &second, &third});
  options.evaluator = true;
  cluster_ = std::make_unique<TrainingCluster>(options);
  const auto outcome = Train(ResourcesSpec::CUDA);
  ASSERT_EQ(outcome.status, absl::OkStatus());
  EXPECT_GT(first.products().measurements, 0);
  EXPECT_EQ(second.products().measurements, 0);
  EXPECT_EQ(third.products().measurements, 0);
  for (EmulatedDevice* const gpu : {&first, &second}) {
    EXPECT_GT(gpu->products().runs[2], 0);
    EXPECT_EQ(gpu->products().runs[0] + gpu->products().runs[1], 0);
  }
  const std::string text = outcome.artifacts.at("product-algorithms.txt");
  EXPECT_EQ(first.product_tuner()->table().ToText(), text);
  EXPECT_EQ(second.product_tuner()->table().ToText(), text);
  EXPECT_EQ(third.product_tuner()->table().ToText(), text);
}

TEST_F(DeviceTrainingTest, TheBitsAreThoseOfTheAlgorithms) {
  const auto train = [&](std::vector<double> times) {
    EmulatedDevice& gpu = MakeGpu();
    gpu.products().times = Milliseconds(times);
    TrainingCluster::Options options = Measuring(1, {&gpu});
    options.product_tuning.file = dir_.File("kept");
    cluster_ = std::make_unique<TrainingCluster>(options);
    return Train(ResourcesSpec::CUDA).weights;
  };
  const auto first = train({3, 2, 1});
  // Measured choices are kept: another day's times change nothing.
  EXPECT_EQ(train({1, 2, 3}), first);
  std::error_code ignored;
  std::filesystem::remove(dir_.File("kept"), ignored);
  EXPECT_NE(train({1, 2, 3}), first);
}

// A GPU that is another one, or whose library is, says so and trains with its
// library's choice.
TEST_F(DeviceTrainingTest, AnotherGpuFollowsItsOwnLibrary) {
  EmulatedDevice& first = MakeGpu();
  gpus_.push_back(std::make_unique<EmulatedDevice>(
      1, uint64_t{1} << 40, ProductLibrary{"emulated", "products 2.0"}));
  EmulatedDevice& second = *gpus_.back();
  first.products().times = Milliseconds({3, 2, 1});
  second.products().times = Milliseconds({3, 2, 1});
  cluster_ = std::make_unique<TrainingCluster>(Measuring(2, {&first, &second}));
  const auto outcome = Train(ResourcesSpec::CUDA);
  ASSERT_EQ(outcome.status, absl::OkStatus());
  EXPECT_GT(first.products().runs[2], 0);
  EXPECT_EQ(second.products().runs[2], 0);
  EXPECT_GT(second.products().runs[0], 0);
  EXPECT_THAT(outcome.artifacts.at("logs/worker-0.log"),
              AllOf(HasSubstr("chosen by this worker's own library"),
                    HasSubstr("products 2.0")));
}

// The first upload of the job is the table.
TEST_F(DeviceTrainingTest, AChiefWhoseChoiceIsNotStoredDoesNotUseIt) {
  EmulatedDevice& first = MakeGpu();
  EmulatedDevice& second = MakeGpu(/*seed=*/2);
  first.products().times = Milliseconds({3, 2, 1});
  second.products().times = Milliseconds({3, 2, 1});
  TrainingCluster::Options options = Measuring(2, {&first, &second});
  options.upload_failures = 1;
  cluster_ = std::make_unique<TrainingCluster>(options);
  const auto outcome = Train(ResourcesSpec::CUDA);
  ASSERT_EQ(outcome.status, absl::OkStatus());
  for (EmulatedDevice* const gpu : {&first, &second}) {
    EXPECT_GT(gpu->products().runs[0], 0);
    EXPECT_EQ(gpu->products().runs[2], 0);
  }
  EXPECT_EQ(outcome.artifacts.count("product-algorithms.txt"), 0u);
  EXPECT_THAT(outcome.artifacts.at("logs/chief-0.log"),
              HasSubstr("were measured, and are not used"));
}

// A later attempt has the table of the job, whatever its chief would measure.
TEST_F(DeviceTrainingTest, ALaterAttemptMultipliesAsTheFirst) {
  EmulatedDevice& before = MakeGpu();
  before.products().times = Milliseconds({3, 2, 1});
  cluster_ = std::make_unique<TrainingCluster>(Measuring(1, {&before}));
  const auto first = Train(ResourcesSpec::CUDA);
  ASSERT_EQ(first.status, absl::OkStatus());
  EmulatedDevice& after = MakeGpu();
  after.products().times = Milliseconds({3, 1, 2});
  TrainingCluster::Options options = Measuring(1, {&after});
  options.artifacts = {
      {"product-algorithms.txt", first.artifacts.at("product-algorithms.txt")}};
  options.change_assignment = [](JobAssignment* assignment) {
    assignment->set_attempt(2);
  };
  cluster_ = std::make_unique<TrainingCluster>(options);
  const auto second = Train(ResourcesSpec::CUDA);
  ASSERT_EQ(second.status, absl::OkStatus());
  EXPECT_EQ(after.products().measurements, 0);
  EXPECT_GT(after.products().runs[2], 0);
  EXPECT_EQ(second.weights, first.weights);
}

// As where the scheduler cannot read it. It is larger than any table is.
TEST_F(DeviceTrainingTest, ATableThatIsNotToBeHadCostsNoJob) {
  EmulatedDevice& first = MakeGpu();
  EmulatedDevice& second = MakeGpu(/*seed=*/2);
  first.products().times = Milliseconds({3, 2, 1});
  second.products().times = Milliseconds({1, 2, 3});
  TrainingCluster::Options options = Measuring(2, {&first, &second});
  const std::string of_no_use(size_t{5} << 20, 'x');
  options.artifacts = {{"product-algorithms.txt", of_no_use}};
  options.change_assignment = [](JobAssignment* assignment) {
    assignment->set_attempt(2);
  };
  cluster_ = std::make_unique<TrainingCluster>(options);
  constexpr char kWarning[] = "matrix products are not to be had";
  const auto here = Train(ResourcesSpec::CPU);
  ASSERT_EQ(here.status, absl::OkStatus());
  EXPECT_THAT(here.artifacts.at("logs/chief-0.log"),
              ::testing::Not(HasSubstr(kWarning)));
  EXPECT_EQ(here.artifacts.at("product-algorithms.txt"), of_no_use);
  const auto there = Train(ResourcesSpec::CUDA);
  ASSERT_EQ(there.status, absl::OkStatus());
  EXPECT_THAT(there.artifacts.at("logs/chief-0.log"), HasSubstr(kWarning));
  EXPECT_GT(first.products().measurements, 0);
  const std::string text = there.artifacts.at("product-algorithms.txt");
  EXPECT_EQ(first.product_tuner()->table().ToText(), text);
  EXPECT_EQ(second.product_tuner()->table().ToText(), text);
}

TEST_F(DeviceTrainingTest, AJobForGpusIsRefusedWhereThereIsNone) {
  Start(1, {});
  EXPECT_THAT(std::string(Train(ResourcesSpec::CUDA).status.message()),
              HasSubstr("resources.device: CUDA, but this worker computes on "
                        "its processors: the test gives it none"));
  EXPECT_EQ(Train(ResourcesSpec::AUTO).status, absl::OkStatus());
}

TEST_F(DeviceTrainingTest, ABatchThatAGpuCannotHoldIsRefusedWithOneThatItCan) {
  Start(1, {&MakeGpu(1, /*memory_bytes=*/uint64_t{65} << 20)});
  JobSpec spec = Job(ResourcesSpec::CUDA);
  spec.mutable_data()->mutable_train()->mutable_digits()->set_count(4096);
  spec.mutable_training()->set_batch_size(4096);
  const auto outcome = cluster_->RunJob(spec, MlpModel(784, kHidden, 10));
  EXPECT_THAT(
      std::string(outcome.status.message()),
      AllOf(HasSubstr("gradients and activations on emulated need"),
            HasSubstr("training.batch_size: "), HasSubstr(" would fit")));
  EXPECT_EQ(Train(ResourcesSpec::CUDA).status, absl::OkStatus());
}

TEST_F(DeviceTrainingTest, WithoutCudnnAJobWithConvolutionsIsRefusedByName) {
  EmulatedDevice& gpu = MakeGpu();
  gpu.UseCudnn(cuda::Cudnn::Load("libno-such-library.so.9"));
  Start(1, {&gpu});
  const auto train = [&](ResourcesSpec::Device device) {
    return cluster_->RunJob(Job(device), kConvolution);
  };
  EXPECT_THAT(
      std::string(train(ResourcesSpec::CUDA).status.message()),
      AllOf(HasSubstr("(Conv): cuDNN 9, CUDA's library of convolutions, is not "
                      "on this machine: libno-such-library.so.9"),
            HasSubstr("--convolutions=own")));
  EXPECT_EQ(gpu.launches(), 0);
  EXPECT_EQ(Train(ResourcesSpec::CUDA).status, absl::OkStatus());
  // Where there is one, or where our kernels compute them, it trains as
  // processors do.
  const auto here = train(ResourcesSpec::CPU);
  ASSERT_EQ(here.status, absl::OkStatus());
  for (const bool has_cudnn : {true, false}) {
    gpu.UseCudnn(has_cudnn ? testing::MakeCudnnDouble() : nullptr);
    const auto there = train(ResourcesSpec::CUDA);
    ASSERT_EQ(there.status, absl::OkStatus());
    EXPECT_EQ(testing::CudnnDouble().forwards > 0, has_cudnn);
    testing::CudnnDouble().forwards = 0;
    EXPECT_LT(LargestDifference(there.weights, here.weights), 1e-4);
  }
}

TEST_F(DeviceTrainingTest, ARefusalOfCudnnFailsItsJobByTheNodeAlone) {
  EmulatedDevice& gpu = MakeGpu();
  gpu.UseCudnn(testing::MakeCudnnDouble());
  Start(1, {&gpu});
  testing::CudnnDouble().fails_at = "run";
  testing::CudnnDouble().fails_with = cuda::kCudnnBadParameter;
  const auto outcome = cluster_->RunJob(Job(ResourcesSpec::CUDA), kConvolution);
  EXPECT_THAT(std::string(outcome.status.message()),
              HasSubstr("(Conv): cuDNN 9.19.0: a convolution's forward pass by "
                        "cuDNN: CUDNN_STATUS_2000: as the test said"));
  testing::CudnnDouble().fails_at = "";
  EXPECT_EQ(Train(ResourcesSpec::CUDA).status, absl::OkStatus());
  EXPECT_TRUE(lost_.empty());
}

// Values come once for a round, whose steps are made by kernels; what they have
// changed goes to the ps. An optimizer without a kernel is the processors'.
TEST_F(DeviceTrainingTest, LocalStepsAreMadeOnTheGpu) {
  EmulatedDevice& gpu = MakeGpu();
  Start(1, {&gpu});
  const auto train = [&](ResourcesSpec::Device device,
                         OptimizerSpec::Kind kind) {
    JobSpec spec = Job(device);
    spec.mutable_optimizer()->set_kind(kind);
    spec.mutable_learning_rate()->set_base(0.01);
    spec.mutable_consistency()->set_mode(ConsistencySpec::LOCAL);
    spec.mutable_consistency()->mutable_local()->set_steps(2);
    spec.mutable_training()->set_epochs(2);
    return cluster_->RunJob(spec, MlpModel(784, kHidden, 10));
  };
  for (const auto kind : {OptimizerSpec::ADAM, OptimizerSpec::NESTEROV}) {
    SCOPED_TRACE(OptimizerSpec::Kind_Name(kind));
    const auto here = train(ResourcesSpec::CPU, kind);
    ASSERT_EQ(here.status, absl::OkStatus());
    ::testing::internal::CaptureStderr();
    const auto there = train(ResourcesSpec::CUDA, kind);
    const std::string log = ::testing::internal::GetCapturedStderr();
    ASSERT_EQ(there.status, absl::OkStatus());
    const bool is_here =
        absl::StrContains(log, "local steps are updated on the processors");
    EXPECT_EQ(is_here, kind == OptimizerSpec::NESTEROV) << log;
    ASSERT_EQ(there.evaluations.size(), here.evaluations.size());
    for (size_t e = 0; e < here.evaluations.size(); ++e) {
      EXPECT_NEAR(there.evaluations[e].loss(), here.evaluations[e].loss(),
                  1e-3);
    }
    for (const auto& [name, want] : here.weights) {
      const std::vector<float>& got = there.weights.at(name);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_NEAR(got[i], want[i], 1e-3) << name << " " << i;
      }
    }
  }
  EXPECT_EQ(gpu.health(), absl::OkStatus());
}

TEST_F(DeviceTrainingTest, AGpuThatFailsCostsItsJobAndIsToldOnce) {
  EmulatedDevice& gpu = MakeGpu();
  Start(1, {&gpu});
  gpu.FailAt(8);
  const absl::Status failed = Train(ResourcesSpec::CUDA).status;
  // Another attempt may go on, without this process.
  EXPECT_TRUE(absl::IsAborted(failed)) << failed;
  const auto names_operator =
      AllOf(HasSubstr("the device was lost"),
            ::testing::ContainsRegex(
                "running: operator [12] of 2, Gemm( . Relu)? \"[^\"]+\", "
                "(forward|backward): "));
  EXPECT_THAT(std::string(failed.message()), names_operator);
  ASSERT_EQ(lost_.size(), 1u);
  EXPECT_THAT(lost_[0], names_operator);
  EXPECT_FALSE(had_worked_);
  EXPECT_THAT(std::string(Train(ResourcesSpec::AUTO).status.message()),
              HasSubstr("the GPU of this worker has failed, and the process "
                        "must be started again"));
  EXPECT_EQ(Train(ResourcesSpec::CPU).status, absl::OkStatus());
  EXPECT_EQ(lost_.size(), 1u);
}

TEST_F(DeviceTrainingTest, AGpuThatFailsAfterAStepHadWorked) {
  EmulatedDevice& gpu = MakeGpu();
  Start(1, {&gpu});
  ASSERT_EQ(Train(ResourcesSpec::CUDA).status, absl::OkStatus());
  gpu.FailAt(gpu.launches() + 8);
  EXPECT_TRUE(absl::IsAborted(Train(ResourcesSpec::CUDA).status));
  ASSERT_EQ(lost_.size(), 1u);
  EXPECT_TRUE(had_worked_);
}

}  // namespace
}  // namespace syncline

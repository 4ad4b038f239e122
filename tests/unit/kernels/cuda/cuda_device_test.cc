// Goal: a GPU is opened, copies and computes; without one, or without CUDA,
// that is said. Method: the GPU of the machine that runs this, if it has one.

#include "kernels/cuda/cuda_device.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/matrix_product_kernels.h"
#include "kernels/device/product_tuner.h"
#include "kernels/device/softmax_kernels.h"

namespace syncline {
namespace {

using ::testing::MatchesRegex;

TEST(CudaDeviceTest, AGpuThatIsNotThereIsNamed) {
  const auto device = OpenCudaDevice(1000);
  ASSERT_FALSE(device.ok());
  if (device.status().code() == absl::StatusCode::kUnimplemented) return;
  EXPECT_EQ(device.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(device.status().message()),
              MatchesRegex("cuda:1000: this machine has (no driver for GPUs|"
                           "no GPU that CUDA finds: .*|[0-9]+ GPUs)"));
}

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = OpenCudaDevice(0);
    if (!device.ok()) GTEST_SKIP() << device.status();
    device_ = *std::move(device);
    stream_ = *device_->MakeStream();
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

TEST_F(GpuTest, CopiesAndComputes) {
  const std::vector<float> x = {1, 2, 3, 4};
  const DeviceMemory from = *Upload(*device_, absl::Span<const float>(x));
  const DeviceMemory to = *device_->Allocate(4 * sizeof(float));
  device_->kernels().softmax->softmax.forward(*stream_, {.outer = 2, .n = 2},
                                              from.as<float>(), to.as<float>());
  std::vector<float> y(4);
  stream_->CopyToHost(y.data(), to.data(), 4 * sizeof(float));
  ASSERT_EQ(stream_->Synchronize(), absl::OkStatus());
  for (const int i : {0, 2}) {
    EXPECT_NEAR(y[i], 0.26894142, 1e-6);
    EXPECT_NEAR(y[i + 1], 0.73105858, 1e-6);
  }
}

TEST_F(GpuTest, MultipliesMatrices) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const DeviceMemory a = *Upload(*device_, absl::Span<const float>(values));
  const DeviceMemory c = *device_->Allocate(4 * sizeof(float));
  auto product = device_->kernels().matrix_product->make(
      *device_,
      {.m = 2, .n = 2, .k = 3, .transpose_b = true, .has_bias = true});
  ASSERT_TRUE(product.ok()) << product.status();
  ASSERT_EQ((*product)->Run(*stream_, a.as<float>(), a.as<float>(),
                            a.as<float>(), c.as<float>()),
            absl::OkStatus());
  std::vector<float> got(4);
  stream_->CopyToHost(got.data(), c.data(), 4 * sizeof(float));
  ASSERT_EQ(stream_->Synchronize(), absl::OkStatus());
  EXPECT_EQ(got, (std::vector<float>{14 + 1, 32 + 2, 32 + 1, 77 + 2}));
}

// A measured algorithm is taken by a product that is made later, also from the
// table's text.
TEST_F(GpuTest, MeasuresAlgorithmsOfProducts) {
  ProductTuner* const tuner = device_->product_tuner();
  ASSERT_NE(tuner, nullptr);
  EXPECT_THAT(tuner->library().name, ::testing::HasSubstr("cuBLASLt 1"));
  const MatrixProductShape shape = {.m = 256,
                                    .n = 512,
                                    .k = 1024,
                                    .a_type = DType::kBfloat16,
                                    .b_type = DType::kBfloat16,
                                    .c_type = DType::kBfloat16};
  const auto make = [&] {
    return *device_->kernels().matrix_product->make(*device_, shape);
  };
  const auto first = make();
  const auto report = tuner->Tune(*device_, {}, {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->measured, 2) << "for aligned arrays, and for all";
  const auto table = ProductTable::FromText(tuner->table().ToText());
  ASSERT_TRUE(table.ok()) << table.status();
  ASSERT_EQ(tuner->Follow(ProductTable(tuner->library())), absl::OkStatus());
  ASSERT_EQ(tuner->Follow(*table), absl::OkStatus());
  const auto second = make();
  EXPECT_EQ(tuner->refused(), 0);
  EXPECT_EQ(tuner->Tune(*device_, {}, {})->known, 2);
}

// In a process of its own, for which CUDA does nothing more after that.
TEST_F(GpuTest, AFaultNamesTheWorkThatRan) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto fail = [this] {
    stream_->UseMarks(std::make_shared<const Stream::Marks>(
        Stream::Marks{"the first", "the second", "the third"}));
    const std::vector<float> x = {1, 2, 3, 4};
    const DeviceMemory good = *Upload(*device_, absl::Span<const float>(x));
    for (uint32_t mark = 0; mark < 3; ++mark) {
      stream_->Mark(mark);
      device_->kernels().softmax->softmax.forward(
          *stream_, {.outer = 2, .n = 2}, good.as<float>(),
          mark == 1 ? nullptr : good.as<float>());
    }
    std::fputs(std::string(stream_->Synchronize().message()).c_str(), stderr);
    std::_Exit(0);
  };
  EXPECT_EXIT(fail(), ::testing::ExitedWithCode(0),
              "cuda:0: .*running: the second; launched last before it: ");
}

// The library's state is tied to a GPU: products of two take turns here.
TEST_F(GpuTest, EachGpuMultipliesByItself) {
  const auto other = OpenCudaDevice(1);
  if (!other.ok()) GTEST_SKIP() << other.status();
  const std::vector<float> values = {1, 2, 3, 4};
  for (int i = 0; i < 4; ++i) {
    Device& device = i % 2 == 0 ? *device_ : **other;
    const auto stream = *device.MakeStream();
    const DeviceMemory a = *Upload(device, absl::Span<const float>(values));
    const DeviceMemory c = *device.Allocate(4 * sizeof(float));
    auto product =
        device.kernels().matrix_product->make(device, {.m = 2, .n = 2, .k = 2});
    ASSERT_TRUE(product.ok()) << product.status();
    ASSERT_EQ((*product)->Run(*stream, a.as<float>(), a.as<float>(),
                              /*bias=*/nullptr, c.as<float>()),
              absl::OkStatus());
    std::vector<float> got(4);
    stream->CopyToHost(got.data(), c.data(), 4 * sizeof(float));
    ASSERT_EQ(stream->Synchronize(), absl::OkStatus());
    EXPECT_EQ(got, (std::vector<float>{7, 10, 15, 22}));
  }
}

TEST_F(GpuTest, EventsOrderStreams) {
  const auto other = *device_->MakeStream();
  const auto event = *device_->MakeEvent();
  EXPECT_TRUE(event->IsDone());
  const DeviceMemory memory = *device_->AllocatePinned(1 << 20);
  const DeviceMemory there = *device_->Allocate(1 << 20);
  stream_->Clear(there.data(), 1 << 20);
  event->Record(*stream_);
  other->Wait(*event);
  other->CopyToHost(memory.data(), there.data(), 1 << 20);
  ASSERT_EQ(other->Synchronize(), absl::OkStatus());
  EXPECT_TRUE(event->IsDone());
  EXPECT_EQ(memory.as<char>()[12345], 0);
}

// Work that is kept is done at each launch, and not before.
TEST_F(GpuTest, GraphsRunAgain) {
  ASSERT_TRUE(device_->has_graphs());
  const std::vector<float> x = {1, 2, 3, 4};
  const DeviceMemory from = *Upload(*device_, absl::Span<const float>(x));
  const DeviceMemory to = *device_->Allocate(4 * sizeof(float));
  const DeviceMemory host = *device_->AllocatePinned(4 * sizeof(float));
  stream_->Clear(to.data(), to.bytes());
  ASSERT_EQ(stream_->Synchronize(), absl::OkStatus());
  ASSERT_EQ(stream_->BeginGraph(), absl::OkStatus());
  device_->kernels().softmax->softmax.forward(*stream_, {.outer = 2, .n = 2},
                                              from.as<float>(), to.as<float>());
  stream_->CopyToHost(host.data(), to.data(), to.bytes());
  const auto graph = stream_->EndGraph();
  ASSERT_TRUE(graph.ok()) << graph.status();
  std::vector<float> y(4);
  const auto read = [&] {
    stream_->CopyToHost(y.data(), to.data(), to.bytes());
    ASSERT_EQ(stream_->Synchronize(), absl::OkStatus());
  };
  read();
  EXPECT_EQ(y, (std::vector<float>{0, 0, 0, 0}));
  for (const float high : {2.0f, 1.0f}) {
    stream_->CopyToDevice(from.as<float>() + 1, &high, sizeof(high));
    (*graph)->Launch(*stream_);
    read();
    EXPECT_NEAR(y[1], high == 2 ? 0.73105858 : 0.5, 1e-6);
    EXPECT_EQ(host.as<float>()[1], y[1]);
  }
}

TEST_F(GpuTest, AFaultWithinAGraphNamesTheWorkThatRan) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto fail = [this] {
    stream_->UseMarks(std::make_shared<const Stream::Marks>(
        Stream::Marks{"the first", "the second", "the third"}));
    const std::vector<float> x = {1, 2, 3, 4};
    const DeviceMemory good = *Upload(*device_, absl::Span<const float>(x));
    const absl::Status begun = stream_->BeginGraph();
    for (uint32_t mark = 0; mark < 3 && begun.ok(); ++mark) {
      stream_->Mark(mark);
      device_->kernels().softmax->softmax.forward(
          *stream_, {.outer = 2, .n = 2}, good.as<float>(),
          mark == 1 ? nullptr : good.as<float>());
    }
    const auto graph = stream_->EndGraph();
    if (graph.ok()) (*graph)->Launch(*stream_);
    std::fputs(std::string(stream_->Synchronize().message()).c_str(), stderr);
    std::_Exit(0);
  };
  EXPECT_EXIT(fail(), ::testing::ExitedWithCode(0),
              "cuda:0: .*running: the second; launched last before it: ");
}

TEST_F(GpuTest, MemoryThatIsNotThereIsRefused) {
  const auto memory = device_->Allocate(size_t{1} << 50);
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(stream_->Synchronize(), absl::OkStatus());
}

}  // namespace
}  // namespace syncline

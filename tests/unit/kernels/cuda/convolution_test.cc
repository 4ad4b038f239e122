// Goal: convolutions of CUDA's family are those of this machine, by cuDNN and
// by our own kernels; cuDNN is asked for what it takes, gets the memory that
// was planned, and its refusals are told. Method: shapes on an emulated device
// whose cuDNN is a double that checks what it is given.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cuda/convolution_memory.h"
#include "kernels/cuda/cudnn_convolution.h"
#include "kernels/device/convolution_kernels.h"
#include "kernels/device/kernel_table.h"
#include "tests/testing/arrays.h"
#include "tests/testing/cuda_emulator/cudnn_double.h"
#include "tests/testing/cuda_emulator/emulated_device.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using testing::CudnnDouble;
using testing::EmulatedDevice;
using ::testing::HasSubstr;
using testing::MakeCudnnDouble;

using Results = std::vector<std::vector<float>>;

constexpr ConvolutionUses kAll = {
    .forward = true, .backward_data = true, .backward_weights = true};

ConvolutionShape Plain() {
  return {.batch = 2,
          .channels = 4,
          .filters = 6,
          .groups = 2,
          .has_bias = true,
          .window = {{.in = 5,
                      .out = 3,
                      .kernel = 3,
                      .stride = 2,
                      .pad_begin = 1,
                      .pad_end = 1},
                     {.in = 6, .out = 4, .kernel = 2, .dilation = 2}}};
}

// One layer and its arrays on a device.
class LayerRun {
 public:
  // Arrays begin `offset` floats behind where the device aligns them.
  LayerRun(Device* device, const ConvolutionShape& shape, int64_t offset = 0)
      : device_(*device),
        shape_(shape),
        offset_(offset),
        stream_(*device->MakeStream()) {}

  // y, dx, dw and db; with `accumulate` they are added to ones. Errors: those
  // of making the layer and of its passes.
  absl::StatusOr<Results> Run(bool accumulate) {
    auto layer = device_.kernels().convolution->make(device_, shape_, kAll);
    if (!layer.ok()) return layer.status();
    const ConvolutionShape& s = shape_;
    const int64_t in = s.batch * s.channels * s.window.in_count();
    const int64_t out = s.batch * s.filters * s.window.out_count();
    const int64_t weights =
        s.filters * s.channels / s.groups * s.window.kernel_count();
    const float* const x = Put(in, 1);
    const float* const w = Put(weights, 2);
    const float* const bias = Put(s.filters, 3);
    const float* const dy = Put(out, 4);
    float* const y = Ones(out);
    float* const dx = Ones(in);
    float* const dw = Ones(weights);
    float* const db = Ones(s.filters);
    const DeviceMemory scratch = *device_.Allocate(
        std::max({(*layer)->forward_scratch_bytes(),
                  (*layer)->backward_data_scratch_bytes(),
                  (*layer)->backward_weights_scratch_bytes()}));
    absl::Status status = (*layer)->BackwardWeights(*stream_, x, dy, accumulate,
                                                    dw, scratch.data());
    if (!status.ok()) return status;
    status = (*layer)->BackwardData(*stream_, dy, w, accumulate, dx,
                                    scratch.data(), /*after_weights=*/true);
    if (!status.ok()) return status;
    status = (*layer)->Forward(*stream_, x, w, s.has_bias ? bias : nullptr,
                               accumulate, y, scratch.data());
    if (!status.ok()) return status;
    (*layer)->BackwardBias(*stream_, dy, accumulate, db);
    Results results = {Read(y, out), Read(dx, in), Read(dw, weights),
                       Read(db, s.filters)};
    status = stream_->Synchronize();
    if (!status.ok()) return status;
    return results;
  }

 private:
  float* Upload(std::vector<float> values) {
    values.insert(values.begin(), offset_, 0);
    memory_.push_back(
        *syncline::Upload(device_, absl::Span<const float>(values)));
    return memory_.back().as<float>() + offset_;
  }
  float* Put(int64_t count, uint64_t seed) {
    return Upload(
        testing::ToFloats(testing::RandomArray({count}, seed).values));
  }
  float* Ones(int64_t count) { return Upload(std::vector<float>(count, 1)); }
  std::vector<float> Read(const float* from, int64_t count) {
    std::vector<float> values(count);
    stream_->CopyToHost(values.data(), from, count * sizeof(float));
    return values;
  }

  Device& device_;
  const ConvolutionShape shape_;
  const int64_t offset_;
  std::vector<DeviceMemory> memory_;
  const std::unique_ptr<Stream> stream_;
};

void ExpectNearThisMachines(const ConvolutionShape& shape, const Results& got,
                            bool accumulate, double tolerance = 1e-5) {
  const auto want = LayerRun(&ThisMachine(), shape).Run(accumulate);
  ASSERT_TRUE(want.ok()) << want.status();
  ASSERT_EQ(got.size(), want->size());
  for (size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE(absl::StrCat("result ", i));
    testing::ExpectNear(got[i], {(*want)[i].begin(), (*want)[i].end()},
                        tolerance);
  }
}

int64_t CudnnRuns() {
  return CudnnDouble().forwards + CudnnDouble().backwards_of_data +
         CudnnDouble().backwards_of_filters;
}

class CudaConvolutionTest : public ::testing::Test {
 protected:
  CudaConvolutionTest() { device_.UseCudnn(MakeCudnnDouble()); }

  EmulatedDevice device_;
};

TEST_F(CudaConvolutionTest, EachPassIsCudnnsWhereItTakesTheShape) {
  for (const bool accumulate : {false, true}) {
    const auto got = LayerRun(&device_, Plain()).Run(accumulate);
    ASSERT_TRUE(got.ok()) << got.status();
    ExpectNearThisMachines(Plain(), *got, accumulate);
  }
  EXPECT_EQ(CudnnDouble().forwards, 2);
  EXPECT_EQ(CudnnDouble().backwards_of_data, 2);
  EXPECT_EQ(CudnnDouble().backwards_of_filters, 2);
  EXPECT_EQ(CudnnDouble().runs_in_tf32, 0);
  EXPECT_EQ(CudnnDouble().descriptors, 0) << "some were not destroyed";
}

TEST_F(CudaConvolutionTest, OneAxisAndThree) {
  const ConvolutionShape line = {.batch = 3,
                                 .channels = 2,
                                 .filters = 2,
                                 .window = {{.in = 9,
                                             .out = 5,
                                             .kernel = 3,
                                             .stride = 2,
                                             .pad_begin = 1,
                                             .pad_end = 1}}};
  const ConvolutionShape cube = {
      .batch = 1,
      .channels = 2,
      .filters = 2,
      .window = {
          {.in = 3, .out = 2, .kernel = 2},
          {.in = 4, .out = 2, .kernel = 3},
          {.in = 5, .out = 5, .kernel = 3, .pad_begin = 1, .pad_end = 1}}};
  for (const ConvolutionShape& shape : {line, cube}) {
    const auto got = LayerRun(&device_, shape).Run(/*accumulate=*/false);
    ASSERT_TRUE(got.ok()) << got.status();
    ExpectNearThisMachines(shape, *got, /*accumulate=*/false);
  }
  EXPECT_EQ(CudnnRuns(), 6);
}

// cuDNN pads an axis at both ends alike. An end that no window reaches may be
// padded otherwise.
TEST_F(CudaConvolutionTest, PaddingThatCudnnHasNotIsOurKernels) {
  const auto padded = [](int64_t in, int64_t out, int64_t begin, int64_t end) {
    return ConvolutionShape{.batch = 1,
                            .channels = 1,
                            .filters = 1,
                            .window = {{.in = in,
                                        .out = out,
                                        .kernel = 3,
                                        .stride = 2,
                                        .pad_begin = begin,
                                        .pad_end = end}}};
  };
  EXPECT_TRUE(IsForCudnn(padded(8, 4, 1, 0)));
  EXPECT_TRUE(IsForCudnn(padded(7, 4, 1, 1)));
  EXPECT_FALSE(IsForCudnn(padded(8, 4, 0, 1)));
  EXPECT_FALSE(IsForCudnn(padded(9, 4, 1, 0)));
  for (const ConvolutionShape& shape :
       {padded(8, 4, 0, 1), padded(9, 4, 1, 0), padded(8, 4, 1, 0)}) {
    EXPECT_EQ(CudnnRuns(), 0);
    const auto got = LayerRun(&device_, shape).Run(/*accumulate=*/false);
    ASSERT_TRUE(got.ok()) << got.status();
    ExpectNearThisMachines(shape, *got, /*accumulate=*/false);
  }
  EXPECT_EQ(CudnnRuns(), 3);
}

TEST_F(CudaConvolutionTest, WhatIsEmptyOrTooLargeIsNotForCudnn) {
  ConvolutionShape shape = Plain();
  EXPECT_TRUE(IsForCudnn(shape));
  shape.batch = 0;
  EXPECT_FALSE(IsForCudnn(shape));
  // Its tensors have up to 2^31 - 1 elements: 120 of a sample here.
  shape.batch = ((int64_t{1} << 31) - 1) / 120;
  EXPECT_TRUE(IsForCudnn(shape));
  ++shape.batch;
  EXPECT_FALSE(IsForCudnn(shape));
}

// Forward may have columns in memory, as ours; tables of the others fit beside
// them. Where they do not, cuDNN computes without.
TEST_F(CudaConvolutionTest, TheWorkspaceIsWithinWhatIsPlanned) {
  ASSERT_TRUE(LayerRun(&device_, Plain()).Run(false).ok());
  EXPECT_EQ(CudnnDouble().algorithm, cuda::kCudnnForwardGemm);
  const auto cudnn = MakeCudnnDouble();
  for (const int64_t bytes : {0, 1023, 1024, 2048, 1 << 20}) {
    auto layer = cuda::CudnnConvolution::Create(*cudnn, device_, Plain(), kAll,
                                                /*takes_tf32=*/false, bytes);
    ASSERT_TRUE(layer.ok()) << layer.status();
    using Pass = cuda::CudnnConvolution::Pass;
    EXPECT_TRUE((*layer)->has(Pass::kForward));
    EXPECT_EQ((*layer)->has(Pass::kBackwardData), bytes >= 1024);
    EXPECT_EQ((*layer)->has(Pass::kBackwardWeights), bytes >= 2048);
  }
}

// As many samples' columns as fit 256 MiB, their products, the filters and
// 64 KiB.
TEST(CudaConvolutionMemoryTest, IsKnownFromTheShape) {
  const ConvolutionShape small = Plain();
  EXPECT_EQ(UnfoldedSamples(small), 2);
  EXPECT_EQ(CudaConvolutionWorkspaceBytes(small),
            4 * ((12 + 3) * 2 * 12 + 6 * 12) + 65536);
  ConvolutionShape large = {
      .batch = 1000,
      .channels = 64,
      .filters = 64,
      .window = {
          {.in = 56, .out = 56, .kernel = 3, .pad_begin = 1, .pad_end = 1},
          {.in = 56, .out = 56, .kernel = 3, .pad_begin = 1, .pad_end = 1}}};
  EXPECT_EQ(UnfoldedSamples(large), 37);
  EXPECT_EQ(CudaConvolutionWorkspaceBytes(large),
            4 * ((576 + 64) * 37 * 3136 + 64 * 576) + 65536);
  large.batch = 0;
  EXPECT_EQ(UnfoldedSamples(large), 1);
}

TEST_F(CudaConvolutionTest, BothWaysWantTheMemoryThatIsPlanned) {
  EmulatedDevice own;
  for (EmulatedDevice* const device : {&device_, &own}) {
    const auto layer =
        *device->kernels().convolution->make(*device, Plain(), kAll);
    const int64_t planned = CudaConvolutionScratchOf(Plain()).forward_bytes;
    EXPECT_EQ(planned, CudaConvolutionWorkspaceBytes(Plain()));
    EXPECT_EQ(layer->forward_scratch_bytes(), planned);
    EXPECT_EQ(layer->backward_data_scratch_bytes(), planned);
    EXPECT_EQ(layer->backward_weights_scratch_bytes(), planned);
  }
}

TEST_F(CudaConvolutionTest, APassThatCudnnLacksIsOurKernels) {
  for (const char* const pass :
       {"forward", "backward_data", "backward_filter"}) {
    SCOPED_TRACE(pass);
    device_.UseCudnn(MakeCudnnDouble());
    CudnnDouble().lacks = pass;
    const auto got = LayerRun(&device_, Plain()).Run(/*accumulate=*/true);
    ASSERT_TRUE(got.ok()) << got.status();
    ExpectNearThisMachines(Plain(), *got, /*accumulate=*/true);
    EXPECT_EQ(CudnnRuns(), 2);
  }
  // It may say so with a status, too.
  device_.UseCudnn(MakeCudnnDouble());
  CudnnDouble().fails_at = "recommend";
  CudnnDouble().fails_with = 3002;
  const auto got = LayerRun(&device_, Plain()).Run(/*accumulate=*/false);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(CudnnRuns(), 0);
}

// Another machine has what this one lacks, and would end with other bits.
TEST_F(CudaConvolutionTest, WhatTheMachineLacksIsToldAndNotGoneAround) {
  for (const char* const place : {"create", "recommend", "workspace"}) {
    SCOPED_TRACE(place);
    device_.UseCudnn(MakeCudnnDouble());
    CudnnDouble().fails_at = place;
    CudnnDouble().fails_with = 3007;
    const auto got = LayerRun(&device_, Plain()).Run(/*accumulate=*/false);
    EXPECT_TRUE(absl::IsFailedPrecondition(got.status())) << got.status();
  }
  device_.UseCudnn(MakeCudnnDouble());
  CudnnDouble().lacks = "backward_data";
  CudnnDouble().lacks_with = 3009;
  const auto got = LayerRun(&device_, Plain()).Run(/*accumulate=*/false);
  EXPECT_TRUE(absl::IsFailedPrecondition(got.status())) << got.status();
  EXPECT_THAT(std::string(got.status().message()),
              HasSubstr("gradient of data by cuDNN: choose an algorithm: "
                        "CUDNN_STATUS_3009"));
}

TEST_F(CudaConvolutionTest, ArraysThatAreNotAlignedAreOurKernels) {
  const auto got =
      LayerRun(&device_, Plain(), /*offset=*/1).Run(/*accumulate=*/false);
  ASSERT_TRUE(got.ok()) << got.status();
  ExpectNearThisMachines(Plain(), *got, /*accumulate=*/false);
  EXPECT_EQ(CudnnRuns(), 0);
  EXPECT_TRUE(LayerRun(&device_, Plain(), /*offset=*/4).Run(false).ok());
  EXPECT_EQ(CudnnRuns(), 3);
}

TEST_F(CudaConvolutionTest, TheSameBitsEachTime) {
  const auto first = LayerRun(&device_, Plain()).Run(/*accumulate=*/false);
  ASSERT_TRUE(first.ok()) << first.status();
  EmulatedDevice other(/*seed=*/2);
  other.UseCudnn(MakeCudnnDouble());
  EXPECT_EQ(LayerRun(&other, Plain()).Run(/*accumulate=*/false), first);
}

// TF32 has 11 bits: what has no more than these is multiplied exactly.
TEST_F(CudaConvolutionTest, NarrowFactorsMayGoThroughTf32) {
  ConvolutionShape narrow = Plain();
  narrow.has_narrow_factors = true;
  ASSERT_TRUE(LayerRun(&device_, narrow).Run(/*accumulate=*/false).ok());
  EXPECT_EQ(CudnnDouble().runs_in_tf32, 3);
}

TEST_F(CudaConvolutionTest, Tf32IsTakenWhereItIsAllowed) {
  device_.AllowTf32(true);
  const auto rounded = LayerRun(&device_, Plain()).Run(/*accumulate=*/false);
  ASSERT_TRUE(rounded.ok()) << rounded.status();
  EXPECT_EQ(CudnnDouble().runs_in_tf32, 3);
  ExpectNearThisMachines(Plain(), *rounded, /*accumulate=*/false, 1e-2);
  device_.AllowTf32(false);
  const auto whole = LayerRun(&device_, Plain()).Run(/*accumulate=*/false);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(CudnnDouble().runs_in_tf32, 3);
  EXPECT_NE(*whole, *rounded);
}

TEST(CudaConvolutionWithoutCudnnTest, EveryConvolutionIsRefusedByName) {
  EmulatedDevice device;
  device.UseCudnn(cuda::Cudnn::Load("libno-such-library.so.9"));
  for (const int64_t batch : {0, 2}) {
    ConvolutionShape shape = Plain();
    shape.batch = batch;
    const auto refused = LayerRun(&device, shape).Run(/*accumulate=*/false);
    EXPECT_TRUE(absl::IsFailedPrecondition(refused.status()));
    EXPECT_THAT(std::string(refused.status().message()),
                AllOf(HasSubstr("libno-such-library.so.9"),
                      HasSubstr("--convolutions=own")));
  }
}

TEST_F(CudaConvolutionTest, AnyFunctionThatFailsIsTold) {
  for (const char* const function :
       {"create", "set_stream", "create_tensor", "set_tensor", "create_filter",
        "set_filter", "create_convolution", "set_convolution", "set_groups",
        "set_math", "recommend", "workspace", "run"}) {
    SCOPED_TRACE(function);
    device_.UseCudnn(MakeCudnnDouble());
    CudnnDouble().fails_at = function;
    CudnnDouble().fails_with = 4002;
    const auto got = LayerRun(&device_, Plain()).Run(/*accumulate=*/false);
    EXPECT_TRUE(absl::IsInternal(got.status())) << got.status();
    EXPECT_THAT(std::string(got.status().message()),
                AllOf(HasSubstr("cuDNN 9.19.0: "),
                      HasSubstr(": CUDNN_STATUS_4002: as the test said")));
    EXPECT_EQ(CudnnDouble().descriptors, 0) << "some were not destroyed";
  }
}

}  // namespace
}  // namespace syncline

// Goal: convolutions of CUDA's family in bfloat16 and float16 are those of
// float32 with each result rounded once, by cuDNN and by our own kernels; which
// passes cuDNN computes in 16 bits follows from the shape, as their memory
// does. Method: shapes on an emulated device against this machine's float32
// layer on the same 16-bit numbers.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/element_type.h"
#include "gmock/gmock.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cuda/convolution_memory.h"
#include "kernels/device/convolution_kernels.h"
#include "kernels/device/kernel_table.h"
#include "tests/testing/arrays.h"
#include "tests/testing/cuda_emulator/cudnn_double.h"
#include "tests/testing/cuda_emulator/emulated_device.h"

namespace syncline {
namespace {

using testing::CudnnDouble;
using testing::EmulatedDevice;
using testing::MakeCudnnDouble;

constexpr DType kNarrowTypes[] = {DType::kBfloat16, DType::kFloat16};

std::vector<float> RoundedTo(DType type, std::vector<float> values) {
  if (!Is16Bit(type)) return values;
  const ElementType element =
      type == DType::kBfloat16 ? ElementType::kBfloat16 : ElementType::kFloat16;
  std::vector<uint16_t> bits(values.size());
  Narrow(element, values.data(), bits.data(), bits.size());
  Widen(element, bits.data(), values.data(), values.size());
  return values;
}

struct PassResults {
  std::vector<float> y, dx, dw, db;
};

// The shapes of a layer, the types of its arrays, and what they hold.
struct NarrowLayer {
  ConvolutionShape shape;
  DType type = DType::kBfloat16;
  bool accumulate = false;

  ConvolutionShape Typed() const {
    ConvolutionShape typed = shape;
    typed.type = type;
    return typed;
  }
  int64_t in() const {
    return shape.batch * shape.channels * shape.window.in_count();
  }
  int64_t out() const {
    return shape.batch * shape.filters * shape.window.out_count();
  }
  int64_t weights() const {
    return shape.filters * shape.channels / shape.groups *
           shape.window.kernel_count();
  }
  std::vector<float> Draw(int64_t count, uint64_t seed) const {
    return RoundedTo(
        type, testing::ToFloats(testing::RandomArray({count}, seed).values));
  }
};

// One layer and its arrays on a device.
class NarrowRun {
 public:
  // Arrays begin `offset` elements behind where the device aligns them.
  explicit NarrowRun(Device* device, int64_t offset = 0)
      : device_(*device), offset_(offset), stream_(*device->MakeStream()) {}

  // Factors are of the layer's type, or, with `in_float32`, the same numbers.
  absl::StatusOr<PassResults> Run(const NarrowLayer& layer, bool in_float32) {
    const ConvolutionShape s = in_float32 ? layer.shape : layer.Typed();
    auto made = device_.kernels().convolution->make(
        device_, s,
        {.forward = true, .backward_data = true, .backward_weights = true});
    if (!made.ok()) return made.status();
    ConvolutionLayer& l = **made;
    const ConstFloats x = Put(layer.Draw(layer.in(), 1), s.type);
    const ConstFloats w = Put(layer.Draw(layer.weights(), 2), s.type);
    const ConstFloats bias =
        Put(testing::ToFloats(testing::RandomArray({s.filters}, 3).values),
            DType::kFloat32);
    const ConstFloats dy = Put(layer.Draw(layer.out(), 4), s.type);
    const DType of_weights =
        in_float32 ? DType::kFloat32 : s.weights_gradient_type;
    const Floats y = Ones(layer.out(), s.type);
    const Floats dx = Ones(layer.in(), s.type);
    const Floats dw = Ones(layer.weights(), of_weights);
    const Floats db = Ones(s.filters, DType::kFloat32);
    const auto scratch = [&](int64_t bytes) {
      memory_.push_back(*device_.Allocate(bytes));
      return memory_.back().data();
    };
    absl::Status status =
        l.BackwardWeights(*stream_, x, dy, layer.accumulate, dw,
                          scratch(l.backward_weights_scratch_bytes()));
    if (!status.ok()) return status;
    status = l.BackwardData(*stream_, dy, w, layer.accumulate, dx,
                            scratch(l.backward_data_scratch_bytes()),
                            /*after_weights=*/false);
    if (!status.ok()) return status;
    status = l.Forward(*stream_, x, w,
                       s.has_bias ? static_cast<const float*>(bias) : nullptr,
                       layer.accumulate, y, scratch(l.forward_scratch_bytes()));
    if (!status.ok()) return status;
    l.BackwardBias(*stream_, dy, layer.accumulate, db);
    PassResults results = {Read(y, layer.out()), Read(dx, layer.in()),
                           Read(dw, layer.weights()), Read(db, s.filters)};
    status = stream_->Synchronize();
    if (!status.ok()) return status;
    return results;
  }

 private:
  static ElementType ElementOf(DType type) {
    return type == DType::kBfloat16 ? ElementType::kBfloat16
                                    : ElementType::kFloat16;
  }
  Floats Put(std::vector<float> values, DType type) {
    values.insert(values.begin(), offset_, 0);
    if (!Is16Bit(type)) {
      memory_.push_back(
          *syncline::Upload(device_, absl::Span<const float>(values)));
    } else {
      std::vector<uint16_t> bits(values.size());
      Narrow(ElementOf(type), values.data(), bits.data(), bits.size());
      memory_.push_back(
          *syncline::Upload(device_, absl::Span<const uint16_t>(bits)));
    }
    return Floats(memory_.back().data(), type) + offset_;
  }
  Floats Ones(int64_t count, DType type) {
    return Put(std::vector<float>(count, 1), type);
  }
  std::vector<float> Read(Floats from, int64_t count) {
    std::vector<float> values(count);
    if (!Is16Bit(from.type())) {
      stream_->CopyToHost(values.data(), from.data(), count * sizeof(float));
      return values;
    }
    std::vector<uint16_t> bits(count);
    stream_->CopyToHost(bits.data(), from.data(), count * sizeof(uint16_t));
    EXPECT_TRUE(stream_->Synchronize().ok());
    Widen(ElementOf(from.type()), bits.data(), values.data(), count);
    return values;
  }

  Device& device_;
  const int64_t offset_;
  std::vector<DeviceMemory> memory_;
  const std::unique_ptr<Stream> stream_;
};

// Each is a float32 sum, off by as much as another order of it is, that was
// rounded once: rounded twice, some would be the neighbours of these.
void ExpectRoundedOnce(const std::vector<float>& got,
                       const std::vector<float>& want, DType type) {
  ASSERT_EQ(got.size(), want.size());
  std::vector<float> below, above;
  for (const float value : want) {
    const float margin = 4e-6f * std::max(1.0f, std::fabs(value));
    below.push_back(value - margin);
    above.push_back(value + margin);
  }
  below = RoundedTo(type, below);
  above = RoundedTo(type, above);
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_GE(got[i], below[i]) << "element " << i;
    ASSERT_LE(got[i], above[i]) << "element " << i;
  }
}

void ExpectAsInFloat32(const NarrowLayer& layer, const PassResults& got) {
  const auto want = NarrowRun(&ThisMachine()).Run(layer, /*in_float32=*/true);
  ASSERT_TRUE(want.ok()) << want.status();
  {
    SCOPED_TRACE("y");
    ExpectRoundedOnce(got.y, want->y, layer.type);
  }
  {
    SCOPED_TRACE("dx");
    ExpectRoundedOnce(got.dx, want->dx, layer.type);
  }
  {
    SCOPED_TRACE("dw");
    ExpectRoundedOnce(got.dw, want->dw, layer.shape.weights_gradient_type);
  }
  SCOPED_TRACE("db");
  testing::ExpectNear(got.db, {want->db.begin(), want->db.end()}, 1e-5);
}

// Odd sizes, groups, dilation, a bias.
ConvolutionShape Grouped() {
  return {.batch = 3,
          .channels = 6,
          .filters = 9,
          .groups = 3,
          .has_bias = true,
          .window = {{.in = 7,
                      .out = 4,
                      .kernel = 3,
                      .stride = 2,
                      .pad_begin = 1,
                      .pad_end = 1},
                     {.in = 9, .out = 5, .kernel = 3, .dilation = 2}}};
}
ConvolutionShape WithoutBias(ConvolutionShape shape) {
  shape.has_bias = false;
  return shape;
}
// Padding that cuDNN has not.
ConvolutionShape Lopsided() {
  return {.batch = 2,
          .channels = 3,
          .filters = 5,
          .has_bias = true,
          .window = {{.in = 8,
                      .out = 4,
                      .kernel = 3,
                      .stride = 2,
                      .pad_begin = 0,
                      .pad_end = 1},
                     {.in = 5, .out = 5, .kernel = 2, .pad_end = 1}}};
}
ConvolutionShape Line() {
  return {.batch = 3,
          .channels = 1,
          .filters = 7,
          .window = {{.in = 11, .out = 9, .kernel = 3}}};
}
ConvolutionShape Cube() {
  return {.batch = 1,
          .channels = 2,
          .filters = 3,
          .has_bias = true,
          .window = {
              {.in = 3, .out = 2, .kernel = 2},
              {.in = 4, .out = 2, .kernel = 3},
              {.in = 5, .out = 5, .kernel = 3, .pad_begin = 1, .pad_end = 1}}};
}
// Most of a residual network's.
ConvolutionShape OneByOne() {
  return {.batch = 2,
          .channels = 17,
          .filters = 5,
          .window = {{.in = 5, .out = 5, .kernel = 1},
                     {.in = 3, .out = 3, .kernel = 1}}};
}

class NarrowConvolutionTest : public ::testing::Test {
 protected:
  NarrowConvolutionTest() { cudnns_.UseCudnn(MakeCudnnDouble()); }

  EmulatedDevice cudnns_;
  EmulatedDevice own_;
};

TEST_F(NarrowConvolutionTest, EachResultIsRoundedOnce) {
  for (const ConvolutionShape& shape :
       {Grouped(), WithoutBias(Grouped()), Lopsided(), Line(), Cube(),
        OneByOne()}) {
    for (const DType type : kNarrowTypes) {
      for (const DType of_weights : {DType::kFloat32, type}) {
        for (const bool accumulate : {false, true}) {
          NarrowLayer layer = {shape, type, accumulate};
          layer.shape.weights_gradient_type = of_weights;
          for (EmulatedDevice* const device : {&cudnns_, &own_}) {
            SCOPED_TRACE(absl::StrCat(
                DTypeName(type), ", ", shape.window.axes.size(), " axes, ",
                shape.groups, " groups, weights' gradient ",
                DTypeName(of_weights), accumulate ? ", added" : "",
                device == &own_ ? ", own" : ", cuDNN"));
            const auto got = NarrowRun(device).Run(layer, false);
            ASSERT_TRUE(got.ok()) << got.status();
            ExpectAsInFloat32(layer, *got);
          }
        }
      }
    }
  }
  EXPECT_EQ(CudnnDouble().descriptors, 0) << "some were not destroyed";
}

// cuDNN's arrays have one type. A bias and a float32 gradient of the weights
// want a result that was not rounded yet.
TEST_F(NarrowConvolutionTest, CudnnComputesIn16BitsWhatItRoundsLast) {
  struct Case {
    bool has_bias;
    DType of_weights;
    int in_16_bits;
  };
  for (const Case& c :
       {Case{false, DType::kFloat32, 2}, Case{true, DType::kFloat32, 1},
        Case{false, DType::kBfloat16, 3}, Case{true, DType::kBfloat16, 2}}) {
    cudnns_.UseCudnn(MakeCudnnDouble());
    NarrowLayer layer = {Grouped()};
    layer.shape.has_bias = c.has_bias;
    layer.shape.weights_gradient_type = c.of_weights;
    const auto got = NarrowRun(&cudnns_).Run(layer, false);
    ASSERT_TRUE(got.ok()) << got.status();
    const auto& seen = CudnnDouble();
    EXPECT_EQ(seen.forwards, 1);
    EXPECT_EQ(seen.backwards_of_data, 1);
    EXPECT_EQ(seen.backwards_of_filters, 1);
    EXPECT_EQ(seen.runs_in_16_bits, c.in_16_bits);
    // TF32 has all bits of 16-bit factors.
    EXPECT_EQ(seen.runs_in_tf32, 3 - c.in_16_bits);
  }
}

TEST_F(NarrowConvolutionTest, PaddingThatCudnnHasNotIsOurKernels) {
  NarrowLayer layer = {Lopsided()};
  ASSERT_FALSE(IsForCudnn(layer.shape));
  ASSERT_TRUE(NarrowRun(&cudnns_).Run(layer, false).ok());
  EXPECT_EQ(CudnnDouble().forwards + CudnnDouble().backwards_of_data +
                CudnnDouble().backwards_of_filters,
            0);
}

TEST_F(NarrowConvolutionTest, APassThatCudnnLacksIsOurKernels) {
  for (const char* const pass :
       {"forward", "backward_data", "backward_filter"}) {
    SCOPED_TRACE(pass);
    cudnns_.UseCudnn(MakeCudnnDouble());
    CudnnDouble().lacks = pass;
    NarrowLayer layer = {WithoutBias(Grouped())};
    layer.accumulate = true;
    const auto got = NarrowRun(&cudnns_).Run(layer, false);
    ASSERT_TRUE(got.ok()) << got.status();
    ExpectAsInFloat32(layer, *got);
    EXPECT_EQ(CudnnDouble().forwards + CudnnDouble().backwards_of_data +
                  CudnnDouble().backwards_of_filters,
              2);
  }
}

TEST_F(NarrowConvolutionTest, ArraysThatAreNotAlignedAreOurKernels) {
  NarrowLayer layer = {WithoutBias(Grouped())};
  layer.shape.weights_gradient_type = layer.type;
  const auto got = NarrowRun(&cudnns_, /*offset=*/1).Run(layer, false);
  ASSERT_TRUE(got.ok()) << got.status();
  ExpectAsInFloat32(layer, *got);
  EXPECT_EQ(CudnnDouble().runs_in_16_bits, 0);
  ASSERT_TRUE(NarrowRun(&cudnns_, /*offset=*/8).Run(layer, false).ok());
  EXPECT_EQ(CudnnDouble().runs_in_16_bits, 3);
}

TEST_F(NarrowConvolutionTest, TheSameBitsEachTime) {
  const NarrowLayer layer = {Grouped()};
  const auto first = NarrowRun(&cudnns_).Run(layer, false);
  EmulatedDevice other(/*seed=*/2);
  other.UseCudnn(MakeCudnnDouble());
  const auto again = NarrowRun(&other).Run(layer, false);
  ASSERT_TRUE(first.ok() && again.ok());
  EXPECT_EQ(first->y, again->y);
  EXPECT_EQ(first->dx, again->dx);
  EXPECT_EQ(first->dw, again->dw);
}

// Columns in 16 bits would do; a library copies whole arrays, and widened
// passes have float32 copies before that.
TEST(NarrowConvolutionMemoryTest, IsKnownFromTheShape) {
  ConvolutionShape s = OneByOne();  // x 510, w 85, y 150
  s.type = DType::kBfloat16;
  const int64_t unfolded = 4 * ((17 + 5) * 30 + 85) + 65536;
  EXPECT_EQ(CudaConvolutionWorkspaceBytes(s), unfolded);
  EXPECT_EQ(CudaConvolutionScratchOf(s).forward_bytes, unfolded);
  EXPECT_EQ(CudaConvolutionScratchOf(s).backward_data_bytes, unfolded);
  EXPECT_EQ(CudaConvolutionScratchOf(s).backward_weights_bytes,
            unfolded + 2048 + 768);
  s.has_bias = true;
  EXPECT_EQ(CudaConvolutionScratchOf(s).forward_bytes,
            unfolded + 2048 + 512 + 768);
  s.weights_gradient_type = s.type;
  EXPECT_EQ(CudaConvolutionScratchOf(s).backward_weights_bytes, unfolded);
  // Every second place alone is in columns, but copies are of all of x.
  s.window.axes[0] = {.in = 500, .out = 250, .kernel = 1, .stride = 2};
  s.window.axes[1] = {.in = 30, .out = 15, .kernel = 1, .stride = 2};
  EXPECT_EQ(CudaConvolutionWorkspaceBytes(s),
            2 * (2 * 17 * 15000 + 85 + 2 * 5 * 3750) + 65536);
  // Where our own kernels compute it, nothing is copied.
  s = Lopsided();
  s.type = DType::kFloat16;
  EXPECT_EQ(CudaConvolutionScratchOf(s).forward_bytes,
            CudaConvolutionWorkspaceBytes(s));
  EXPECT_EQ(CudaConvolutionScratchOf(s).backward_weights_bytes,
            CudaConvolutionWorkspaceBytes(s));
}

TEST_F(NarrowConvolutionTest, BothWaysWantTheMemoryThatIsPlanned) {
  ConvolutionShape s = Grouped();
  s.type = DType::kBfloat16;
  const CudaConvolutionScratch planned = CudaConvolutionScratchOf(s);
  for (EmulatedDevice* const device : {&cudnns_, &own_}) {
    const auto layer = *device->kernels().convolution->make(
        *device, s,
        {.forward = true, .backward_data = true, .backward_weights = true});
    EXPECT_EQ(layer->forward_scratch_bytes(), planned.forward_bytes);
    EXPECT_EQ(layer->backward_data_scratch_bytes(),
              planned.backward_data_bytes);
    EXPECT_EQ(layer->backward_weights_scratch_bytes(),
              planned.backward_weights_bytes);
  }
}

// The columns of a round are a part of the batch: each part's product would be
// rounded. It is the same answer on all devices, also where there is no GPU.
TEST_F(NarrowConvolutionTest, AGradientThatIsAddedUpInPartsIsRefused) {
  ConvolutionShape s = {
      .batch = 1000,
      .channels = 64,
      .filters = 64,
      .window = {
          {.in = 56, .out = 56, .kernel = 3, .pad_begin = 1, .pad_end = 1},
          {.in = 56, .out = 56, .kernel = 3, .pad_begin = 1, .pad_end = 1}}};
  s.type = DType::kBfloat16;
  s.weights_gradient_type = DType::kBfloat16;
  for (EmulatedDevice* const device : {&cudnns_, &own_}) {
    const auto refused = device->kernels().convolution->make(
        *device, s, {.backward_weights = true});
    EXPECT_TRUE(absl::IsUnimplemented(refused.status())) << refused.status();
    EXPECT_TRUE(device->kernels()
                    .convolution->make(*device, s, {.backward_data = true})
                    .ok());
  }
  s.weights_gradient_type = DType::kFloat32;
  EXPECT_TRUE(CheckCudaConvolutionTypes(s, {.backward_weights = true}).ok());
}

}  // namespace
}  // namespace syncline

// Goal: attention without its scores in memory gives what attention with them
// gives. Method: layers of odd sizes, several tiles long, causal and masked, on
// an emulated device in float32 and 16 bits, against this machine's float32 on
// the same values; two orders of threads give the same bits.

#include "kernels/cuda/tiled_attention.h"

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/dtype.h"
#include "gmock/gmock.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cuda/float_array.h"
#include "kernels/device/kernel_table.h"
#include "tests/testing/arrays.h"
#include "tests/testing/cuda_emulator/emulated_device.h"

namespace syncline {
namespace {

using testing::EmulatedDevice;

struct Case {
  std::string name;
  AttentionShape shape;
  // Marks by [queries, keys], or by [keys] alone.
  bool marks = false;
  bool marks_by_key = false;
  bool adds = false;
  float hidden = -INFINITY;
  std::vector<int64_t> counts = {};
  bool accumulates = false;
};

// Heads side by side in rows, as a projection writes them.
AttentionShape ShapeOf(int64_t heads, int64_t key_heads, int64_t queries,
                       int64_t keys, int64_t width, int64_t value_width) {
  AttentionShape s;
  s.batch = 2;
  s.heads = heads;
  s.key_heads = key_heads;
  s.queries = queries;
  s.keys = keys;
  s.width = width;
  s.value_width = value_width;
  s.scale = 1 / std::sqrt(static_cast<float>(width));
  s.keeps_weights = false;
  const auto layout = [](int64_t count, int64_t rows, int64_t columns) {
    return Attention::Layout{rows * count * columns, columns, count * columns};
  };
  s.q = layout(heads, queries, width);
  s.k = layout(key_heads, keys, width);
  s.v = layout(key_heads, keys, value_width);
  s.y = layout(heads, queries, value_width);
  return s;
}

std::vector<Case> Cases() {
  std::vector<Case> cases = {
      {.name = "one", .shape = ShapeOf(1, 1, 1, 1, 1, 1)},
      {.name = "odd", .shape = ShapeOf(2, 2, 37, 41, 5, 7)},
      {.name = "tiles", .shape = ShapeOf(1, 1, 70, 67, 20, 20)},
      {.name = "wide", .shape = ShapeOf(1, 1, 33, 35, 72, 66)},
      {.name = "shared", .shape = ShapeOf(4, 2, 9, 19, 8, 8)},
      {.name = "causal", .shape = ShapeOf(1, 1, 67, 67, 8, 8)},
      {.name = "past", .shape = ShapeOf(1, 1, 9, 40, 8, 8)},
      {.name = "marks", .shape = ShapeOf(2, 2, 35, 34, 8, 8), .marks = true},
      {.name = "hidden",
       .shape = ShapeOf(2, 2, 18, 34, 8, 8),
       .marks = true,
       .hidden = -2},
      {.name = "padded",
       .shape = ShapeOf(2, 2, 18, 34, 8, 8),
       .marks = true,
       .marks_by_key = true},
      {.name = "added", .shape = ShapeOf(2, 2, 18, 34, 8, 8), .adds = true},
      {.name = "counts",
       .shape = ShapeOf(2, 2, 18, 34, 8, 8),
       .counts = {34, 5}},
      {.name = "accumulated",
       .shape = ShapeOf(2, 2, 18, 17, 8, 8),
       .accumulates = true},
  };
  cases[5].shape.causal = true;
  cases[6].shape.causal = true;
  cases[6].shape.past = 31;
  cases[11].shape.causal = true;
  return cases;
}

// y, dq, dk and dv, as float32.
using Results = std::vector<std::vector<float>>;

class LayerRun {
 public:
  LayerRun(Device& device, DType type) : device_(device), type_(type) {
    stream_ = *device.MakeStream();
  }

  Results Compute(const Case& c) {
    const AttentionShape& s = c.shape;
    const int64_t q = s.batch * s.heads * s.queries * s.width;
    const int64_t k = s.batch * s.key_heads * s.keys * s.width;
    const int64_t v = s.batch * s.key_heads * s.keys * s.value_width;
    const int64_t y = s.batch * s.heads * s.queries * s.value_width;
    auto made = device_.kernels().attention->make(
        device_, s, {.backward = true, .type = type_});
    EXPECT_EQ(made.status(), absl::OkStatus());
    const std::unique_ptr<AttentionLayer> layer = *std::move(made);
    const Floats on_q = Put(q, 1), on_k = Put(k, 2), on_v = Put(v, 3);
    const Floats on_dy = Put(y, 4), on_y = Put(y, 5);
    const Floats dq = Put(q, 6), dk = Put(k, 7), dv = Put(v, 8);
    const Attention::Mask mask = MaskOf(c);
    float* const weights = Scratch(layer->weights_count());
    const ErrorSlot errors = {
        .record = Memory(std::vector<DataError>(1)).as<DataError>()};
    EXPECT_EQ(
        layer->Forward(*stream_, on_q, on_k, on_v, mask, on_y, weights,
                       Scratch(layer->forward_scratch_count()), {}, errors),
        absl::OkStatus());
    AttentionGradients out = {.dq = dq, .dk = dk, .dv = dv};
    out.add_dq = out.add_dk = out.add_dv = c.accumulates;
    EXPECT_EQ(
        layer->Backward(*stream_, on_q, on_k, on_v, mask, weights, on_y, on_dy,
                        Scratch(layer->backward_scratch_count()), out),
        absl::OkStatus());
    return {Read(on_y, y), Read(dq, q), Read(dk, k), Read(dv, v)};
  }

 private:
  template <typename T>
  DeviceMemory& Memory(const std::vector<T>& values) {
    return memory_.emplace_back(*Upload(device_, absl::Span<const T>(values)));
  }
  float* Scratch(int64_t count) {
    return Memory(std::vector<float>(count + 1, NAN)).as<float>();
  }
  // The same numbers on all devices: of bfloat16, which float16 has too.
  static float Drawn(double value) {
    return Bits(DType::kBfloat16, static_cast<float>(value));
  }
  static float Bits(DType type, float value) {
    return cuda::WidenAs(type, cuda::NarrowAs(type, value));
  }
  Floats Put(int64_t count, uint64_t seed) {
    std::vector<float> values;
    std::vector<uint16_t> bits;
    for (const double value : testing::RandomArray({count}, seed).values) {
      values.push_back(Drawn(value));
      bits.push_back(cuda::NarrowAs(type_, values.back()));
    }
    if (!Is16Bit(type_)) return Memory(values).template as<float>();
    return {Memory(bits).data(), type_};
  }
  std::vector<float> Read(Floats array, int64_t count) {
    std::vector<float> values(count);
    std::vector<uint16_t> bits(count);
    void* const to =
        Is16Bit(array.type()) ? static_cast<void*>(bits.data()) : values.data();
    stream_->CopyToHost(to, array.data(), array.Bytes(count));
    EXPECT_EQ(stream_->Synchronize(), absl::OkStatus());
    for (int64_t i = 0; Is16Bit(array.type()) && i < count; ++i) {
      values[i] = cuda::WidenAs(array.type(), bits[i]);
    }
    return values;
  }

  Attention::Mask MaskOf(const Case& c) {
    Attention::Mask mask;
    const AttentionShape& s = c.shape;
    const int64_t count = (c.marks_by_key ? 1 : s.queries) * s.keys;
    if (c.marks || c.adds) {
      mask.row = c.marks_by_key ? 0 : s.keys;
      mask.column = 1;
    }
    const auto drawn = testing::RandomArray({count}, 9).values;
    if (c.marks) {
      std::vector<uint8_t> seen;
      for (const double value : drawn) seen.push_back(value > -0.3 ? 1 : 0);
      // A query that sees nothing.
      for (int64_t j = 0; !c.marks_by_key && j < s.keys; ++j) seen[j] = 0;
      mask.hidden = c.hidden;
      mask.seen = Memory(seen).template as<uint8_t>();
    }
    if (c.adds) mask.added = Memory(testing::ToFloats(drawn)).as<float>();
    if (!c.counts.empty()) mask.keys = Memory(c.counts).as<int64_t>();
    return mask;
  }

  Device& device_;
  const DType type_;
  std::unique_ptr<Stream> stream_;
  std::vector<DeviceMemory> memory_;
};

class TiledAttentionTest : public ::testing::TestWithParam<Case> {
 protected:
  static Results OnGpu(DType type, uint64_t seed) {
    EmulatedDevice device(seed);
    Results results = LayerRun(device, type).Compute(GetParam());
    EXPECT_EQ(device.status(), absl::OkStatus());
    return results;
  }
  static void ExpectAsThisMachine(DType type, double tolerance) {
    const Results got = OnGpu(type, 1);
    EXPECT_EQ(OnGpu(type, 2), got);
    const Results want =
        LayerRun(ThisMachine(), DType::kFloat32).Compute(GetParam());
    for (size_t i = 0; i < want.size(); ++i) {
      SCOPED_TRACE(absl::StrCat("result ", i));
      testing::ExpectNear(got[i], {want[i].begin(), want[i].end()}, tolerance);
    }
  }
};

TEST_P(TiledAttentionTest, InFloat32) {
  ExpectAsThisMachine(DType::kFloat32, 1e-5);
}

// Weights, scores' gradients and results are rounded.
TEST_P(TiledAttentionTest, InBfloat16) {
  ExpectAsThisMachine(DType::kBfloat16, 3.0 / 128);
}

TEST_P(TiledAttentionTest, InFloat16) {
  ExpectAsThisMachine(DType::kFloat16, 3.0 / 1024);
}

INSTANTIATE_TEST_SUITE_P(AllCases, TiledAttentionTest,
                         ::testing::ValuesIn(Cases()),
                         [](const ::testing::TestParamInfo<Case>& row) {
                           return row.param.name;
                         });

TEST(TiledAttentionFormsTest, OthersAreComputedByProductsOrNotIn16Bits) {
  EmulatedDevice device;
  const auto make = [&](AttentionShape shape, AttentionUses uses) {
    uses.type = DType::kBfloat16;
    return device.kernels().attention->make(device, shape, uses).status();
  };
  const AttentionShape shape = ShapeOf(1, 1, 2, 2, 128, 128);
  EXPECT_EQ(make(shape, {}), absl::OkStatus());
  AttentionShape capped = shape;
  capped.softcap = 1;
  EXPECT_TRUE(absl::IsUnimplemented(make(capped, {})));
  EXPECT_TRUE(absl::IsUnimplemented(make(ShapeOf(1, 1, 2, 2, 129, 8), {})));
  EXPECT_TRUE(absl::IsUnimplemented(make(ShapeOf(1, 1, 2, 2, 8, 129), {})));
  EXPECT_TRUE(absl::IsUnimplemented(make(shape, {.scores = true})));
  EXPECT_TRUE(absl::IsUnimplemented(make(shape, {.mask_gradient = true})));
}

}  // namespace
}  // namespace syncline

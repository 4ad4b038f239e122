// Goal: what a warp's tensor cores are asked for is a product of matrices.
// Method: each lane takes the elements that are its own from memory, and writes
// its sums back; against a plain loop.

#include "kernels/cuda/mma.h"

#include <cstdint>
#include <vector>

#include "common/base/dtype.h"
#include "gmock/gmock.h"
#include "kernels/cuda/launch.h"
#include "tests/testing/arrays.h"
#include "tests/testing/cuda_emulator/emulated_device.h"

namespace syncline::cuda {
namespace {

using testing::EmulatedDevice;

// C [16, 8] += A [16, 16] B [16, 8], all row by row.
struct ProductKernel {
  DType type;
  Global<const uint16_t> a;
  Global<const uint16_t> b;
  Global<float> c;

  SYNCLINE_DEVICE uint32_t Pair(uint16_t low, uint16_t high) const {
    return low | static_cast<uint32_t>(high) << 16;
  }
  SYNCLINE_DEVICE void operator()() const {
    const int group = MmaGroup();
    const int k = 2 * MmaMember();
    MmaRowPairs rows;
    for (int i = 0; i < 4; ++i) {
      const int at = (group + i % 2 * 8) * kMmaDepth + k + i / 2 * 8;
      rows.pairs[i] = Pair(a[at], a[at + 1]);
    }
    MmaColumnPairs columns;
    for (int i = 0; i < 2; ++i) {
      const int at = (k + 8 * i) * kMmaColumns + group;
      columns.pairs[i] = Pair(b[at], b[at + kMmaColumns]);
    }
    MmaSums sums;
    for (int i = 0; i < 4; ++i) sums.at[i] = c[At(i)];
    MultiplyAdd(type, rows, columns, sums);
    for (int i = 0; i < 4; ++i) c[At(i)] = sums.at[i];
  }
  SYNCLINE_DEVICE int At(int i) const {
    return (MmaGroup() + i / 2 * 8) * kMmaColumns + 2 * MmaMember() + i % 2;
  }
};

std::vector<uint16_t> Draw(int64_t count, uint64_t seed, DType type) {
  std::vector<uint16_t> bits;
  for (const double value : testing::RandomArray({count}, seed).values) {
    bits.push_back(NarrowAs(type, static_cast<float>(value)));
  }
  return bits;
}

TEST(MmaTest, IsAProductOfMatrices) {
  for (const DType type : {DType::kBfloat16, DType::kFloat16}) {
    const auto a = Draw(16 * 16, 1, type);
    const auto b = Draw(16 * 8, 2, type);
    const auto c = testing::ToFloats(testing::RandomArray({16 * 8}, 3).values);
    EmulatedDevice device;
    const auto stream = *device.MakeStream();
    const DeviceMemory on_a = *Upload(device, absl::MakeConstSpan(a));
    const DeviceMemory on_b = *Upload(device, absl::MakeConstSpan(b));
    const DeviceMemory on_c = *Upload(device, absl::MakeConstSpan(c));
    Launch(
        *stream, {.blocks = 1, .threads = kWarpThreads},
        ProductKernel{type, OnDevice(static_cast<const uint16_t*>(on_a.data())),
                      OnDevice(static_cast<const uint16_t*>(on_b.data())),
                      OnDevice(on_c.as<float>())});
    std::vector<float> got(c.size());
    stream->CopyToHost(got.data(), on_c.data(), got.size() * sizeof(float));
    ASSERT_EQ(stream->Synchronize(), absl::OkStatus());
    std::vector<double> want(c.begin(), c.end());
    for (int i = 0; i < 16; ++i) {
      for (int j = 0; j < 8; ++j) {
        for (int k = 0; k < 16; ++k) {
          want[i * 8 + j] +=
              WidenAs(type, a[i * 16 + k]) * WidenAs(type, b[k * 8 + j]);
        }
      }
    }
    testing::ExpectNear(got, want, 1e-6);
  }
}

}  // namespace
}  // namespace syncline::cuda

// Goal: products of CUDA's family are those of this machine, empty sums too.
// Method: shapes with strides, transposes, batches and bias, on an emulated
// device whose library is a double.

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/matrix_product_kernels.h"
#include "tests/testing/arrays.h"
#include "tests/testing/cuda_emulator/emulated_device.h"

namespace syncline {
namespace {

using testing::EmulatedDevice;
using testing::RandomArray;

struct Arrays {
  std::vector<float> a;
  std::vector<float> b;
  std::vector<float> bias;
  std::vector<float> c;
};

Arrays Draw(const MatrixProductShape& s) {
  const auto draw = [](int64_t count, uint64_t seed) {
    return testing::ToFloats(RandomArray({count}, seed).values);
  };
  const auto rows = [&](int64_t rows, int64_t columns, bool transposed,
                        int64_t row) {
    if (transposed) std::swap(rows, columns);
    return s.batch * rows * (row == 0 ? columns : row) + 1;
  };
  return {draw(rows(s.m, s.k, s.transpose_a, s.a_row), 1),
          draw(rows(s.k, s.n, s.transpose_b, s.b_row), 2), draw(s.n, 3),
          draw(rows(s.m, s.n, false, s.c_row), 4)};
}

// C after Run, and after Accumulate.
std::vector<std::vector<float>> Compute(Device& device,
                                        const MatrixProductShape& s) {
  const Arrays host = Draw(s);
  const auto product = *device.kernels().matrix_product->make(device, s);
  const auto stream = *device.MakeStream();
  const auto put = [&](const std::vector<float>& values) {
    return *Upload(device, absl::Span<const float>(values));
  };
  const DeviceMemory a = put(host.a);
  const DeviceMemory b = put(host.b);
  const DeviceMemory bias = put(host.bias);
  const DeviceMemory c = put(host.c);
  std::vector<std::vector<float>> results;
  const auto read = [&] {
    results.emplace_back(host.c.size());
    stream->CopyToHost(results.back().data(), c.data(),
                       host.c.size() * sizeof(float));
    EXPECT_EQ(stream->Synchronize(), absl::OkStatus());
  };
  EXPECT_EQ(
      product->Run(*stream, a.as<float>(), b.as<float>(),
                   s.has_bias ? bias.as<float>() : nullptr, c.as<float>()),
      absl::OkStatus());
  read();
  EXPECT_EQ(
      product->Accumulate(*stream, a.as<float>(), b.as<float>(), c.as<float>()),
      absl::OkStatus());
  read();
  return results;
}

TEST(CudaMatrixProductTest, ComputesAsThisMachineDoes) {
  const MatrixProductShape shapes[] = {
      {.m = 3, .n = 4, .k = 5},
      {.m = 3, .n = 4, .k = 5, .transpose_a = true},
      {.m = 3, .n = 4, .k = 5, .transpose_b = true, .batch = 2},
      {.m = 3, .n = 4, .k = 5, .transpose_a = true, .transpose_b = true},
      {.m = 3, .n = 4, .k = 5, .a_row = 7, .b_row = 6, .c_row = 9, .alpha = 2},
      {.m = 3, .n = 4, .k = 5, .has_bias = true},
      {.m = 3, .n = 4, .k = 0},
      {.m = 3, .n = 4, .k = 0, .c_row = 6, .has_bias = true},
      {.m = 3, .n = 4, .k = 0, .batch = 2},
      {.m = 0, .n = 4, .k = 5},
      {.m = 3, .n = 0, .k = 5},
  };
  for (const MatrixProductShape& s : shapes) {
    SCOPED_TRACE(absl::StrCat(s.m, " x ", s.k, " x ", s.n, ", ", s.c_row));
    EmulatedDevice device;
    const auto got = Compute(device, s);
    const auto want = Compute(ThisMachine(), s);
    for (const int i : {0, 1}) {
      testing::ExpectNear(got[i], {want[i].begin(), want[i].end()}, 1e-6);
    }
  }
}

}  // namespace
}  // namespace syncline

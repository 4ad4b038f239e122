// Goal: positions that are outside the tables are reported, whatever heads
// there are. Method: heads with and without elements, on this machine and on an
// emulated device. (The turns themselves are worker_op_cuda_test's.)

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/device/rotary_kernels.h"
#include "tests/testing/cuda_emulator/same_kernels.h"

namespace syncline {
namespace {

using testing::ExpectSameKernels;
using testing::KernelRun;

TEST(CudaRotaryTest, ReportsPositionsThatAreOutside) {
  struct {
    int64_t heads, width;
  } const cases[] = {{2, 4}, {0, 4}, {2, 0}};
  for (const auto& c : cases) {
    const RotaryShape s = {.batch = 2,
                           .heads = c.heads,
                           .length = 3,
                           .width = c.width,
                           .pairs = c.width / 2,
                           .by_position = true,
                           .positions = 5};
    ExpectSameKernels([&](KernelRun& run) {
      const int64_t count = s.batch * s.heads * s.length * s.width;
      const float* const table = run.Put(std::vector<float>(5 * 2, 0.5f));
      const int64_t* const positions =
          run.Put(std::vector<int64_t>{4, 0, 3, 1, 5, -1});
      run.kernels().rotary->turn(
          run.stream(), s, run.Put(std::vector<float>(count + 1, 2.0f)), table,
          table, positions, /*back=*/false, /*accumulate=*/false,
          static_cast<float*>(run.Result(count * 4)), run.errors());
    });
  }
}

}  // namespace
}  // namespace syncline

// Goal: gradients are scaled as on this machine, and the first number that is
// then not finite is reported. Method: arrays within a block and over many, on
// an emulated device.

#include <cstring>
#include <limits>
#include <vector>

#include "kernels/device/loss_scale_kernels.h"
#include "tests/testing/cuda_emulator/same_kernels.h"

namespace syncline {
namespace {

using testing::ExpectSameKernels;
using testing::KernelRun;

void ExpectSame(const std::vector<float>& values, float factor, bool reports) {
  ExpectSameKernels([&](KernelRun& run) {
    auto* const x = static_cast<float*>(run.Result(4 * values.size()));
    run.stream().Copy(x, run.Put(values), 4 * values.size());
    run.kernels().loss_scale->scale(run.stream(),
                                    static_cast<int64_t>(values.size()),
                                    run.Put(std::vector<float>{factor}), x,
                                    reports ? run.errors() : ErrorSlot{});
  });
}

TEST(CudaLossScaleTest, Scales) {
  for (const size_t n : {1, 255, 256, 257, 5000}) {
    std::vector<float> values(n);
    for (size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i) - 7.3f;
    ExpectSame(values, 1024, /*reports=*/true);
    ExpectSame(values, 0.5f, /*reports=*/false);
  }
}

TEST(CudaLossScaleTest, ReportsTheFirstThatIsNotFinite) {
  std::vector<float> values(3000, 1);
  for (const size_t bad : {2900, 1500, 1499, 3}) {
    values[bad] = bad == 1500 ? std::numeric_limits<float>::quiet_NaN()
                              : std::numeric_limits<float>::max();
    ExpectSame(values, 2, /*reports=*/true);
  }
  ExpectSame(std::vector<float>(600, std::numeric_limits<float>::infinity()),
             0.5f, /*reports=*/true);
}

}  // namespace
}  // namespace syncline

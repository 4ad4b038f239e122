// Goal: comparisons, logic and classes of floats are this machine's. Method:
// all pairs of hard numbers, broadcast, on an emulated device.

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/device/comparison_kernels.h"
#include "kernels/device/float_class_kernels.h"
#include "tests/testing/cuda_emulator/same_kernels.h"

namespace syncline {
namespace {

using testing::ExpectSameKernels;
using testing::KernelRun;

template <typename T>
void ExpectSame(DType type, const std::vector<T>& x) {
  const int64_t n = static_cast<int64_t>(x.size());
  const Strided<2> walk({n, n}, {std::vector<int64_t>{1, 0}, {0, 1}});
  for (size_t f = 0; f < kComparisonFunctions; ++f) {
    SCOPED_TRACE(f);
    ExpectSameKernels([&](KernelRun& run) {
      run.kernels().comparison->functions[f][type](
          run.stream(), walk, run.Put(x), run.Put(x),
          static_cast<uint8_t*>(run.Result(n * n)));
    });
  }
}

TEST(CudaComparisonTest, ComparesAsThisMachineDoes) {
  ExpectSame<float>(DType::kFloat32,
                    {0, -0.0f, 1, -1, INFINITY, std::nanf("")});
  ExpectSame<double>(DType::kFloat64, {0, -0.0, 1e300, std::nan("")});
  ExpectSame<int32_t>(DType::kInt32, {0, -1, INT32_MAX, INT32_MIN});
  ExpectSame<int64_t>(DType::kInt64, {0, -1, INT64_MAX, INT64_MIN});
  ExpectSame<uint8_t>(DType::kUint8, {0, 1, 255});
  ExpectSame<uint8_t>(DType::kBool, {0, 1});
  ExpectSameKernels([](KernelRun& run) {
    run.kernels().comparison->logical_not(
        run.stream(), 3, run.Put(std::vector<uint8_t>{0, 1, 2}),
        static_cast<uint8_t*>(run.Result(3)));
  });
}

template <typename T>
void ExpectSameClasses(DType type) {
  const std::vector<T> x = {0, 1, INFINITY, -INFINITY,
                            static_cast<T>(std::nan(""))};
  for (const bool positive : {false, true}) {
    for (const bool negative : {false, true}) {
      ExpectSameKernels([&](KernelRun& run) {
        run.kernels().float_class->is_infinity[type](
            run.stream(), {positive, negative}, 5, run.Put(x),
            static_cast<uint8_t*>(run.Result(5)));
      });
    }
  }
  ExpectSameKernels([&](KernelRun& run) {
    run.kernels().float_class->is_nan[type](
        run.stream(), 5, run.Put(x), static_cast<uint8_t*>(run.Result(5)));
  });
}

TEST(CudaComparisonTest, ClassesOfFloats) {
  ExpectSameClasses<float>(DType::kFloat32);
  ExpectSameClasses<double>(DType::kFloat64);
}

}  // namespace
}  // namespace syncline

// Goal: arithmetic on integers is this machine's to the bit, and so is the
// first error. Method: numbers around every limit, on an emulated device.

#include <cstdint>
#include <vector>

#include "kernels/device/integer_kernels.h"
#include "kernels/elementwise/broadcast.h"
#include "tests/testing/cuda_emulator/same_kernels.h"

namespace syncline {
namespace {

using testing::ExpectSameKernels;
using testing::KernelRun;

template <typename T>
std::vector<T> Numbers(int64_t count) {
  const T hard[] = {0,
                    1,
                    2,
                    3,
                    static_cast<T>(-1),
                    static_cast<T>(-7),
                    100,
                    std::numeric_limits<T>::max(),
                    std::numeric_limits<T>::lowest()};
  std::vector<T> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = hard[i * 5 % 9];
  return values;
}

template <typename T>
void ExpectSame(DType type) {
  const std::vector<T> x = Numbers<T>(700);
  std::vector<T> y = x;
  std::rotate(y.begin(), y.begin() + 1, y.end());
  const Strided<1> walk({700}, {std::vector<int64_t>{1}});
  for (size_t f = 0; f < kIntegerFunctions; ++f) {
    SCOPED_TRACE(f);
    const auto function = static_cast<IntegerFunction>(f);
    // Errors of the first pass stay: the lowest position is the same.
    ExpectSameKernels([&](KernelRun& run) {
      auto* const result = static_cast<T*>(run.Result(700 * sizeof(T)));
      run.kernels().integer->spread[type](run.stream(), walk, run.Put(y),
                                          result);
      run.kernels().integer->Combination(function, type)(
          run.stream(), walk, run.Put(x), result, run.errors());
    });
    const Broadcast s = *MakeBroadcast({7, 100}, {7, 1});
    ExpectSameKernels([&](KernelRun& run) {
      const auto reduce = run.kernels().integer->Reduction(function, type);
      if (reduce == nullptr) return;
      reduce(run.stream(), s, run.Put(x), run.Result(7 * sizeof(T)));
    });
  }
  for (size_t f = 0; f < kIntegerUnaryFunctions; ++f) {
    ExpectSameKernels([&](KernelRun& run) {
      run.kernels().integer->Of(static_cast<IntegerUnary>(f), type)(
          run.stream(), 700, run.Put(x), run.Result(700 * sizeof(T)));
    });
  }
  for (const bool has_low : {false, true}) {
    ExpectSameKernels([&](KernelRun& run) {
      const T* const low = run.Put(std::vector<T>{2});
      const T* const high = run.Put(std::vector<T>{100});
      run.kernels().integer->clip[type](
          run.stream(), 700, run.Put(x), has_low ? low : nullptr,
          has_low ? nullptr : high, run.Result(700 * sizeof(T)));
    });
  }
}

TEST(CudaIntegerTest, ComputesAsThisMachineDoes) {
  ExpectSame<int32_t>(DType::kInt32);
  ExpectSame<int64_t>(DType::kInt64);
  ExpectSame<uint8_t>(DType::kUint8);
}

}  // namespace
}  // namespace syncline

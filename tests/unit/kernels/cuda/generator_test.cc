// Goal: arrays of few numbers and masks of dropout are this machine's to the
// bit. Method: all types and edges, on an emulated device.

#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/device/dropout_kernels.h"
#include "kernels/device/generator_kernels.h"
#include "tests/testing/cuda_emulator/same_kernels.h"

namespace syncline {
namespace {

using testing::ExpectSameKernels;
using testing::KernelRun;

TEST(CudaGeneratorTest, Fills) {
  for (const size_t bytes : {1, 4, 8}) {
    AnyElement element = {.bytes = bytes};
    std::memcpy(element.value.data(), "abcdefgh", bytes);
    ExpectSameKernels([&](KernelRun& run) {
      run.kernels().generator->fill(run.stream(), element, 300,
                                    run.Result(300 * bytes));
    });
  }
}

template <typename Index>
void ExpectSameOneHot(DType type, const std::vector<Index>& indices) {
  for (const size_t bytes : {1, 4, 8}) {
    const OneHotShape s = {.outer = 2,
                           .depth = 5,
                           .inner = 3,
                           .index_type = type,
                           .element_bytes = bytes};
    ExpectSameKernels([&](KernelRun& run) {
      run.kernels().generator->one_hot(
          run.stream(), s, run.Put(indices),
          run.Put(
              std::vector<uint64_t>{0x0102030405060708, 0x1112131415161718}),
          run.Result(2 * 5 * 3 * bytes));
    });
  }
}

TEST(CudaGeneratorTest, OneHot) {
  ExpectSameOneHot<int64_t>(DType::kInt64, {0, 4, -1, -5, 5, -6});
  ExpectSameOneHot<int32_t>(DType::kInt32, {0, 4, -1, -5, 5, -6});
  ExpectSameOneHot<float>(DType::kFloat32, {0, 4, -1, 1.5f, -0.5f, -6});
  ExpectSameOneHot<double>(DType::kFloat64, {0, 4, -1, 1.5, 5, -6});
  ExpectSameOneHot<uint8_t>(DType::kUint8, {0, 4, 1, 2, 5, 255});
}

template <typename T>
void ExpectSameRange(DType type, T start, T delta) {
  ExpectSameKernels([&](KernelRun& run) {
    run.kernels().generator->range(
        run.stream(), type, 70, run.Put(std::vector<T>{start}),
        run.Put(std::vector<T>{delta}), run.Result(70 * sizeof(T)));
  });
}

TEST(CudaGeneratorTest, Ranges) {
  ExpectSameRange<int64_t>(DType::kInt64, -5, 3);
  ExpectSameRange<int32_t>(DType::kInt32, 9, -2);
  ExpectSameRange<float>(DType::kFloat32, 0.1f, 0.7f);
}

// Parts of a mask begin in the middle of a block of words.
TEST(CudaGeneratorTest, MasksOfDropout) {
  for (const int64_t first : {0, 1, 3, 4, 1000003}) {
    for (const int64_t n : {1, 2, 64, 1001}) {
      for (const double ratio : {0.0, 0.3, 0.9999}) {
        ExpectSameKernels([&](KernelRun& run) {
          auto* const mask = static_cast<uint8_t*>(run.Result(n));
          auto* const y = static_cast<float*>(run.Result(n * sizeof(float)));
          const MaskWords words = {
              .numbers = run.Put(std::vector<StepNumbers>{{77, first}}),
              .node = 3,
              .seed = 5,
              .per_sample = 3};
          run.kernels().dropout->draw(run.stream(), n, words, ratio, mask);
          run.kernels().dropout->widen(run.stream(), n, mask, y);
          run.kernels().dropout->apply(run.stream(), n, 2.5f, mask,
                                       run.Put(std::vector<float>(n, 1.5f)),
                                       /*accumulate=*/true, y);
        });
      }
    }
  }
}

}  // namespace
}  // namespace syncline

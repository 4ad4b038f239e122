// Goal: rows are gathered and added as on this machine, and indices that are
// out of range are reported. Method: rows that are named never, once and often,
// on an emulated device.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/device/gather_kernels.h"
#include "kernels/device/indexed_kernels.h"
#include "tests/testing/cuda_emulator/same_kernels.h"

namespace syncline {
namespace {

using testing::ExpectSameKernels;
using testing::KernelRun;

// Whole numbers, so that sums have the same bits in any order.
std::vector<float> Whole(int64_t count) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(i % 11 - 5);
  return values;
}

std::vector<char> Scratch(int64_t bytes) {
  return std::vector<char>(bytes + 8);
}

TEST(CudaGatherTest, GathersAndAdds) {
  for (const int64_t n : {1, 3, 40, 1000}) {
    const GatherShape s = {.outer = 2,
                           .n = n,
                           .inner = 3,
                           .indices = 200,
                           .index_type = DType::kInt32};
    std::vector<int32_t> indices(s.indices);
    for (int64_t i = 0; i < s.indices; ++i) {
      indices[i] = static_cast<int32_t>(i * 7 % n - (i % 3 == 0 ? n : 0));
    }
    for (const int64_t bad : {-1, 150}) {
      if (bad >= 0) indices[bad] = indices[bad + 20] = 5000;
      ExpectSameKernels([&](KernelRun& run) {
        const auto& gather = *run.kernels().gather;
        const int32_t* const named = run.Put(indices);
        gather.forward(run.stream(), s, run.Put(Whole(2 * n * 3)), named,
                       run.Result(2 * 200 * 3 * 4), run.errors());
        auto* const dx = static_cast<float*>(run.Result(2 * n * 3 * 4));
        gather.backward(run.stream(), s, named, run.Put(Whole(2 * 200 * 3)),
                        /*accumulate=*/false, dx,
                        run.Put(Scratch(gather.backward_scratch_bytes(s))));
        gather.backward(run.stream(), s, named, run.Put(Whole(2 * 200 * 3)),
                        /*accumulate=*/true, dx,
                        run.Put(Scratch(gather.backward_scratch_bytes(s))));
      });
    }
  }
}

// Many indices are sorted, and rows that more than 1024 name are added in
// parts. `hot` of ten name row 2; rows 0 and 4 begin and end the order.
void ExpectSameGradient(const GatherShape& s, int64_t hot) {
  std::vector<int64_t> indices(s.indices);
  for (int64_t i = 0; i < s.indices; ++i) {
    indices[i] = i % 10 < hot ? 2 : i * 7919 % s.n;
  }
  ExpectSameKernels([&](KernelRun& run) {
    const auto& gather = *run.kernels().gather;
    auto* const dx = static_cast<float*>(
        run.Result(s.outer * s.n * s.inner * sizeof(float)));
    gather.backward(run.stream(), s, run.Put(indices),
                    run.Put(Whole(s.outer * s.indices * s.inner)),
                    /*accumulate=*/false, dx,
                    run.Put(Scratch(gather.backward_scratch_bytes(s))));
  });
}

TEST(CudaGatherTest, AddsRowsThatManyIndicesName) {
  ExpectSameGradient({.outer = 2, .n = 900, .inner = 3, .indices = 3500}, 7);
  ExpectSameGradient({.n = 5, .inner = 16, .indices = 2500}, 1);
  ExpectSameGradient({.n = 5, .inner = 1, .indices = 7000}, 4);
  ExpectSameGradient({.n = 3, .inner = 1, .indices = 5121}, 10);
  ExpectSameGradient({.n = 1, .inner = 2, .indices = 2048}, 0);
}

// A minute, if each index looked at all others.
TEST(CudaGatherTest, ManyIndicesTakeALinearTime) {
  constexpr int64_t kIndices = 8'000;
  const GatherShape s = {.n = kIndices, .inner = 1, .indices = kIndices};
  std::vector<int64_t> indices(kIndices);
  for (int64_t i = 0; i < kIndices; ++i) indices[i] = kIndices - 1 - i;
  testing::EmulatedDevice device;
  KernelRun run(&device);
  const auto& gather = *run.kernels().gather;
  auto* const dx = static_cast<float*>(run.Result(kIndices * sizeof(float)));
  gather.backward(run.stream(), s, run.Put(indices), run.Put(Whole(kIndices)),
                  /*accumulate=*/false, dx,
                  run.Put(Scratch(gather.backward_scratch_bytes(s))));
  std::vector<float> got(kIndices);
  run.stream().CopyToHost(got.data(), dx, kIndices * sizeof(float));
  ASSERT_EQ(run.stream().Synchronize(), absl::OkStatus());
  const std::vector<float> want = Whole(kIndices);
  EXPECT_TRUE(std::equal(got.begin(), got.end(), want.rbegin()));
}

TEST(CudaGatherTest, AnAxisOfLengthZero) {
  const GatherShape s = {.outer = 2,
                         .n = 0,
                         .inner = 3,
                         .indices = 4,
                         .index_type = DType::kInt64};
  ExpectSameKernels([&](KernelRun& run) {
    run.kernels().gather->forward(run.stream(), s,
                                  run.Put(std::vector<float>(1)),
                                  run.Put(std::vector<int64_t>{7, 0, -1, 3}),
                                  run.Result(2 * 4 * 3 * 4), run.errors());
  });
}

// An index out of range is a mistake where rows have no elements, too.
TEST(CudaGatherTest, RowsWithoutElements) {
  for (const int64_t outer : {0, 2}) {
    const GatherShape s = {.outer = outer,
                           .n = 3,
                           .inner = 0,
                           .indices = 4,
                           .index_type = DType::kInt64};
    ExpectSameKernels([&](KernelRun& run) {
      run.kernels().gather->forward(run.stream(), s,
                                    run.Put(std::vector<float>(1)),
                                    run.Put(std::vector<int64_t>{2, 7, 0, 8}),
                                    run.Result(0), run.errors());
    });
  }
}

TEST(CudaGatherTest, RunsAtIndexedPlaces) {
  IndexedShape s;
  s.loops.push_back({.n = 4, .stride = 30});
  s.loops.push_back({.n = 25, .stride = 0});
  s.places.push_back({.n = 5, .stride = 6});
  s.places.push_back({.n = 2, .stride = 3});
  s.runs = 100;
  s.run_length = 3;
  s.count = 120;
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < 100; ++i) {
    indices.push_back(i == 60 ? 9 : i % 7 % 5 - 5 * (i % 2));
    indices.push_back(i % 2);
  }
  ExpectSameKernels([&](KernelRun& run) {
    const auto& indexed = *run.kernels().indexed;
    auto* const begins = static_cast<int64_t*>(run.Result(100 * 8));
    indexed.find(run.stream(), s, run.Put(indices), begins, run.errors());
    for (const size_t bytes : {1, 4, 8}) {
      indexed.gather(run.stream(), s, bytes, begins,
                     run.Put(std::vector<char>(120 * bytes, 'x')),
                     run.Result(300 * bytes));
    }
    float* const to = static_cast<float*>(run.Result(120 * 4));
    run.stream().Copy(to, run.Put(Whole(120)), 120 * 4);
    indexed.add(run.stream(), s, begins, run.Put(Whole(300)), to,
                run.Put(Scratch(indexed.add_scratch_bytes(s))));
  });
}

}  // namespace
}  // namespace syncline

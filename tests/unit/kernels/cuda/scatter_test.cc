// Goal: what is scattered to one place becomes one number in the order of the
// updates, of few runs as of many. Method: forward of each reduction against
// this machine's bits, on an emulated device. (Gradients are
// worker_op_cuda_test's.)

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/device/scatter_kernels.h"
#include "tests/testing/arrays.h"
#include "tests/testing/cuda_emulator/same_kernels.h"

namespace syncline {
namespace {

using testing::ExpectSameKernels;
using testing::KernelRun;

std::vector<float> Drawn(int64_t count, uint64_t seed) {
  return testing::ToFloats(testing::RandomArray({count}, seed).values);
}

TEST(CudaScatterTest, ScattersInOrder) {
  for (const int64_t runs : {50, 3000}) {
    IndexedShape s;
    s.loops.push_back({.n = runs, .stride = 0});
    s.places.push_back({.n = 40, .stride = 2});
    s.runs = runs;
    s.run_length = 2;
    s.count = 80;
    std::vector<int64_t> begins(runs);  // place 14 has a third of them
    for (int64_t i = 0; i < runs; ++i) {
      begins[i] = 2 * (i % 3 == 0 ? 7 : i * 11 % 40);
    }
    for (const ScatterReduction reduction :
         {ScatterReduction::kReplace, ScatterReduction::kMultiply,
          ScatterReduction::kMax, ScatterReduction::kMin}) {
      SCOPED_TRACE(absl::StrCat(runs, " runs, ", static_cast<int>(reduction)));
      ExpectSameKernels([&](KernelRun& run) {
        const auto& kernels = (*run.kernels().scatter)[reduction];
        const int64_t scratch =
            std::max<int64_t>(8, kernels.forward_scratch_bytes(s));
        kernels.forward(run.stream(), s, run.Put(Drawn(80, 1)),
                        run.Put(Drawn(2 * runs, 2)), run.Put(begins),
                        static_cast<float*>(run.Result(80 * sizeof(float))),
                        run.Put(std::vector<char>(scratch)));
      });
    }
  }
}

}  // namespace
}  // namespace syncline

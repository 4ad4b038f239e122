#ifndef SYNCLINE_TESTS_TESTING_CUDA_EMULATOR_PRODUCT_DOUBLE_H_
#define SYNCLINE_TESTS_TESTING_CUDA_EMULATOR_PRODUCT_DOUBLE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "absl/time/time.h"
#include "kernels/device/matrix_product_kernels.h"

namespace syncline::testing {

// Settings and records of the double of cuBLASLt (product_double.cc), of one
// device. Its algorithms differ in the order of their sums: the first adds in
// fp64, those of odd numbers in float32 from the first product on, the others
// in float32 from the last one on.
struct ProductDoubleState {
  // To be set by tests. The algorithms in the order of the library, by the time
  // that each takes.
  std::vector<absl::Duration> times = {absl::Milliseconds(1)};
  std::set<int> refused = {};  // algorithms that it takes no more

  // Seen.
  std::map<int, int64_t> runs;  // by algorithm, without measurements
  int64_t measurements = 0;
};

// How its products with an epilogue behave, and what it has seen of them. Of
// this process; one thread at a time.
struct EpilogueDoubleState {
  int64_t runs = 0;
  // Its ReLU is a maximum that drops NaN.
  bool drops_nan = false;
  // Epilogues that it has no algorithm for.
  std::function<bool(const MatrixProductShape&, const ProductEpilogue&)>
      has_no_algorithm = [](const auto&, const auto&) { return false; };
};
EpilogueDoubleState& Epilogues();

}  // namespace syncline::testing

#endif  // SYNCLINE_TESTS_TESTING_CUDA_EMULATOR_PRODUCT_DOUBLE_H_

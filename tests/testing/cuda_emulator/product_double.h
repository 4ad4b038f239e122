#ifndef SYNCLINE_TESTS_TESTING_CUDA_EMULATOR_PRODUCT_DOUBLE_H_
#define SYNCLINE_TESTS_TESTING_CUDA_EMULATOR_PRODUCT_DOUBLE_H_

#include <cstdint>
#include <functional>

#include "kernels/device/matrix_product_kernels.h"

namespace syncline::testing {

// How the double of cuBLASLt behaves, and what it has seen. Of this process;
// one thread at a time.
struct ProductDoubleState {
  int64_t runs_with_epilogue = 0;
  // Its ReLU is a maximum that drops NaN.
  bool drops_nan = false;
  // Epilogues that it has no algorithm for.
  std::function<bool(const MatrixProductShape&, const ProductEpilogue&)>
      has_no_algorithm = [](const auto&, const auto&) { return false; };
};
ProductDoubleState& ProductDouble();

}  // namespace syncline::testing

#endif  // SYNCLINE_TESTS_TESTING_CUDA_EMULATOR_PRODUCT_DOUBLE_H_

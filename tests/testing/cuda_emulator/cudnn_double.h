#ifndef SYNCLINE_TESTS_TESTING_CUDA_EMULATOR_CUDNN_DOUBLE_H_
#define SYNCLINE_TESTS_TESTING_CUDA_EMULATOR_CUDNN_DOUBLE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/cuda/cudnn.h"

namespace syncline::testing {

// cuDNN's double on an emulated device: it computes convolutions one by one, in
// fp64, and refuses what cuDNN refuses or leaves undefined: descriptors that
// are not set or do not fit each other, arrays of two types, a workspace that
// is too small, arrays that are misaligned or not there, an algorithm that is
// not deterministic. The first algorithms that it recommends are ones that
// nobody should take. Math other than FMA and 16 bits' rounds factors to TF32.
//
// The double's settings and records, one of each process. Tests that change
// them begin with MakeCudnnDouble. One thread at a time.
struct CudnnDoubleState {
  // To be set by tests.
  size_t version = 91900;
  std::string fails_at = {};  // a function of CudnnFunctions: "create"
  cuda::CudnnStatus fails_with = cuda::kCudnnSuccess;
  // "backward_data": it has no algorithm for that pass, with this status.
  std::string lacks = {};
  cuda::CudnnStatus lacks_with = cuda::kCudnnNotSupported;

  // Seen.
  int64_t handles = 0;  // that exist
  int64_t descriptors = 0;
  int64_t forwards = 0;  // run
  int64_t backwards_of_data = 0;
  int64_t backwards_of_filters = 0;
  int64_t runs_in_tf32 = 0;  // of all of these
  int64_t runs_in_16_bits = 0;
  int algorithm = -1;  // of the last one
};
CudnnDoubleState& CudnnDouble();

// The double, with a state as at the beginning.
std::unique_ptr<cuda::Cudnn> MakeCudnnDouble();
// Its functions.
cuda::CudnnFunctions CudnnDoubleFunctions();

}  // namespace syncline::testing

#endif  // SYNCLINE_TESTS_TESTING_CUDA_EMULATOR_CUDNN_DOUBLE_H_

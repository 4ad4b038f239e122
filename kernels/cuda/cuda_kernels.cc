#include "kernels/cuda/cuda_kernels.h"

namespace syncline {

const KernelTable& CudaKernelTable() {
  static const KernelTable table = {
      .binary = &CudaBinaryKernels(),
      .pointwise = &CudaPointwiseKernels(),
      .softmax = &CudaSoftmaxKernels(),
  };
  return table;
}

}  // namespace syncline

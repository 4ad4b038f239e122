#ifndef SYNCLINE_KERNELS_CUDA_PRODUCT_LIBRARY_H_
#define SYNCLINE_KERNELS_CUDA_PRODUCT_LIBRARY_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device/matrix_product_kernels.h"

namespace syncline::cuda {

// The library of matrix products: cuBLASLt (cublaslt_product.cc), or a double
// of tests. REQUIRES: k > 0, types that MatrixProductKernels::make takes, and
// arrays of these. Errors: FailedPrecondition: the library is not on
// this machine; Internal: it refused.
absl::StatusOr<std::unique_ptr<MatrixProduct>> MakeLibraryProduct(
    Device& device, const MatrixProductShape& shape);
// Likewise, with an epilogue that CheckCudaEpilogue (product_types.h) takes.
// Errors: also Unimplemented: the library has no algorithm for it.
absl::StatusOr<std::unique_ptr<EpilogueProduct>> MakeLibraryEpilogueProduct(
    Device& device, const MatrixProductShape& shape,
    const ProductEpilogue& epilogue);

}  // namespace syncline::cuda

#endif  // SYNCLINE_KERNELS_CUDA_PRODUCT_LIBRARY_H_

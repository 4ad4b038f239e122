#ifndef SYNCLINE_KERNELS_CUDA_PRODUCT_LIBRARY_H_
#define SYNCLINE_KERNELS_CUDA_PRODUCT_LIBRARY_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/device/matrix_product_kernels.h"

namespace syncline::cuda {

// "cuBLASLt 13.0.2". It is loaded for that. Errors: FailedPrecondition: it is
// not on this machine.
absl::StatusOr<std::string> ProductLibraryName();

// The library of matrix products: cuBLASLt (cublaslt_product.cc), or a double
// of tests. Its products are the device's tuner's (Device::product_tuner),
// which outlives them. REQUIRES: k > 0, types that MatrixProductKernels::make
// takes, and arrays of these. Errors: FailedPrecondition: the library is not on
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

#ifndef SYNCLINE_KERNELS_CUDA_PRODUCT_TYPES_H_
#define SYNCLINE_KERNELS_CUDA_PRODUCT_TYPES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/device/matrix_product_kernels.h"

namespace syncline {

// The types of matrices that a GPU multiplies: both inputs have one, and the
// result has it, too, or is float32; no bias in 16 bits. Errors:
// InvalidArgument: others.
absl::Status CheckCudaProductTypes(const MatrixProductShape& shape);

// The epilogues that cuBLASLt may have: all matrices have one type, are dense
// and one product; what GELU keeps has rows of whole 8 elements. Errors:
// Unimplemented: others, and sums over nothing.
absl::Status CheckCudaEpilogue(const MatrixProductShape& shape,
                               const ProductEpilogue& epilogue);

// The key of a product in a ProductTable: all that a library chooses its
// algorithm by, which is the shape but for alpha, what is done with the sum
// ("plain", "bias"), whether factors may be rounded to TF32, and the alignment
// of all addresses in bytes.
std::string ProductKeyOf(const MatrixProductShape& shape,
                         absl::string_view epilogue, bool takes_tf32,
                         int64_t alignment);

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_CUDA_PRODUCT_TYPES_H_

#ifndef SYNCLINE_KERNELS_CUDA_UNFOLDED_CONVOLUTION_H_
#define SYNCLINE_KERNELS_CUDA_UNFOLDED_CONVOLUTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device/convolution_kernels.h"

namespace syncline::cuda {

// A convolution of any shape by kernels of our own and the product library,
// which adds up float32. Scratch memory is CudaConvolutionScratchOf. Errors:
// the product library's; CheckCudaConvolutionTypes's.
absl::StatusOr<std::unique_ptr<ConvolutionLayer>> MakeUnfoldedConvolution(
    Device& device, const ConvolutionShape& shape, const ConvolutionUses& uses);

}  // namespace syncline::cuda

#endif  // SYNCLINE_KERNELS_CUDA_UNFOLDED_CONVOLUTION_H_

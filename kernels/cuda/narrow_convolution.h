#ifndef SYNCLINE_KERNELS_CUDA_NARROW_CONVOLUTION_H_
#define SYNCLINE_KERNELS_CUDA_NARROW_CONVOLUTION_H_

#include <memory>

#include "kernels/device/convolution_kernels.h"

namespace syncline::cuda {

// A convolution in 16 bits, of a shape that is for cuDNN, made of two layers:
// passes that CudnnWideningOf (convolution_memory.h) names are `whole`'s, with
// float32 copies of their arrays in scratch memory, the others are `narrow`'s,
// with the arrays as they are. `whole`: of the same shape in float32; null
// where none of its passes is called. Scratch memory is
// CudaConvolutionScratchOf.
std::unique_ptr<ConvolutionLayer> MakeNarrowConvolution(
    const ConvolutionShape& shape, std::unique_ptr<ConvolutionLayer> narrow,
    std::unique_ptr<ConvolutionLayer> whole);

}  // namespace syncline::cuda

#endif  // SYNCLINE_KERNELS_CUDA_NARROW_CONVOLUTION_H_

#ifndef SYNCLINE_KERNELS_CUDA_CONVOLUTION_MEMORY_H_
#define SYNCLINE_KERNELS_CUDA_CONVOLUTION_MEMORY_H_

#include <cstdint>

#include "kernels/device/convolution_kernels.h"

namespace syncline {

// The memory of a convolution on a GPU, for plans that are made without one
// too. It is the same whoever computes the convolution, so the plan does not
// depend on which libraries a worker has.

// Of how many samples columns are in memory at a time where our own kernels
// compute it (unfolded_convolution.h); at least 1.
int64_t UnfoldedSamples(const ConvolutionShape& shape);
// Scratch memory of each pass: those columns with their products, and as much
// more as a library's copy of the filters and its tables need. A library is
// given that as its workspace.
int64_t CudaConvolutionScratchBytes(const ConvolutionShape& shape);

// Whether cuDNN is asked for the convolution: its numbers fit the library's,
// none is 0, and the library finds the same size of the output, which it
// computes as if an axis had its first padding at both ends. All others are our
// own kernels'.
bool IsForCudnn(const ConvolutionShape& shape);

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_CUDA_CONVOLUTION_MEMORY_H_

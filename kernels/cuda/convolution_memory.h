#ifndef SYNCLINE_KERNELS_CUDA_CONVOLUTION_MEMORY_H_
#define SYNCLINE_KERNELS_CUDA_CONVOLUTION_MEMORY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/device/convolution_kernels.h"

namespace syncline {

// The memory of a convolution on a GPU, for plans that are made without one
// too. It is the same whoever computes the convolution, so the plan does not
// depend on which libraries a worker has.

// Of how many samples columns are in memory at a time where our own kernels
// compute it (unfolded_convolution.h); at least 1.
int64_t UnfoldedSamples(const ConvolutionShape& shape);
// Workspace of each pass, which a library is given: those columns with their
// products, and as much more as a library's copy of the filters and its tables
// need. In 16 bits at least as much as a library's copies of all arrays need,
// in which it may have channels innermost, and its tables.
int64_t CudaConvolutionWorkspaceBytes(const ConvolutionShape& shape);

// Scratch memory of the passes, in bytes: the workspace, and before it the
// float32 copies of arrays of a pass that is widened (CudnnWideningOf).
struct CudaConvolutionScratch {
  int64_t forward_bytes = 0;
  int64_t backward_data_bytes = 0;
  int64_t backward_weights_bytes = 0;
};
CudaConvolutionScratch CudaConvolutionScratchOf(const ConvolutionShape& shape);
// A copy begins at a multiple of this, as the workspace behind it.
inline constexpr int64_t kConvolutionCopyAlignment = 256;
// Of a copy of so many elements in float32, up to where the next one begins.
int64_t WidenedBytes(int64_t count);

// Whether cuDNN is asked for the convolution: its numbers fit the library's,
// none is 0, and the library finds the same size of the output, which it
// computes as if an axis had its first padding at both ends. All others are our
// own kernels'.
bool IsForCudnn(const ConvolutionShape& shape);
// Of a shape in 16 bits that is for cuDNN: whether it is given float32 copies
// of the arrays in a pass. Its results have the type of its factors, so the
// pass's own result would be rounded before the bias is added, or before it is
// added to a float32 gradient.
struct CudnnWidening {
  bool forward = false;
  bool backward_weights = false;
};
CudnnWidening CudnnWideningOf(const ConvolutionShape& shape);

// Errors: Unimplemented: the gradient of weights has 16 bits, and our own
// kernels would add it up in parts.
absl::Status CheckCudaConvolutionTypes(const ConvolutionShape& shape,
                                       const ConvolutionUses& uses);

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_CUDA_CONVOLUTION_MEMORY_H_

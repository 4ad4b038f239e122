#ifndef SYNCLINE_KERNELS_CUDA_CUDNN_CONVOLUTION_H_
#define SYNCLINE_KERNELS_CUDA_CUDNN_CONVOLUTION_H_

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/cudnn.h"
#include "kernels/device/convolution_kernels.h"
#include "kernels/device/floats.h"

namespace syncline::cuda {

// A convolution and its derivatives by cuDNN, compiled for one shape of
// IsForCudnn's (convolution_memory.h). Algorithms are the library's first
// choices among those that give the same bits each time, that add up products
// as they stand (no Fourier transform, no Winograd), and whose workspace fits.
// These depend on the shape, the GPU and the library's version alone. Sums are
// float32. Products of a float32 shape are, too, unless its factors have 16
// bits or `takes_tf32`: factors are then rounded to TF32. In a shape of 16 bits
// all three arrays of a pass have its type. Thread-compatible.
class CudnnConvolution {
 public:
  enum class Pass { kForward, kBackwardData, kBackwardWeights };

  // Of the passes in `uses`. `workspace_bytes`: what each call is given. Both
  // references outlive this. Errors: Cudnn's.
  static absl::StatusOr<std::unique_ptr<CudnnConvolution>> Create(
      Cudnn& library, Device& device, const ConvolutionShape& shape,
      const ConvolutionUses& uses, bool takes_tf32, int64_t workspace_bytes);
  ~CudnnConvolution();

  // Whether the library has an algorithm for a pass in `uses`. REQUIRES: has,
  // for Run.
  bool has(Pass pass) const { return chosen(pass).has_value(); }

  // result = the pass, or += with `accumulate`, without bias. The arrays are
  // those of ConvolutionLayer's method:
  //
  //   kForward          x, w, y
  //   kBackwardData     w, dy, dx
  //   kBackwardWeights  x, dy, dw
  //
  // They and `workspace` begin at multiples of kAlignment. Errors: Cudnn's.
  static constexpr size_t kAlignment = 16;
  absl::Status Run(Pass pass, Stream& stream, ConstFloats first,
                   ConstFloats second, bool accumulate, Floats result,
                   void* workspace);

 private:
  struct Chosen {
    int algorithm = 0;
    size_t workspace_bytes = 0;
  };
  struct Roles {
    const CudnnPass* functions;
    CudnnDescriptor first;
    CudnnDescriptor second;
    CudnnDescriptor result;
  };

  CudnnConvolution(Cudnn& library, DType type, int64_t workspace_bytes)
      : library_(library), type_(type), workspace_bytes_(workspace_bytes) {}
  absl::Status Describe(const ConvolutionShape& shape, bool takes_tf32);
  absl::Status Choose(Pass pass, Device& device);
  Roles RolesOf(Pass pass) const;
  const std::optional<Chosen>& chosen(Pass pass) const {
    return chosen_[static_cast<int>(pass)];
  }

  Cudnn& library_;
  const DType type_;
  const int64_t workspace_bytes_;
  CudnnDescriptor x_ = nullptr;
  CudnnDescriptor w_ = nullptr;
  CudnnDescriptor y_ = nullptr;
  CudnnDescriptor convolution_ = nullptr;
  std::optional<Chosen> chosen_[3];
};

}  // namespace syncline::cuda

#endif  // SYNCLINE_KERNELS_CUDA_CUDNN_CONVOLUTION_H_

// Convolutions by cuDNN where the device has it and it takes the shape, else by
// kernels of our own; in 16 bits too.

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <utility>

#include "common/base/status_macros.h"
#include "kernels/cuda/convolution_memory.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/cudnn_convolution.h"
#include "kernels/cuda/library_device.h"
#include "kernels/cuda/narrow_convolution.h"
#include "kernels/cuda/unfolded_convolution.h"
#include "kernels/device/binary_kernels.h"
#include "kernels/device/convolution_kernels.h"
#include "kernels/elementwise/broadcast.h"

namespace syncline {
namespace {

using cuda::CudnnConvolution;
using Pass = CudnnConvolution::Pass;

void AddBias(Stream& stream, const Broadcast& bias_over_y, const float* bias,
             float* y) {
  CudaBinaryKernels()[BinaryFunction::kAdd].forward(stream, bias_over_y, y,
                                                    bias, y);
}

// By cuDNN, but for passes that it has no algorithm for, and for arrays that
// are not aligned as it wants them: a plan's are.
class CudnnLayer : public ConvolutionLayer {
 public:
  CudnnLayer(const ConvolutionShape& shape,
             std::unique_ptr<CudnnConvolution> library,
             std::unique_ptr<ConvolutionLayer> own)
      : s_(shape), library_(std::move(library)), own_(std::move(own)) {}

  absl::Status Init() {
    const int64_t out = s_.window.out_count();
    SYNCLINE_ASSIGN_OR_RETURN(
        bias_over_y_,
        MakeBroadcast({s_.batch, s_.filters, out}, {s_.filters, 1}));
    return absl::OkStatus();
  }

  int64_t forward_scratch_bytes() const override {
    return CudaConvolutionWorkspaceBytes(s_);
  }
  int64_t backward_data_scratch_bytes() const override {
    return CudaConvolutionWorkspaceBytes(s_);
  }
  int64_t backward_weights_scratch_bytes() const override {
    return CudaConvolutionWorkspaceBytes(s_);
  }

  // REQUIRES: float32, or no bias.
  absl::Status Forward(Stream& stream, ConstFloats x, ConstFloats w,
                       const float* bias, bool accumulate, Floats y,
                       void* scratch) override {
    if (!library_->has(Pass::kForward)) {
      return own_->Forward(stream, x, w, bias, accumulate, y, scratch);
    }
    if (!AreAligned({x, w, y})) {
      SYNCLINE_ASSIGN_OR_RETURN(ConvolutionLayer * own, Unaligned(stream));
      return own->Forward(stream, x, w, bias, accumulate, y, scratch);
    }
    SYNCLINE_RETURN_IF_ERROR(
        library_->Run(Pass::kForward, stream, x, w, accumulate, y, scratch));
    if (bias != nullptr) AddBias(stream, bias_over_y_, bias, y);
    return absl::OkStatus();
  }

  absl::Status BackwardData(Stream& stream, ConstFloats dy, ConstFloats w,
                            bool accumulate, Floats dx, void* scratch,
                            bool after_weights) override {
    if (!library_->has(Pass::kBackwardData)) {
      return own_->BackwardData(stream, dy, w, accumulate, dx, scratch,
                                after_weights);
    }
    if (!AreAligned({dy, w, dx})) {
      SYNCLINE_ASSIGN_OR_RETURN(ConvolutionLayer * own, Unaligned(stream));
      return own->BackwardData(stream, dy, w, accumulate, dx, scratch,
                               after_weights);
    }
    return library_->Run(Pass::kBackwardData, stream, w, dy, accumulate, dx,
                         scratch);
  }

  absl::Status BackwardWeights(Stream& stream, ConstFloats x, ConstFloats dy,
                               bool accumulate, Floats dw,
                               void* scratch) override {
    if (!library_->has(Pass::kBackwardWeights)) {
      return own_->BackwardWeights(stream, x, dy, accumulate, dw, scratch);
    }
    if (!AreAligned({x, dy, dw})) {
      SYNCLINE_ASSIGN_OR_RETURN(ConvolutionLayer * own, Unaligned(stream));
      return own->BackwardWeights(stream, x, dy, accumulate, dw, scratch);
    }
    return library_->Run(Pass::kBackwardWeights, stream, x, dy, accumulate, dw,
                         scratch);
  }

  // cuDNN's sums lose digits where planes and batches are large.
  void BackwardBias(Stream& stream, ConstFloats dy, bool accumulate,
                    float* dbias) override {
    own_->BackwardBias(stream, dy, accumulate, dbias);
  }

 private:
  static bool AreAligned(std::initializer_list<ConstFloats> arrays) {
    for (const ConstFloats& array : arrays) {
      if (reinterpret_cast<uintptr_t>(array.data()) %
              CudnnConvolution::kAlignment !=
          0) {
        return false;
      }
    }
    return true;
  }

  // Our own kernels for all passes, made when they are first needed.
  absl::StatusOr<ConvolutionLayer*> Unaligned(Stream& stream) {
    if (unaligned_ == nullptr) {
      SYNCLINE_ASSIGN_OR_RETURN(
          unaligned_, cuda::MakeUnfoldedConvolution(stream.device(), s_,
                                                    {true, true, true}));
    }
    return unaligned_.get();
  }

  const ConvolutionShape s_;
  const std::unique_ptr<CudnnConvolution> library_;
  const std::unique_ptr<ConvolutionLayer> own_;  // passes that it lacks
  std::unique_ptr<ConvolutionLayer> unaligned_;
  Broadcast bias_over_y_;
};

// REQUIRES: IsForCudnn.
absl::StatusOr<std::unique_ptr<ConvolutionLayer>> MakeByCudnn(
    Device& device, cuda::Cudnn& cudnn, const ConvolutionShape& shape,
    const ConvolutionUses& uses) {
  SYNCLINE_ASSIGN_OR_RETURN(
      std::unique_ptr<CudnnConvolution> library,
      CudnnConvolution::Create(cudnn, device, shape, uses,
                               cuda::LibraryDevice::Of(device).takes_tf32(),
                               CudaConvolutionWorkspaceBytes(shape)));
  const ConvolutionUses lacking = {
      .forward = uses.forward && !library->has(Pass::kForward),
      .backward_data = uses.backward_data && !library->has(Pass::kBackwardData),
      .backward_weights =
          uses.backward_weights && !library->has(Pass::kBackwardWeights)};
  SYNCLINE_ASSIGN_OR_RETURN(
      std::unique_ptr<ConvolutionLayer> own,
      cuda::MakeUnfoldedConvolution(device, shape, lacking));
  auto layer =
      std::make_unique<CudnnLayer>(shape, std::move(library), std::move(own));
  SYNCLINE_RETURN_IF_ERROR(layer->Init());
  return layer;
}

absl::StatusOr<std::unique_ptr<ConvolutionLayer>> MakeNarrowByCudnn(
    Device& device, cuda::Cudnn& cudnn, const ConvolutionShape& shape,
    const ConvolutionUses& uses) {
  const CudnnWidening widening = CudnnWideningOf(shape);
  SYNCLINE_ASSIGN_OR_RETURN(
      std::unique_ptr<ConvolutionLayer> narrow,
      MakeByCudnn(device, cudnn, shape,
                  {.forward = uses.forward && !widening.forward,
                   .backward_data = uses.backward_data,
                   .backward_weights =
                       uses.backward_weights && !widening.backward_weights}));
  const ConvolutionUses widened = {
      .forward = uses.forward && widening.forward,
      .backward_weights = uses.backward_weights && widening.backward_weights};
  std::unique_ptr<ConvolutionLayer> whole;
  if (widened.forward || widened.backward_weights) {
    ConvolutionShape in_float32 = shape;
    in_float32.type = DType::kFloat32;
    in_float32.has_narrow_factors = true;
    SYNCLINE_ASSIGN_OR_RETURN(whole,
                              MakeByCudnn(device, cudnn, in_float32, widened));
  }
  return cuda::MakeNarrowConvolution(shape, std::move(narrow),
                                     std::move(whole));
}

absl::StatusOr<std::unique_ptr<ConvolutionLayer>> Make(
    Device& device, const ConvolutionShape& shape,
    const ConvolutionUses& uses) {
  SYNCLINE_RETURN_IF_ERROR(CheckCudaConvolutionTypes(shape, uses));
  SYNCLINE_ASSIGN_OR_RETURN(cuda::Cudnn* const cudnn,
                            cuda::LibraryDevice::Of(device).cudnn());
  if (cudnn == nullptr || !IsForCudnn(shape)) {
    return cuda::MakeUnfoldedConvolution(device, shape, uses);
  }
  return Is16Bit(shape.type) ? MakeNarrowByCudnn(device, *cudnn, shape, uses)
                             : MakeByCudnn(device, *cudnn, shape, uses);
}

}  // namespace

const ConvolutionKernels& CudaConvolutionKernels() {
  static constexpr ConvolutionKernels kKernels = {.make = Make,
                                                  .add_bias = AddBias};
  return kKernels;
}

}  // namespace syncline

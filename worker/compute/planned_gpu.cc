#include "worker/compute/planned_gpu.h"

#include <memory>

#include "common/base/status_macros.h"
#include "kernels/cuda/convolution_memory.h"
#include "kernels/cuda/product_types.h"
#include "kernels/device/convolution_kernels.h"
#include "kernels/device/layer_norm_kernels.h"
#include "kernels/device/matrix_product_kernels.h"
#include "kernels/device/tensor_update_kernels.h"
#include "kernels/optimizer/element_update.h"

namespace syncline::worker {
namespace {

absl::Status ComputesNothing() {
  return absl::InternalError("a planned GPU computes nothing");
}

// It takes any shape and all types, and no memory, as cuBLASLt's.
class PlannedProduct : public MatrixProduct {
 public:
  absl::Status Run(Stream&, ConstFloats, ConstFloats, const float*,
                   Floats) override {
    return ComputesNothing();
  }
  absl::Status Accumulate(Stream&, ConstFloats, ConstFloats, Floats) override {
    return ComputesNothing();
  }
};

// It takes the memory that a GPU's do.
class PlannedConvolution : public ConvolutionLayer {
 public:
  explicit PlannedConvolution(const ConvolutionShape& shape)
      : scratch_(CudaConvolutionScratchOf(shape)) {}

  int64_t forward_scratch_bytes() const override {
    return scratch_.forward_bytes;
  }
  int64_t backward_data_scratch_bytes() const override {
    return scratch_.backward_data_bytes;
  }
  int64_t backward_weights_scratch_bytes() const override {
    return scratch_.backward_weights_bytes;
  }
  absl::Status Forward(Stream&, ConstFloats, ConstFloats, const float*, bool,
                       Floats, void*) override {
    return ComputesNothing();
  }
  absl::Status BackwardData(Stream&, ConstFloats, ConstFloats, bool, Floats,
                            void*, bool) override {
    return ComputesNothing();
  }
  absl::Status BackwardWeights(Stream&, ConstFloats, ConstFloats, bool, Floats,
                               void*) override {
    return ComputesNothing();
  }
  void BackwardBias(Stream&, ConstFloats, bool, float*) override {}

 private:
  const CudaConvolutionScratch scratch_;
};

absl::StatusOr<std::unique_ptr<ConvolutionLayer>> MakeConvolution(
    Device&, const ConvolutionShape& shape, const ConvolutionUses& uses) {
  SYNCLINE_RETURN_IF_ERROR(CheckCudaConvolutionTypes(shape, uses));
  return std::make_unique<PlannedConvolution>(shape);
}

absl::StatusOr<std::unique_ptr<MatrixProduct>> MakeProduct(
    Device&, const MatrixProductShape& shape) {
  SYNCLINE_RETURN_IF_ERROR(CheckCudaProductTypes(shape));
  return std::make_unique<PlannedProduct>();
}

class PlannedEpilogueProduct : public EpilogueProduct {
 public:
  absl::Status Run(Stream&, ConstFloats, ConstFloats, ConstFloats, void*,
                   Floats) override {
    return ComputesNothing();
  }
};

// Takes it that cuBLASLt has an algorithm for what it may have, and that its
// ReLU keeps NaN.
absl::StatusOr<std::unique_ptr<EpilogueProduct>> MakeEpilogueProduct(
    Device&, const MatrixProductShape& shape, const ProductEpilogue& epilogue) {
  SYNCLINE_RETURN_IF_ERROR(CheckCudaEpilogue(shape, epilogue));
  return std::make_unique<PlannedEpilogueProduct>();
}

}  // namespace

PlannedGpu::PlannedGpu() : kernels_(CpuDevice::kernels()) {
  static const MatrixProductKernels& products = *new MatrixProductKernels{
      .make = MakeProduct,
      .make_with_epilogue = MakeEpilogueProduct,
      .spread = kernels_.matrix_product->spread,
      .spread_gradient = kernels_.matrix_product->spread_gradient};
  kernels_.matrix_product = &products;
  static const LayerNormKernels& norms = *new LayerNormKernels{
      .forward = kernels_.layer_norm->forward,
      .backward = kernels_.layer_norm->backward,
      .add_moments_gradient = kernels_.layer_norm->add_moments_gradient,
      .add_forward = [](Stream&, const RowNorm&, ConstFloats, ConstFloats,
                        ConstFloats, ConstFloats, Floats, Floats, float*,
                        float*) {},
      .add_backward = [](Stream&, const RowNorm&, ConstFloats, ConstFloats,
                         const float*, const float*, ConstFloats, ConstFloats,
                         const LayerNormKernels::SummandGradients&) {}};
  kernels_.layer_norm = &norms;
  static const ConvolutionKernels& convolutions = *new ConvolutionKernels{
      .make = MakeConvolution, .add_bias = kernels_.convolution->add_bias};
  kernels_.convolution = &convolutions;
  static constexpr TensorUpdateKernels kUpdates = {.has = HasElementUpdate};
  kernels_.tensor_update = &kUpdates;
}

}  // namespace syncline::worker

#include "kernels/convolution.h"

#include <utility>

#include "common/base/status_macros.h"
#include "kernels/channel_sums.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/device/convolution_kernels.h"
#include "kernels/elementwise/elementwise.h"

namespace syncline {
namespace {

class CpuConvolutionLayer : public ConvolutionLayer {
 public:
  CpuConvolutionLayer(const ConvolutionShape& shape, Convolution convolution)
      : convolution_(std::move(convolution)),
        y_{.batch = shape.batch,
           .channels = shape.filters,
           .plane = shape.window.out_count(),
           .block = shape.y_block} {}

  int64_t forward_scratch_bytes() const override {
    return convolution_.forward_scratch_bytes();
  }
  int64_t backward_data_scratch_bytes() const override {
    return convolution_.backward_data_scratch_bytes();
  }
  int64_t backward_weights_scratch_bytes() const override {
    return convolution_.backward_weights_scratch_bytes();
  }

  absl::Status Forward(Stream& stream, ConstFloats x, ConstFloats w,
                       const float* bias, bool accumulate, Floats y,
                       void* scratch) override {
    const CpuKernel kernel(stream);
    return convolution_.Forward(x, w, bias, accumulate, y, scratch);
  }
  absl::Status BackwardData(Stream& stream, ConstFloats dy, ConstFloats w,
                            bool accumulate, Floats dx, void* scratch,
                            bool after_weights) override {
    const CpuKernel kernel(stream);
    return convolution_.BackwardData(dy, w, accumulate, dx, scratch,
                                     after_weights);
  }
  absl::Status BackwardWeights(Stream& stream, ConstFloats x, ConstFloats dy,
                               bool accumulate, Floats dw,
                               void* scratch) override {
    const CpuKernel kernel(stream);
    return convolution_.BackwardWeights(x, dy, accumulate, dw, scratch);
  }
  void BackwardBias(Stream& stream, ConstFloats dy, bool accumulate,
                    float* dbias) override {
    const CpuKernel kernel(stream);
    SumChannels(y_, dy, accumulate, dbias);
  }

 private:
  Convolution convolution_;
  const ChannelPlanes y_;
};

absl::StatusOr<std::unique_ptr<ConvolutionLayer>> Make(
    Device&, const ConvolutionShape& shape, const ConvolutionUses& uses) {
  SYNCLINE_ASSIGN_OR_RETURN(Convolution convolution,
                            Convolution::Create(shape, uses));
  return std::make_unique<CpuConvolutionLayer>(shape, std::move(convolution));
}

void AddBias(Stream& stream, const Broadcast& bias_over_y, const float* bias,
             float* y) {
  const CpuKernel kernel(stream);
  Add(bias_over_y, y, bias, y);
}

}  // namespace

const ConvolutionKernels& CpuConvolutionKernels() {
  static constexpr ConvolutionKernels kKernels = {.make = Make,
                                                  .add_bias = AddBias};
  return kKernels;
}

}  // namespace syncline

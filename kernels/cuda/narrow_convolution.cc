#include "kernels/cuda/narrow_convolution.h"

#include <utility>

#include "common/base/status_macros.h"
#include "kernels/cuda/convolution_memory.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/device/cast_kernels.h"

namespace syncline::cuda {
namespace {

class NarrowConvolution : public ConvolutionLayer {
 public:
  // `whole`: of the same shape in float32; null where no pass needs it.
  NarrowConvolution(const ConvolutionShape& shape,
                    std::unique_ptr<ConvolutionLayer> narrow,
                    std::unique_ptr<ConvolutionLayer> whole)
      : s_(shape),
        scratch_(CudaConvolutionScratchOf(shape)),
        widening_(CudnnWideningOf(shape)),
        narrow_(std::move(narrow)),
        whole_(std::move(whole)),
        widen_(CudaCastKernels().casts[shape.type][DType::kFloat32]),
        in_count_(s_.batch * s_.channels * s_.window.in_count()),
        out_count_(s_.batch * s_.filters * s_.window.out_count()),
        weight_count_(s_.filters * (s_.channels / s_.groups) *
                      s_.window.kernel_count()) {}

  int64_t forward_scratch_bytes() const override {
    return scratch_.forward_bytes;
  }
  int64_t backward_data_scratch_bytes() const override {
    return scratch_.backward_data_bytes;
  }
  int64_t backward_weights_scratch_bytes() const override {
    return scratch_.backward_weights_bytes;
  }

  absl::Status Forward(Stream& stream, ConstFloats x, ConstFloats w,
                       const float* bias, bool accumulate, Floats y,
                       void* scratch) override {
    if (!widening_.forward) {
      return narrow_->Forward(stream, x, w, bias, accumulate, y, scratch);
    }
    Copies copies(*this, stream, scratch);
    const float* const wide_x = copies.Widened(x, in_count_);
    const float* const wide_w = copies.Widened(w, weight_count_);
    float* const wide_y = copies.Take(out_count_);
    SYNCLINE_RETURN_IF_ERROR(whole_->Forward(stream, wide_x, wide_w, bias,
                                             /*accumulate=*/false, wide_y,
                                             copies.rest()));
    CudaCastKernels().backward(stream, out_count_, wide_y, accumulate, y);
    return absl::OkStatus();
  }

  absl::Status BackwardData(Stream& stream, ConstFloats dy, ConstFloats w,
                            bool accumulate, Floats dx, void* scratch,
                            bool after_weights) override {
    return narrow_->BackwardData(stream, dy, w, accumulate, dx, scratch,
                                 after_weights);
  }

  absl::Status BackwardWeights(Stream& stream, ConstFloats x, ConstFloats dy,
                               bool accumulate, Floats dw,
                               void* scratch) override {
    if (!widening_.backward_weights) {
      return narrow_->BackwardWeights(stream, x, dy, accumulate, dw, scratch);
    }
    Copies copies(*this, stream, scratch);
    const float* const wide_x = copies.Widened(x, in_count_);
    const float* const wide_dy = copies.Widened(dy, out_count_);
    return whole_->BackwardWeights(stream, wide_x, wide_dy, accumulate, dw,
                                   copies.rest());
  }

  void BackwardBias(Stream& stream, ConstFloats dy, bool accumulate,
                    float* dbias) override {
    narrow_->BackwardBias(stream, dy, accumulate, dbias);
  }

 private:
  // float32 arrays at the beginning of a pass's scratch memory.
  class Copies {
   public:
    Copies(const NarrowConvolution& layer, Stream& stream, void* scratch)
        : layer_(layer), stream_(stream), rest_(static_cast<char*>(scratch)) {}

    float* Take(int64_t count) {
      char* const copy = rest_;
      rest_ += WidenedBytes(count);
      return reinterpret_cast<float*>(copy);
    }
    const float* Widened(ConstFloats array, int64_t count) {
      float* const copy = Take(count);
      layer_.widen_(stream_, count, array.data(), copy);
      return copy;
    }
    void* rest() const { return rest_; }

   private:
    const NarrowConvolution& layer_;
    Stream& stream_;
    char* rest_;
  };

  const ConvolutionShape s_;
  const CudaConvolutionScratch scratch_;
  const CudnnWidening widening_;
  const std::unique_ptr<ConvolutionLayer> narrow_;
  const std::unique_ptr<ConvolutionLayer> whole_;
  const CastKernels::Forward widen_;
  const int64_t in_count_, out_count_, weight_count_;
};

}  // namespace

std::unique_ptr<ConvolutionLayer> MakeNarrowConvolution(
    const ConvolutionShape& shape, std::unique_ptr<ConvolutionLayer> narrow,
    std::unique_ptr<ConvolutionLayer> whole) {
  return std::make_unique<NarrowConvolution>(shape, std::move(narrow),
                                             std::move(whole));
}

}  // namespace syncline::cuda

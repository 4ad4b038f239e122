#include "kernels/cuda/convolution_memory.h"

#include <algorithm>
#include <limits>

namespace syncline {
namespace {

// Of the columns of a layer at most, unless a sample alone needs more.
constexpr int64_t kColumnsMax = int64_t{64} << 20;  // floats
// Beside columns and filters: a library's tables of offsets.
constexpr int64_t kTablesBytes = int64_t{64} << 10;

constexpr int64_t kIntMax = std::numeric_limits<int>::max();

// Of the columns, and of a filter's weights.
int64_t RowsOf(const ConvolutionShape& s) {
  return s.channels / s.groups * s.window.kernel_count();
}
int64_t WeightsOf(const ConvolutionShape& s) { return s.filters * RowsOf(s); }
int64_t InputsOf(const ConvolutionShape& s) {
  return s.batch * s.channels * s.window.in_count();
}
int64_t OutputsOf(const ConvolutionShape& s) {
  return s.batch * s.filters * s.window.out_count();
}

}  // namespace

int64_t UnfoldedSamples(const ConvolutionShape& s) {
  const int64_t of_sample =
      std::max<int64_t>(1, RowsOf(s) * s.window.out_count());
  return std::clamp<int64_t>(kColumnsMax / of_sample, 1,
                             std::max<int64_t>(s.batch, 1));
}

int64_t CudaConvolutionWorkspaceBytes(const ConvolutionShape& s) {
  const int64_t places = UnfoldedSamples(s) * s.window.out_count();
  const int64_t columns = (RowsOf(s) + s.filters / s.groups) * places;
  const int64_t unfolded =
      (columns + WeightsOf(s)) * static_cast<int64_t>(sizeof(float));
  const int64_t copies = !Is16Bit(s.type)
                             ? 0
                             : (InputsOf(s) + WeightsOf(s) + OutputsOf(s)) *
                                   static_cast<int64_t>(DTypeBytes(s.type));
  return std::max(unfolded, copies) + kTablesBytes;
}

int64_t WidenedBytes(int64_t count) {
  const int64_t bytes = count * static_cast<int64_t>(sizeof(float));
  return (bytes + kConvolutionCopyAlignment - 1) / kConvolutionCopyAlignment *
         kConvolutionCopyAlignment;
}

CudaConvolutionScratch CudaConvolutionScratchOf(const ConvolutionShape& s) {
  const int64_t workspace = CudaConvolutionWorkspaceBytes(s);
  CudaConvolutionScratch scratch = {workspace, workspace, workspace};
  const CudnnWidening widening = CudnnWideningOf(s);
  if (widening.forward) {
    scratch.forward_bytes += WidenedBytes(InputsOf(s)) +
                             WidenedBytes(WeightsOf(s)) +
                             WidenedBytes(OutputsOf(s));
  }
  if (widening.backward_weights) {
    scratch.backward_weights_bytes +=
        WidenedBytes(InputsOf(s)) + WidenedBytes(OutputsOf(s));
  }
  return scratch;
}

bool IsForCudnn(const ConvolutionShape& s) {
  for (const int64_t count : {WeightsOf(s), InputsOf(s), OutputsOf(s)}) {
    if (count == 0 || count > kIntMax) return false;
  }
  for (const Window::Axis& axis : s.window.axes) {
    const int64_t room = axis.in + 2 * axis.pad_begin - axis.span();
    if (axis.pad_begin < 0 || axis.pad_begin > kIntMax ||
        axis.stride > kIntMax || axis.dilation > kIntMax || room < 0 ||
        room / axis.stride + 1 != axis.out) {
      return false;
    }
  }
  return true;
}

CudnnWidening CudnnWideningOf(const ConvolutionShape& s) {
  if (!Is16Bit(s.type) || !IsForCudnn(s)) return {};
  return {.forward = s.has_bias,
          .backward_weights = s.weights_gradient_type == DType::kFloat32};
}

absl::Status CheckCudaConvolutionTypes(const ConvolutionShape& s,
                                       const ConvolutionUses& uses) {
  if (uses.backward_weights && Is16Bit(s.weights_gradient_type) &&
      UnfoldedSamples(s) < s.batch) {
    return absl::UnimplementedError("a gradient that is a sum of products");
  }
  return absl::OkStatus();
}

}  // namespace syncline

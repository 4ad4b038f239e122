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

}  // namespace

int64_t UnfoldedSamples(const ConvolutionShape& s) {
  const int64_t of_sample =
      std::max<int64_t>(1, RowsOf(s) * s.window.out_count());
  return std::clamp<int64_t>(kColumnsMax / of_sample, 1,
                             std::max<int64_t>(s.batch, 1));
}

int64_t CudaConvolutionScratchBytes(const ConvolutionShape& s) {
  const int64_t places = UnfoldedSamples(s) * s.window.out_count();
  const int64_t columns = (RowsOf(s) + s.filters / s.groups) * places;
  const int64_t weights = s.filters * RowsOf(s);
  return (columns + weights) * static_cast<int64_t>(sizeof(float)) +
         kTablesBytes;
}

bool IsForCudnn(const ConvolutionShape& s) {
  const int64_t weights = s.filters * RowsOf(s);
  const int64_t in = s.batch * s.channels * s.window.in_count();
  const int64_t out = s.batch * s.filters * s.window.out_count();
  for (const int64_t count : {weights, in, out}) {
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

}  // namespace syncline

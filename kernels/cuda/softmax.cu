#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/walk/lines.h"
#include "kernels/device/softmax_kernels.h"
#include "kernels/elementwise/vector_math.h"

namespace syncline {
namespace {

using cuda::ConstFloatArray;
using cuda::FloatArray;
using cuda::OnDevice;

// Where a line begins; its elements are `inner` apart.
SYNCLINE_DEVICE int64_t BeginOf(const SoftmaxShape& s, int64_t line) {
  return line / s.inner * s.n * s.inner + line % s.inner;
}

template <bool kLog>
struct ForwardBody {
  SoftmaxShape s;
  ConstFloatArray x;
  FloatArray y;

  template <typename Group>
  SYNCLINE_DEVICE void operator()(const Group& group, int64_t line,
                                  int64_t n) const {
    const int64_t begin = BeginOf(s, line);
    float largest = -INFINITY;
    for (int64_t k = group.rank(); k < n; k += group.size()) {
      largest = cuda::Larger()(largest, x[begin + k * s.inner]);
    }
    largest = group.Fold(largest, cuda::Larger());
    float sum = 0;
    for (int64_t k = group.rank(); k < n; k += group.size()) {
      sum += Exp(x[begin + k * s.inner] - largest);
    }
    sum = group.Fold(sum, cuda::Plus());
    const float log_sum = kLog ? std::log(sum) : 0;
    const float share = 1.0f / sum;
    for (int64_t k = group.rank(); k < n; k += group.size()) {
      const float shifted = x[begin + k * s.inner] - largest;
      y[begin + k * s.inner] = kLog ? shifted - log_sum : Exp(shifted) * share;
    }
  }
};

// Softmax: dx = y (dy - sum(y dy)). Its logarithm: dx = dy - e^y sum(dy).
template <bool kLog>
struct BackwardBody {
  SoftmaxShape s;
  ConstFloatArray y;
  ConstFloatArray dy;
  bool accumulate;
  FloatArray dx;

  template <typename Group>
  SYNCLINE_DEVICE void operator()(const Group& group, int64_t line,
                                  int64_t n) const {
    const int64_t begin = BeginOf(s, line);
    float sum = 0;
    for (int64_t k = group.rank(); k < n; k += group.size()) {
      const int64_t at = begin + k * s.inner;
      sum += kLog ? dy[at] : y[at] * dy[at];
    }
    sum = group.Fold(sum, cuda::Plus());
    for (int64_t k = group.rank(); k < n; k += group.size()) {
      const int64_t at = begin + k * s.inner;
      const float value =
          kLog ? dy[at] - Exp(y[at]) * sum : y[at] * (dy[at] - sum);
      dx[at] = accumulate ? dx[at] + value : value;
    }
  }
};

template <bool kLog>
void Forward(Stream& stream, const SoftmaxShape& s, ConstFloats x, Floats y) {
  cuda::LaunchLines(stream, s.outer * s.inner, s.n, s.inner > 1,
                    ForwardBody<kLog>{s, OnDevice(x), OnDevice(y)});
}

template <bool kLog>
void Backward(Stream& stream, const SoftmaxShape& s, ConstFloats y,
              ConstFloats dy, bool accumulate, Floats dx) {
  cuda::LaunchLines(stream, s.outer * s.inner, s.n, s.inner > 1,
                    BackwardBody<kLog>{s, OnDevice(y), OnDevice(dy), accumulate,
                                       OnDevice(dx)});
}

}  // namespace

const SoftmaxKernels& CudaSoftmaxKernels() {
  static constexpr SoftmaxKernels kKernels = {
      .softmax = {Forward<false>, Backward<false>},
      .log_softmax = {Forward<true>, Backward<true>}};
  return kKernels;
}

}  // namespace syncline

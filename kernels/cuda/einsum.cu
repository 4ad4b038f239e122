#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/walk/strided_walk.h"
#include "kernels/device/einsum_kernels.h"

namespace syncline {
namespace {

using cuda::Global;
using cuda::OnDevice;

template <typename T, size_t kOne, size_t kOther>
struct ProductTerm {
  bool has_other;
  Global<const T> one;
  Global<const T> other;

  SYNCLINE_DEVICE double operator()(const int64_t* at) const {
    const double value = one[at[kOne]];
    const double factor = has_other ? static_cast<T>(other[at[kOther]]) : 1;
    return value * factor;
  }
};

template <typename T, size_t kTo>
struct WriteSum {
  bool accumulate;
  Global<T> to;

  SYNCLINE_DEVICE void operator()(const int64_t* at, double sum) const {
    const T whole = static_cast<T>(sum);
    to[at[kTo]] = accumulate ? to[at[kTo]] + whole : whole;
  }
};

// to[array kTo] = the sum of one[kOne] * other[kOther], or of one[kOne].
template <typename T, size_t kTo, size_t kOne, size_t kOther>
void Sum(Stream& stream, const EinsumWalk& walk, const T* one, const T* other,
         bool accumulate, T* to) {
  cuda::SumTerms(stream, walk, kTo,
                 ProductTerm<T, kOne, kOther>{other != nullptr, OnDevice(one),
                                              OnDevice(other)},
                 WriteSum<T, kTo>{accumulate, OnDevice(to)});
}

template <typename T>
void Clear(Stream& stream, int64_t count, T* y) {
  cuda::LaunchElements(
      stream, count,
      [y = OnDevice(y)] SYNCLINE_DEVICE(int64_t i) { y[i] = 0; });
}

template <typename T>
void ForwardOf(Stream& stream, const EinsumWalk& walk, int64_t count,
               const void* a, const void* b, void* y) {
  // An empty sum is 0.
  if (walk.count() == 0) Clear(stream, count, static_cast<T*>(y));
  Sum<T, 0, 1, 2>(stream, walk, static_cast<const T*>(a),
                  static_cast<const T*>(b), /*accumulate=*/false,
                  static_cast<T*>(y));
}

void Forward(Stream& stream, const EinsumWalk& walk, DType dtype, int64_t count,
             const void* a, const void* b, void* y, void*) {
  if (dtype == DType::kFloat64) {
    ForwardOf<double>(stream, walk, count, a, b, y);
  } else {
    ForwardOf<float>(stream, walk, count, a, b, y);
  }
}

// Elements beside a diagonal have no terms.
void Backward(Stream& stream, const EinsumWalk& walk, int operand,
              int64_t count, const float* other, const float* dy,
              bool accumulate, float* dx, void*) {
  if (!accumulate) Clear(stream, count, dx);
  if (operand == 0) {
    Sum<float, 1, 0, 2>(stream, walk, dy, other, /*accumulate=*/true, dx);
  } else {
    Sum<float, 2, 0, 1>(stream, walk, dy, other, /*accumulate=*/true, dx);
  }
}

int64_t ScratchBytes(const EinsumWalk&, int64_t) { return 0; }

}  // namespace

const EinsumKernels& CudaEinsumKernels() {
  static constexpr EinsumKernels kKernels = {
      .forward = Forward, .backward = Backward, .scratch_bytes = ScratchBytes};
  return kKernels;
}

}  // namespace syncline

#include <algorithm>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/device/einsum_kernels.h"
#include "kernels/elementwise/broadcast.h"
#include "kernels/elementwise/loop.h"
#include "kernels/elementwise/row_sums.h"

namespace syncline {
namespace {

// Calls visit(y, a, b) with the offsets of every combination.
template <typename Visit>
void ForEachTerm(const EinsumWalk& walk, Visit visit) {
  const auto& by = walk.inner_strides();
  walk.ForEachRow([&](int64_t, const EinsumWalk::Offsets& at) {
    for (int64_t i = 0; i < walk.inner(); ++i) {
      visit(at[0] + i * by[0], at[1] + i * by[1], at[2] + i * by[2]);
    }
  });
}

// sums[o] += a term of each combination; computed in T, added up in S.
template <typename T, typename S>
void AddTerms(const EinsumWalk& walk, const T* a, const T* b, S* sums) {
  ForEachTerm(walk, [=](int64_t o, int64_t i, int64_t j) {
    sums[o] += b == nullptr ? a[i] : a[i] * b[j];
  });
}

// Whether `count` sums of what the walk visits are so long that they are added
// up in fp64.
bool AreLong(const EinsumWalk& walk, int64_t count) {
  return walk.count() / kRowBlock > count;
}

int64_t ScratchBytes(const EinsumWalk& walk, int64_t count) {
  return AreLong(walk, count) ? count * sizeof(double) : 0;
}

// out = the sums that add(sums) adds to, or += with `accumulate`; in fp64, in
// scratch, if they are long.
template <typename Add>
void AddUp(const EinsumWalk& walk, int64_t count, bool accumulate, float* out,
           void* scratch, Add add) {
  if (!AreLong(walk, count)) {
    if (!accumulate) std::fill_n(out, count, 0.0f);
    return add(out);
  }
  auto* const sums = static_cast<double*>(scratch);
  std::fill_n(sums, count, 0.0);
  add(sums);
  Emit(count, accumulate, out,
       [=](int64_t i) { return static_cast<float>(sums[i]); });
}

void Forward(Stream& stream, const EinsumWalk& walk, DType dtype, int64_t count,
             const void* a, const void* b, void* y, void* scratch) {
  const CpuKernel kernel(stream);
  if (dtype == DType::kFloat64) {
    auto* const sums = static_cast<double*>(y);
    std::fill_n(sums, count, 0.0);
    return AddTerms(walk, static_cast<const double*>(a),
                    static_cast<const double*>(b), sums);
  }
  AddUp(walk, count, /*accumulate=*/false, static_cast<float*>(y), scratch,
        [&](auto* sums) {
          AddTerms(walk, static_cast<const float*>(a),
                   static_cast<const float*>(b), sums);
        });
}

void Backward(Stream& stream, const EinsumWalk& walk, int operand,
              int64_t count, const float* other, const float* dy,
              bool accumulate, float* dx, void* scratch) {
  const CpuKernel kernel(stream);
  AddUp(walk, count, accumulate, dx, scratch, [&](auto* sums) {
    ForEachTerm(walk, [=](int64_t o, int64_t i, int64_t j) {
      const float factor =
          other == nullptr ? 1.0f : other[operand == 0 ? j : i];
      sums[operand == 0 ? i : j] += dy[o] * factor;
    });
  });
}

}  // namespace

const EinsumKernels& CpuEinsumKernels() {
  static constexpr EinsumKernels kKernels = {
      .forward = Forward, .backward = Backward, .scratch_bytes = ScratchBytes};
  return kKernels;
}

}  // namespace syncline

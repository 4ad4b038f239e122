#include "kernels/cuda/broadcast_walk.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/lines.h"
#include "kernels/device/einsum_kernels.h"

namespace syncline {
namespace {

using cuda::Global;
using cuda::OnDevice;

// The loops of a walk that move one of its arrays, and the others, which are
// the terms of one of its elements.
struct TermWalk {
  using Loop = EinsumWalk::Loop;
  FixedList<Loop, EinsumWalk::kLoopsMax> moving;
  FixedList<Loop, EinsumWalk::kLoopsMax> summed;
  EinsumWalk::Offsets begin;
  int64_t elements = 1;
  int64_t terms = 1;
  bool are_adjacent = false;
};

TermWalk MakeTermWalk(const EinsumWalk& walk, size_t array) {
  TermWalk split;
  split.begin = walk.begin();
  for (const TermWalk::Loop& loop : walk.loops()) {
    split.are_adjacent = loop.strides[array] != 0;
    if (split.are_adjacent) {
      split.moving.push_back(loop);
      split.elements *= loop.n;
    } else {
      split.summed.push_back(loop);
      split.terms *= loop.n;
    }
  }
  return split;
}

template <typename Index>
SYNCLINE_DEVICE void AddRound(
    const FixedList<TermWalk::Loop, EinsumWalk::kLoopsMax>& loops,
    int64_t round, EinsumWalk::Offsets& at) {
  Index left = static_cast<Index>(round);
  for (size_t d = loops.size(); d-- > 0;) {
    const TermWalk::Loop& loop = loops[d];
    const Index next = left / static_cast<Index>(loop.n);
    const int64_t k = left - next * static_cast<Index>(loop.n);
    for (size_t i = 0; i < at.size(); ++i) at[i] += k * loop.strides[i];
    left = next;
  }
}

// to[array kTo] = the sum of one[kOne] * other[kOther], or of one[kOne].
template <typename Index, typename T, size_t kTo, size_t kOne, size_t kOther>
struct SumBody {
  TermWalk walk;
  bool has_other;
  bool accumulate;
  Global<const T> one;
  Global<const T> other;
  Global<T> to;

  template <typename Group>
  SYNCLINE_DEVICE void operator()(const Group& group, int64_t line,
                                  int64_t n) const {
    EinsumWalk::Offsets first = walk.begin;
    if (n > 0) AddRound<Index>(walk.moving, line, first);
    double sum = 0;
    for (int64_t k = group.rank(); k < n; k += group.size()) {
      EinsumWalk::Offsets at = first;
      AddRound<Index>(walk.summed, k, at);
      const double value = one[at[kOne]];
      const double factor = has_other ? static_cast<T>(other[at[kOther]]) : 1;
      sum += value * factor;
    }
    sum = group.Fold(sum, cuda::Plus());
    if (group.rank() != 0 || line >= walk.elements) return;
    const T whole = static_cast<T>(sum);
    to[first[kTo]] = accumulate ? to[first[kTo]] + whole : whole;
  }
};

template <typename T, size_t kTo, size_t kOne, size_t kOther>
void Sum(Stream& stream, const EinsumWalk& walk, const T* one, const T* other,
         bool accumulate, T* to) {
  if (walk.count() == 0) return;
  const TermWalk split = MakeTermWalk(walk, kTo);
  const auto launch = [&](auto index) {
    cuda::LaunchLines(stream, split.elements, split.terms, split.are_adjacent,
                      SumBody<decltype(index), T, kTo, kOne, kOther>{
                          split, other != nullptr, accumulate, OnDevice(one),
                          OnDevice(other), OnDevice(to)});
  };
  if (cuda::Fits32Bits(walk.count())) {
    launch(uint32_t{});
  } else {
    launch(uint64_t{});
  }
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

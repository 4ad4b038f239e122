#ifndef SYNCLINE_KERNELS_ELEMENTWISE_LOOP_H_
#define SYNCLINE_KERNELS_ELEMENTWISE_LOOP_H_

#include <cstdint>

// Before a loop whose iterations touch different elements even if its arrays
// are the same (in-place operation): lets gcc vectorise without asking at run
// time whether they overlap. clang's pragma for it warns wherever the loop
// cannot be vectorised, as under sanitizers, so clang asks at run time.
#if defined(__clang__)
#define SYNCLINE_INDEPENDENT_ITERATIONS
#else
#define SYNCLINE_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif

namespace syncline {

// out[i] = value(i), or += with `accumulate`. value(i) may read out[i].
template <typename Value>
void Emit(int64_t count, bool accumulate, float* out, Value value) {
  if (accumulate) {
    SYNCLINE_INDEPENDENT_ITERATIONS
    for (int64_t i = 0; i < count; ++i) out[i] += value(i);
  } else {
    SYNCLINE_INDEPENDENT_ITERATIONS
    for (int64_t i = 0; i < count; ++i) out[i] = value(i);
  }
}

// How many numbers of float32 are added up before their sum goes on in fp64.
inline constexpr int64_t kSumBlock = 512;

// Sum of value(i), in blocks. A block is added up in eight interleaved partial
// sums: vectorised without letting the compiler reorder, so the same bits
// everywhere. However many there are, the error is below kSumBlock / 8 + 4
// roundings of the sum of absolute values.
template <typename Value>
float SumOf(int64_t count, Value value) {
  constexpr int kLanes = 8;
  double sum = 0;
  for (int64_t i = 0; i < count;) {
    const int64_t end = i + kSumBlock < count ? i + kSumBlock : count;
    float lanes[kLanes] = {};
    for (; i + kLanes <= end; i += kLanes) {
      for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += value(i + lane);
    }
    for (int lane = 0; i < end; ++i, ++lane) lanes[lane] += value(i);
    sum += ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
           ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
  }
  return static_cast<float>(sum);
}

// Largest of value(i), count > 0, likewise in eight lanes. A NaN need not win.
// A caller for which it matters finds it in the sum of the shifted values.
template <typename Value>
float MaximumOf(int64_t count, Value value) {
  constexpr int kLanes = 8;
  float lanes[kLanes];
  for (float& lane : lanes) lane = value(0);
  const auto larger = [](float a, float b) { return b > a ? b : a; };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = larger(lanes[lane], value(i + lane));
    }
  }
  for (; i < count; ++i) lanes[0] = larger(lanes[0], value(i));
  for (int lane = 1; lane < kLanes; ++lane) {
    lanes[0] = larger(lanes[0], lanes[lane]);
  }
  return lanes[0];
}

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_ELEMENTWISE_LOOP_H_

#ifndef SYNCLINE_KERNELS_CUDA_RECURRENT_ROWS_H_
#define SYNCLINE_KERNELS_CUDA_RECURRENT_ROWS_H_

// Kernels that move and sum the rows of a recurrent layer.

#include <cstdint>

#include "kernels/cuda/report.h"
#include "kernels/cuda/walk/lines.h"
#include "kernels/device/recurrent_kernels.h"

namespace syncline::cuda {

// Rows of `width`, each with a place among others: to[i] = from[i].
struct RowPlaces {
  int64_t begin = 0;
  int64_t stride = 0;
};

inline void CopyRows(Stream& stream, int64_t rows, int64_t width,
                     const float* from, RowPlaces from_places, bool accumulate,
                     float* to, RowPlaces to_places) {
  LaunchElements(
      stream, rows * width,
      [=, from = OnDevice(from), to = OnDevice(to)] SYNCLINE_DEVICE(int64_t i) {
        const int64_t row = i / width;
        const float value =
            from[from_places.begin + row * from_places.stride + i % width];
        const int64_t at = to_places.begin + row * to_places.stride + i % width;
        to[at] = accumulate ? to[at] + value : value;
      });
}

// The input with time first, and zeros beyond a sample's length.
struct CopyInput {
  int64_t steps;
  int64_t samples;
  int64_t width;
  bool batch_first;
  bool has_lengths;
  Global<const int32_t> lengths;
  Global<const float> x;
  Global<float> to;

  SYNCLINE_DEVICE void operator()(int64_t i) const {
    const int64_t column = i % width;
    const int64_t n = i / width % samples;
    const int64_t time = i / width / samples;
    const bool is_there = !has_lengths || time < lengths[n];
    const int64_t row = batch_first ? n * steps + time : time * samples + n;
    float value = 0;
    if (is_there) value = x[row * width + column];
    to[i] = value;
  }
};

// dx [samples, steps, width] += d [steps, samples, width]
inline void AddSwapped(Stream& stream, const RecurrentShape& s, const float* d,
                       float* dx) {
  LaunchElements(
      stream, s.rows() * s.width,
      [steps = s.steps, samples = s.samples, width = s.width, d = OnDevice(d),
       dx = OnDevice(dx)] SYNCLINE_DEVICE(int64_t i) {
        const int64_t n = i / width % samples;
        const int64_t time = i / width / samples;
        dx[(n * steps + time) * width + i % width] += d[i];
      });
}

inline void SumBiases(Stream& stream, int64_t count, int64_t folded,
                      const float* bias, float* sums) {
  LaunchElements(stream, count,
                 [count, folded, bias = OnDevice(bias),
                  sums = OnDevice(sums)] SYNCLINE_DEVICE(int64_t i) {
                   sums[i] = bias[i] + (i < folded ? bias[count + i] : 0.0f);
                 });
}

inline void CheckLengths(Stream& stream, const RecurrentShape& s,
                         const RecurrentTensors& t) {
  LaunchElements(stream, s.samples,
                 [steps = s.steps, lengths = OnDevice(t.lengths),
                  errors = OnDevice(t.errors)] SYNCLINE_DEVICE(int64_t n) {
                   const int32_t length = lengths[n];
                   if (length < 0 || length > steps)
                     errors.Report(0, n, length);
                 });
}

// out[line] += the sum over rows of d, or of d * seen.
struct RowSumsBody {
  int64_t lines;
  int64_t stride;
  bool has_seen;
  int64_t seen_stride;
  Global<const float> d;
  Global<const float> seen;
  Global<float> out;

  template <typename Group>
  SYNCLINE_DEVICE void operator()(const Group& group, int64_t line,
                                  int64_t rows) const {
    double sum = 0;
    for (int64_t row = group.rank(); row < rows; row += group.size()) {
      const double value = static_cast<float>(d[row * stride + line]);
      double by = 1;
      if (has_seen) by = static_cast<float>(seen[row * seen_stride + line]);
      sum += value * by;
    }
    sum = group.Fold(sum, Plus());
    if (group.rank() == 0 && line < lines) {
      out[line] += static_cast<float>(sum);
    }
  }
};

inline void AddRowSums(Stream& stream, int64_t rows, int64_t lines,
                       const float* d, int64_t stride, const float* seen,
                       int64_t seen_stride, float* out) {
  if (rows == 0) return;
  LaunchLines(stream, lines, rows, /*are_adjacent=*/true,
              RowSumsBody{lines, stride, seen != nullptr, seen_stride,
                          OnDevice(d), OnDevice(seen), OnDevice(out)});
}

}  // namespace syncline::cuda

#endif  // SYNCLINE_KERNELS_CUDA_RECURRENT_ROWS_H_

#ifndef SYNCLINE_WORKER_DATA_FORMATS_DIGIT_DRAWING_H_
#define SYNCLINE_WORKER_DATA_FORMATS_DIGIT_DRAWING_H_

#include <array>
#include <cstdint>

#include "absl/types/span.h"

namespace syncline::worker {

inline constexpr int kDigitSide = 28;
inline constexpr int kDigitPixels = kDigitSide * kDigitSide;

// 0..9, each as likely as the others.
int DigitLabel(uint64_t seed, int64_t sample);

// Draws sample `sample` of the stream `seed`: a digit of DigitLabel's class in
// light ink on dark ground, with strokes that wobble, a random affine map,
// thickness and noise. A pure function, and the same bytes on every machine: it
// uses integers and single IEEE operations (+ - * / and square root), nothing
// from the mathematics library. About 8 us.
//   pixels  [kDigitPixels], row-major, 0..255
void DrawDigit(uint64_t seed, int64_t sample, absl::Span<uint8_t> pixels);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DATA_FORMATS_DIGIT_DRAWING_H_

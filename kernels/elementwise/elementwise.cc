#include "kernels/elementwise/elementwise.h"

#include "kernels/elementwise/binary_loop.h"
#include "kernels/elementwise/broadcast.h"
#include "kernels/elementwise/loop.h"

namespace syncline {

void Add(const Broadcast& s, const float* a, const float* b, float* y) {
  ApplyBinary(s, a, b, y, [](float p, float q) { return p + q; });
}

void Spread(const Broadcast& s, float scale, const float* b, float* y) {
  ForEachRow(s, [&](auto, auto sb, int64_t o, int64_t, int64_t ib) {
    Emit(s.inner, /*accumulate=*/false, y + o,
         [=](int64_t i) { return scale * b[ib + i * sb]; });
  });
}

void AddGradient(const Broadcast& s, Side side, float scale, const float* dy,
                 bool accumulate, float* dx) {
  BinaryGradient(s, side, accumulate, dx,
                 [=](int64_t o, int64_t, int64_t) { return scale * dy[o]; });
}

}  // namespace syncline

#ifndef SYNCLINE_KERNELS_BINARY_LOOP_H_
#define SYNCLINE_KERNELS_BINARY_LOOP_H_

// The loops of elementwise operations of two operands and of their gradients.

#include <algorithm>

#include "kernels/broadcast.h"
#include "kernels/elementwise.h"
#include "kernels/loop.h"

namespace syncline {

// y[o] = f(a[..], b[..]).
template <typename F>
void ApplyBinary(const Broadcast& s, const float* a, const float* b, float* y,
                 F f) {
  ForEachRow(s, [&](auto sa, auto sb, int64_t o, int64_t ia, int64_t ib) {
    SYNCLINE_INDEPENDENT_ITERATIONS
    for (int64_t i = 0; i < s.inner; ++i) {
      y[o + i] = f(a[ia + i * sa], b[ib + i * sb]);
    }
  });
}

// dx += sum of term(o, ia, ib) over the elements of the result that read the
// element of dx. The arguments are offsets into the result, a and b.
template <typename Term>
void AddUpGradient(const Broadcast& s, Side side, float* dx, Term term) {
  ForEachRow(s, [&](auto sa, auto sb, int64_t o, int64_t ia, int64_t ib) {
    const auto value = [&](int64_t i) {
      return term(o + i, ia + i * sa, ib + i * sb);
    };
    const bool moves = side == Side::kA ? sa == 1 : sb == 1;
    float* const x = dx + (side == Side::kA ? ia : ib);
    if (moves) {
      Emit(s.inner, /*accumulate=*/true, x, value);
    } else {
      *x += SumOf(s.inner, value);
    }
  });
}

// The same into dx, overwriting it unless `accumulate`.
template <typename Term>
void BinaryGradient(const Broadcast& s, Side side, bool accumulate, float* dx,
                    Term term) {
  const int64_t count = side == Side::kA ? s.a_count : s.b_count;
  if (count != s.count || accumulate) {
    if (!accumulate) std::fill_n(dx, count, 0.0f);
    AddUpGradient(s, side, dx, term);
    return;
  }
  // The operand is not repeated: every element is written once.
  ForEachRow(s, [&](auto sa, auto sb, int64_t o, int64_t ia, int64_t ib) {
    Emit(s.inner, /*accumulate=*/false, dx + o,
         [&](int64_t i) { return term(o + i, ia + i * sa, ib + i * sb); });
  });
}

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_BINARY_LOOP_H_

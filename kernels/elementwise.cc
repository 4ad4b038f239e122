#include "kernels/elementwise.h"

#include <algorithm>

#include "kernels/loop.h"

namespace syncline {
namespace {

template <typename F>
void Apply(const Broadcast& s, const float* a, const float* b, float* y, F f) {
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
void AddUp(const Broadcast& s, Side side, float* dx, Term term) {
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

template <typename Term>
void Gradient(const Broadcast& s, Side side, bool accumulate, float* dx,
              Term term) {
  const int64_t count = side == Side::kA ? s.a_count : s.b_count;
  if (count != s.count || accumulate) {
    if (!accumulate) std::fill_n(dx, count, 0.0f);
    AddUp(s, side, dx, term);
    return;
  }
  // The operand is not repeated: every element is written once.
  ForEachRow(s, [&](auto sa, auto sb, int64_t o, int64_t ia, int64_t ib) {
    Emit(s.inner, /*accumulate=*/false, dx + o,
         [&](int64_t i) { return term(o + i, ia + i * sa, ib + i * sb); });
  });
}

}  // namespace

void Add(const Broadcast& s, const float* a, const float* b, float* y) {
  Apply(s, a, b, y, [](float p, float q) { return p + q; });
}

void Subtract(const Broadcast& s, const float* a, const float* b, float* y) {
  Apply(s, a, b, y, [](float p, float q) { return p - q; });
}

void Multiply(const Broadcast& s, const float* a, const float* b, float* y) {
  Apply(s, a, b, y, [](float p, float q) { return p * q; });
}

void Divide(const Broadcast& s, const float* a, const float* b, float* y) {
  Apply(s, a, b, y, [](float p, float q) { return p / q; });
}

void Spread(const Broadcast& s, float scale, const float* b, float* y) {
  ForEachRow(s, [&](auto, auto sb, int64_t o, int64_t, int64_t ib) {
    Emit(s.inner, /*accumulate=*/false, y + o,
         [=](int64_t i) { return scale * b[ib + i * sb]; });
  });
}

void AddGradient(const Broadcast& s, Side side, float scale, const float* dy,
                 bool accumulate, float* dx) {
  Gradient(s, side, accumulate, dx,
           [=](int64_t o, int64_t, int64_t) { return scale * dy[o]; });
}

void MultiplyGradient(const Broadcast& s, Side side, const float* other,
                      const float* dy, bool accumulate, float* dx) {
  if (side == Side::kA) {
    Gradient(s, side, accumulate, dx,
             [=](int64_t o, int64_t, int64_t ib) { return dy[o] * other[ib]; });
  } else {
    Gradient(s, side, accumulate, dx,
             [=](int64_t o, int64_t ia, int64_t) { return dy[o] * other[ia]; });
  }
}

void DivideGradientA(const Broadcast& s, const float* b, const float* dy,
                     bool accumulate, float* da) {
  Gradient(s, Side::kA, accumulate, da,
           [=](int64_t o, int64_t, int64_t ib) { return dy[o] / b[ib]; });
}

void DivideGradientB(const Broadcast& s, const float* b, const float* y,
                     const float* dy, bool accumulate, float* db) {
  Gradient(s, Side::kB, accumulate, db, [=](int64_t o, int64_t, int64_t ib) {
    return -dy[o] * y[o] / b[ib];
  });
}

}  // namespace syncline

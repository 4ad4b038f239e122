#ifndef SYNCLINE_KERNELS_ELEMENTWISE_BINARY_LOOP_H_
#define SYNCLINE_KERNELS_ELEMENTWISE_BINARY_LOOP_H_

// The loops of elementwise operations of two operands and of their gradients.

#include <algorithm>
#include <type_traits>

#include "absl/types/span.h"
#include "kernels/elementwise/broadcast.h"
#include "kernels/elementwise/loop.h"
#include "kernels/elementwise/row_sums.h"

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

namespace binary_loop_internal {

// For an operand that loops around a row repeat seldom or never. Adds in order
// of the result.
template <typename Term>
void AddRows(const Broadcast& s, Side side, float* dx, Term term) {
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

// For an operand that moves along rows. Adds the rows up, so many columns at a
// time.
template <typename Sa, typename Sb, typename Term>
void AddUpRows(const Broadcast& s, Side side, const LoopsAround& loops, Sa sa,
               Sb sb, float* dx, Term term) {
  ForEachRound(loops.moving, [&](int64_t o, int64_t a, int64_t b) {
    for (int64_t c = 0; c < s.inner; c += ShortRowSums::kWidth) {
      ShortRowSums sums(std::min(ShortRowSums::kWidth, s.inner - c));
      ForEachRound(loops.repeated, [&](int64_t p, int64_t ra, int64_t rb) {
        const int64_t at = o + p + c;
        const int64_t ia = a + ra + c * sa;
        const int64_t ib = b + rb + c * sb;
        sums->Add(
            [=](int64_t i) { return term(at + i, ia + i * sa, ib + i * sb); });
      });
      sums->Write(/*accumulate=*/true, dx + (side == Side::kA ? a : b) + c);
    }
  });
}

// For an operand that moves in the loop around rows, each of which is one sum.
// Takes so many of its elements at a time, in order of the result.
template <typename Sa, typename Sb, typename Term>
void AddUpSums(const Broadcast& s, Side side, const LoopsAround& loops, Sa sa,
               Sb sb, float* dx, Term term) {
  constexpr int64_t kWidth = ShortRowSums::kWidth;
  absl::Span<const LoopsAround::Loop> others = loops.moving;
  LoopsAround::Loop last = {.count = 1};
  if (!others.empty()) {
    last = others.back();
    others.remove_suffix(1);
  }
  const int64_t stride = side == Side::kA ? last.a_stride : last.b_stride;
  ForEachRound(others, [&](int64_t o, int64_t a, int64_t b) {
    for (int64_t c = 0; c < last.count; c += kWidth) {
      const int64_t width = std::min(kWidth, last.count - c);
      double sums[kWidth];
      std::fill_n(sums, width, 0.0);
      ForEachRound(loops.repeated, [&](int64_t p, int64_t ra, int64_t rb) {
        for (int64_t j = 0; j < width; ++j) {
          const int64_t at = o + p + (c + j) * last.result_stride;
          const int64_t ia = a + ra + (c + j) * last.a_stride;
          const int64_t ib = b + rb + (c + j) * last.b_stride;
          sums[j] += SumOf(s.inner, [=](int64_t i) {
            return term(at + i, ia + i * sa, ib + i * sb);
          });
        }
      });
      float* const x = dx + (side == Side::kA ? a : b) + c * stride;
      for (int64_t j = 0; j < width; ++j) {
        x[j * stride] += static_cast<float>(sums[j]);
      }
    }
  });
}

}  // namespace binary_loop_internal

// dx += sum of term(o, ia, ib) over the elements of the result that read the
// element of dx. The arguments are offsets into the result, a and b. The error
// of a sum does not grow with its length (kernels/elementwise/row_sums.h).
template <typename Term>
void AddUpGradient(const Broadcast& s, Side side, float* dx, Term term) {
  const LoopsAround loops =
      side == Side::kA ? LoopsAroundA(s) : LoopsAroundB(s);
  int64_t rows = 1;
  for (const LoopsAround::Loop& loop : loops.repeated) rows *= loop.count;
  if (rows <= kRowBlock) {
    return binary_loop_internal::AddRows(s, side, dx, term);
  }
  const bool moves = side == Side::kA ? s.a_moves : s.b_moves;
  const auto run = [&](auto sa, auto sb) {
    if (moves) {
      binary_loop_internal::AddUpRows(s, side, loops, sa, sb, dx, term);
    } else {
      binary_loop_internal::AddUpSums(s, side, loops, sa, sb, dx, term);
    }
  };
  using Still = std::integral_constant<int64_t, 0>;
  using Moves = std::integral_constant<int64_t, 1>;
  if (s.a_moves && s.b_moves) {
    run(Moves(), Moves());
  } else if (s.a_moves) {
    run(Moves(), Still());
  } else if (s.b_moves) {
    run(Still(), Moves());
  } else {
    run(Still(), Still());
  }
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

#endif  // SYNCLINE_KERNELS_ELEMENTWISE_BINARY_LOOP_H_

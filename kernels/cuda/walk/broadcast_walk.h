#ifndef SYNCLINE_KERNELS_CUDA_WALK_BROADCAST_WALK_H_
#define SYNCLINE_KERNELS_CUDA_WALK_BROADCAST_WALK_H_

// Walks over the elements of a broadcast's result, and folds of those that read
// one element of an operand.

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/walk/block_fold.h"
#include "kernels/cuda/walk/split_lines.h"
#include "kernels/elementwise/broadcast_shape.h"

namespace syncline::cuda {

// Positions in the result and in the two arrays of a broadcast.
struct BroadcastPlace {
  int64_t result = 0;
  int64_t a = 0;
  int64_t b = 0;
};

// Index is unsigned, of 32 bits where all counts allow it: its divisions are
// several times as fast.
template <typename Index>
SYNCLINE_DEVICE BroadcastPlace PlaceOf(const Broadcast& s, int64_t element) {
  const Index inner = static_cast<Index>(s.inner);
  Index row = static_cast<Index>(element) / inner;
  const int64_t column = static_cast<Index>(element) - row * inner;
  BroadcastPlace place = {element, s.a_moves ? column : 0,
                          s.b_moves ? column : 0};
  for (size_t d = s.outer.size(); d-- > 0;) {
    const Broadcast::Loop& loop = s.outer[d];
    const Index next = row / static_cast<Index>(loop.count);
    const int64_t at = row - next * static_cast<Index>(loop.count);
    place.a += at * loop.a_stride;
    place.b += at * loop.b_stride;
    row = next;
  }
  return place;
}

template <typename Index, typename F>
struct BroadcastKernel {
  Broadcast shape;
  F f;

  SYNCLINE_DEVICE void operator()(int64_t i) const {
    f(PlaceOf<Index>(shape, i));
  }
};

inline bool Fits32Bits(int64_t count) {
  return count <= static_cast<int64_t>(UINT32_MAX);
}

// Calls f(place) for each element of the result, by one thread each.
template <typename F>
void LaunchBroadcast(Stream& stream, const Broadcast& s, const F& f) {
  if (Fits32Bits(s.count)) {
    LaunchElements(stream, s.count, BroadcastKernel<uint32_t, F>{s, f});
  } else {
    LaunchElements(stream, s.count, BroadcastKernel<uint64_t, F>{s, f});
  }
}

// The loops of a broadcast as an operand's elements see them: round k of
// `repeated` around element j of the operand.
struct OperandWalk {
  LoopsAround loops;  // the innermost one among them
  int64_t elements = 1;
  int64_t repeats = 1;
  bool moves = false;  // the operand, along the innermost loop
};
inline OperandWalk MakeOperandWalk(const Broadcast& s, Side side) {
  OperandWalk walk;
  walk.loops = side == Side::kA ? LoopsAroundA(s) : LoopsAroundB(s);
  walk.moves = side == Side::kA ? s.a_moves : s.b_moves;
  walk.elements = side == Side::kA ? s.a_count : s.b_count;
  (walk.moves ? walk.loops.moving : walk.loops.repeated)
      .push_back({.count = s.inner,
                  .result_stride = 1,
                  .a_stride = s.a_moves ? 1 : 0,
                  .b_stride = s.b_moves ? 1 : 0});
  for (const LoopsAround::Loop& loop : walk.loops.repeated) {
    walk.repeats *= loop.count;
  }
  return walk;
}

// Adds where round `k` of the loops is.
template <typename Index>
SYNCLINE_DEVICE void AddRound(const LoopsAround::Loops& loops, int64_t k,
                              BroadcastPlace& place) {
  Index left = static_cast<Index>(k);
  for (size_t d = loops.size(); d-- > 0;) {
    const LoopsAround::Loop& loop = loops[d];
    const Index next = left / static_cast<Index>(loop.count);
    const int64_t at = left - next * static_cast<Index>(loop.count);
    place.result += at * loop.result_stride;
    place.a += at * loop.a_stride;
    place.b += at * loop.b_stride;
    left = next;
  }
}

// A line for each element of the operand (split_lines.h).
template <typename Index, typename T, typename TermOf, typename F,
          typename FinishOf>
struct FoldRepeatedSource {
  using Value = T;
  using Place = BroadcastPlace;

  OperandWalk walk;
  T of_none;
  TermOf term;
  F fold;
  FinishOf finish;

  SYNCLINE_DEVICE T neutral() const { return of_none; }
  SYNCLINE_DEVICE BroadcastPlace At(int64_t line) const {
    BroadcastPlace first;
    AddRound<Index>(walk.loops.moving, line, first);
    return first;
  }
  SYNCLINE_DEVICE T TermAt(const BroadcastPlace& first, int64_t k) const {
    BroadcastPlace place = first;
    AddRound<Index>(walk.loops.repeated, k, place);
    return term(place);
  }
  SYNCLINE_DEVICE T Join(T a, T b) const { return fold(a, b); }
  SYNCLINE_DEVICE void Finish(const BroadcastPlace&, int64_t line,
                              T value) const {
    finish(line, value);
  }
};

// finish(j, value) for each element j of one operand, where value is the fold
// of term(place), a T of 4 or 8 bytes, over the elements of the result that
// read it; of none, `neutral`.
template <typename T, typename Term, typename F, typename Finish>
void FoldRepeated(Stream& stream, const Broadcast& s, Side side, T neutral,
                  const Term& term, const F& fold, const Finish& finish) {
  const OperandWalk walk = MakeOperandWalk(s, side);
  if (Fits32Bits(s.count)) {
    FoldLines(stream, walk.elements, walk.repeats, walk.moves,
              FoldRepeatedSource<uint32_t, T, Term, F, Finish>{
                  walk, neutral, term, fold, finish});
  } else {
    FoldLines(stream, walk.elements, walk.repeats, walk.moves,
              FoldRepeatedSource<uint64_t, T, Term, F, Finish>{
                  walk, neutral, term, fold, finish});
  }
}

template <typename Term>
struct WidenedTerm {
  Term term;

  SYNCLINE_DEVICE double operator()(const BroadcastPlace& place) const {
    return term(place);
  }
};

struct WriteGradient {
  bool accumulate;
  FloatArray dx;

  SYNCLINE_DEVICE void operator()(int64_t i, double value) const {
    const float sum = static_cast<float>(value);
    dx[i] = accumulate ? dx[i] + sum : sum;
  }
};

template <typename Term>
struct PlainGradient {
  Term term;
  WriteGradient write;

  SYNCLINE_DEVICE void operator()(const BroadcastPlace& place) const {
    write(place.result, term(place));
  }
};

// The gradient of one operand: the sum of term(place), float32, over where it
// was repeated, in float64, and rounded once. dx may be an array that term
// reads where the operand has the result's shape.
template <typename Term>
void AddUpGradient(Stream& stream, const Broadcast& s, Side side,
                   const Term& term, bool accumulate, Floats dx) {
  const WriteGradient write = {accumulate, OnDevice(dx)};
  if ((side == Side::kA ? s.a_count : s.b_count) == s.count) {
    LaunchBroadcast(stream, s, PlainGradient<Term>{term, write});
  } else {
    FoldRepeated(stream, s, side, 0.0, WidenedTerm<Term>{term}, Plus(), write);
  }
}

}  // namespace syncline::cuda

#endif  // SYNCLINE_KERNELS_CUDA_WALK_BROADCAST_WALK_H_

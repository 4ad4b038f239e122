#ifndef SYNCLINE_KERNELS_CUDA_WALK_STRIDED_WALK_H_
#define SYNCLINE_KERNELS_CUDA_WALK_STRIDED_WALK_H_

// Walks over a dense result along with arrays in strides, and sums of what
// comes to one place of such an array.

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/walk/broadcast_walk.h"
#include "kernels/cuda/walk/split_lines.h"
#include "kernels/elementwise/strided.h"

namespace syncline::cuda {

template <typename Index, size_t K, typename F>
struct StridedKernel {
  Strided<K> walk;
  F f;

  SYNCLINE_DEVICE void operator()(int64_t i) const {
    f(i, walk.template At<Index>(i));
  }
};

// Calls f(i, at) for each element of the result, by one thread each: at[k] is
// where in array k it is.
template <size_t K, typename F>
void LaunchStrided(Stream& stream, const Strided<K>& walk, const F& f) {
  if (Fits32Bits(walk.count())) {
    LaunchElements(stream, walk.count(),
                   StridedKernel<uint32_t, K, F>{walk, f});
  } else {
    LaunchElements(stream, walk.count(),
                   StridedKernel<uint64_t, K, F>{walk, f});
  }
}

// The loops of a walk that move one of its arrays, and the others, which are
// the terms of one of its elements. Array K is the dense result.
template <size_t K>
struct TermWalk {
  struct Loop {
    int64_t n = 1;
    int64_t strides[K + 1] = {};
  };
  using Loops = FixedList<Loop, Strided<K>::kLoopsMax>;
  struct Place {
    int64_t at[K + 1] = {};
  };

  Loops moving;
  Loops summed;
  Place begin;
  int64_t elements = 1;
  int64_t terms = 1;
  bool are_adjacent = false;

  template <typename Index>
  SYNCLINE_DEVICE static void AddRound(const Loops& loops, int64_t round,
                                       Place& place) {
    Index left = static_cast<Index>(round);
    for (size_t d = loops.size(); d-- > 0;) {
      const Loop& loop = loops[d];
      const Index next = left / static_cast<Index>(loop.n);
      const int64_t k = left - next * static_cast<Index>(loop.n);
      for (size_t i = 0; i <= K; ++i) place.at[i] += k * loop.strides[i];
      left = next;
    }
  }
};

template <size_t K>
TermWalk<K> MakeTermWalk(const Strided<K>& walk, size_t array) {
  TermWalk<K> split;
  for (size_t k = 0; k < K; ++k) split.begin.at[k] = walk.begin()[k];
  int64_t dense = walk.count();
  for (const auto& loop : walk.loops()) {
    typename TermWalk<K>::Loop whole;
    whole.n = loop.n;
    for (size_t k = 0; k < K; ++k) whole.strides[k] = loop.strides[k];
    dense /= loop.n;
    whole.strides[K] = dense;
    split.are_adjacent = loop.strides[array] != 0;
    if (split.are_adjacent) {
      split.moving.push_back(whole);
      split.elements *= loop.n;
    } else {
      split.summed.push_back(whole);
      split.terms *= loop.n;
    }
  }
  return split;
}

// A line for each element of the array (split_lines.h).
template <typename Index, size_t K, typename TermOf, typename FinishOf>
struct SumTermsSource {
  using Value = double;
  using Walk = TermWalk<K>;
  using Place = typename Walk::Place;

  Walk walk;
  TermOf term;
  FinishOf finish;

  SYNCLINE_DEVICE double neutral() const { return 0; }
  SYNCLINE_DEVICE Place At(int64_t line) const {
    Place first = walk.begin;
    Walk::template AddRound<Index>(walk.moving, line, first);
    return first;
  }
  SYNCLINE_DEVICE double TermAt(const Place& first, int64_t k) const {
    Place place = first;
    Walk::template AddRound<Index>(walk.summed, k, place);
    return term(place.at);
  }
  SYNCLINE_DEVICE double Join(double a, double b) const { return a + b; }
  SYNCLINE_DEVICE void Finish(const Place& first, int64_t, double sum) const {
    finish(first.at, sum);
  }
};

// finish(at, sum) for each element of `array` that the walk comes to, where sum
// is that of term(at) over all of the walk's elements there, in float64. `at`
// has the places in the K arrays, and then that in the dense result. REQUIRES:
// loops that move the array come to no place of it twice.
template <size_t K, typename Term, typename Finish>
void SumTerms(Stream& stream, const Strided<K>& walk, size_t array,
              const Term& term, const Finish& finish) {
  if (walk.count() == 0) return;
  const TermWalk<K> split = MakeTermWalk(walk, array);
  if (Fits32Bits(walk.count())) {
    FoldLines(stream, split.elements, split.terms, split.are_adjacent,
              SumTermsSource<uint32_t, K, Term, Finish>{split, term, finish});
  } else {
    FoldLines(stream, split.elements, split.terms, split.are_adjacent,
              SumTermsSource<uint64_t, K, Term, Finish>{split, term, finish});
  }
}

}  // namespace syncline::cuda

#endif  // SYNCLINE_KERNELS_CUDA_WALK_STRIDED_WALK_H_

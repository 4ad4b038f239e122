#ifndef SYNCLINE_KERNELS_ELEMENTWISE_BROADCAST_H_
#define SYNCLINE_KERNELS_ELEMENTWISE_BROADCAST_H_

#include <cstdint>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/elementwise/broadcast_shape.h"

namespace syncline {

// Shape of the result. Errors: InvalidArgument: the shapes do not fit.
absl::StatusOr<std::vector<int64_t>> BroadcastDims(absl::Span<const int64_t> a,
                                                   absl::Span<const int64_t> b);
// Errors: as above.
absl::StatusOr<Broadcast> MakeBroadcast(absl::Span<const int64_t> a,
                                        absl::Span<const int64_t> b);
// The same under a result that may be larger than both arrays. REQUIRES: both
// are broadcast to `out`.
Broadcast MakeBroadcastUnder(absl::Span<const int64_t> a,
                             absl::Span<const int64_t> b,
                             absl::Span<const int64_t> out);

// Part of a result: elements [begin, end) of its outermost loop, and where that
// begins in each array.
struct BroadcastPart {
  Broadcast shape;
  int64_t result = 0, a = 0, b = 0;
};
// Length of the outermost loop.
int64_t OutermostCount(const Broadcast& s);
BroadcastPart PartOf(const Broadcast& s, int64_t begin, int64_t end);

// Calls visit(o, ia, ib) with the offsets of each round of `loops`, in order.
template <typename Visit>
void ForEachRound(absl::Span<const LoopsAround::Loop> loops, Visit visit);

// Calls row(sa, sb, o, ia, ib) for every innermost loop, in order of the
// result: element i of it is result[o + i], a[ia + i * sa], b[ib + i * sb].
// sa and sb are integral constants 0 or 1, so each case is compiled on its own.
template <typename Row>
void ForEachRow(const Broadcast& s, Row row);

// Implementation.

namespace broadcast_internal {

template <typename Row>
void ForEachOuter(const Broadcast& s, Row row) {
  int64_t index[Broadcast::kLoopsMax] = {};
  int64_t a = 0;
  int64_t b = 0;
  for (int64_t o = 0; o < s.count; o += s.inner) {
    row(o, a, b);
    for (size_t d = s.outer.size(); d-- > 0;) {
      const Broadcast::Loop& loop = s.outer[d];
      a += loop.a_stride;
      b += loop.b_stride;
      if (++index[d] < loop.count) break;
      index[d] = 0;
      a -= loop.count * loop.a_stride;
      b -= loop.count * loop.b_stride;
    }
  }
}

}  // namespace broadcast_internal

template <typename Visit>
void ForEachRound(absl::Span<const LoopsAround::Loop> loops, Visit visit) {
  int64_t index[Broadcast::kLoopsMax] = {};
  int64_t rounds = 1;
  for (const LoopsAround::Loop& loop : loops) rounds *= loop.count;
  int64_t o = 0, a = 0, b = 0;
  for (int64_t round = 0; round < rounds; ++round) {
    visit(o, a, b);
    for (size_t d = loops.size(); d-- > 0;) {
      const LoopsAround::Loop& loop = loops[d];
      o += loop.result_stride;
      a += loop.a_stride;
      b += loop.b_stride;
      if (++index[d] < loop.count) break;
      index[d] = 0;
      o -= loop.count * loop.result_stride;
      a -= loop.count * loop.a_stride;
      b -= loop.count * loop.b_stride;
    }
  }
}

template <typename Row>
void ForEachRow(const Broadcast& s, Row row) {
  using Still = std::integral_constant<int64_t, 0>;
  using Moves = std::integral_constant<int64_t, 1>;
  const auto run = [&](auto sa, auto sb) {
    broadcast_internal::ForEachOuter(
        s, [&](int64_t o, int64_t a, int64_t b) { row(sa, sb, o, a, b); });
  };
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

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_ELEMENTWISE_BROADCAST_H_

#include "kernels/elementwise/broadcast.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"

namespace syncline {
namespace {

// Dimension `d` counted from the last one; missing ones are 1.
int64_t FromRight(absl::Span<const int64_t> dims, size_t d) {
  return d < dims.size() ? dims[dims.size() - 1 - d] : 1;
}

LoopsAround Around(const Broadcast& s, int64_t Broadcast::Loop::*stride) {
  LoopsAround loops;
  int64_t result_stride = s.inner;
  for (size_t d = s.outer.size(); d-- > 0;) {
    const Broadcast::Loop& loop = s.outer[d];
    auto& list = loop.*stride != 0 ? loops.moving : loops.repeated;
    list.push_front({loop.count, result_stride, loop.a_stride, loop.b_stride});
    result_stride *= loop.count;
  }
  return loops;
}

}  // namespace

LoopsAround LoopsAroundA(const Broadcast& s) {
  return Around(s, &Broadcast::Loop::a_stride);
}

LoopsAround LoopsAroundB(const Broadcast& s) {
  return Around(s, &Broadcast::Loop::b_stride);
}

absl::StatusOr<std::vector<int64_t>> BroadcastDims(
    absl::Span<const int64_t> a, absl::Span<const int64_t> b) {
  const size_t rank = std::max(a.size(), b.size());
  std::vector<int64_t> out(rank);
  for (size_t d = 0; d < rank; ++d) {
    const int64_t x = FromRight(a, d);
    const int64_t y = FromRight(b, d);
    if (x != y && x != 1 && y != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("shapes [", absl::StrJoin(a, ","), "] and [",
                       absl::StrJoin(b, ","), "] do not broadcast"));
    }
    out[rank - 1 - d] = x == 1 ? y : x;
  }
  return out;
}

absl::StatusOr<Broadcast> MakeBroadcast(absl::Span<const int64_t> a,
                                        absl::Span<const int64_t> b) {
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<int64_t> out,
                            BroadcastDims(a, b));
  return MakeBroadcastUnder(a, b, out);
}

Broadcast MakeBroadcastUnder(absl::Span<const int64_t> a,
                             absl::Span<const int64_t> b,
                             absl::Span<const int64_t> out) {
  Broadcast s;
  // Innermost first; neighbours in which both arrays behave alike are one loop.
  struct Run {
    int64_t count;
    bool a_moves, b_moves;
  };
  FixedList<Run, Broadcast::kLoopsMax> runs;
  for (size_t d = 0; d < out.size(); ++d) {
    const int64_t n = FromRight(out, d);
    s.a_count *= FromRight(a, d);
    s.b_count *= FromRight(b, d);
    s.count *= n;
    if (n == 1) continue;
    const bool a_moves = FromRight(a, d) != 1;
    const bool b_moves = FromRight(b, d) != 1;
    if (!runs.empty() && runs.back().a_moves == a_moves &&
        runs.back().b_moves == b_moves) {
      runs.back().count *= n;
    } else {
      runs.push_back({n, a_moves, b_moves});
    }
  }
  if (runs.empty()) runs.push_back({1, true, true});
  s.inner = runs[0].count;
  s.a_moves = runs[0].a_moves;
  s.b_moves = runs[0].b_moves;
  int64_t a_stride = s.a_moves ? s.inner : 1;
  int64_t b_stride = s.b_moves ? s.inner : 1;
  for (size_t i = 1; i < runs.size(); ++i) {
    const Run& run = runs[i];
    s.outer.push_front(
        {run.count, run.a_moves ? a_stride : 0, run.b_moves ? b_stride : 0});
    if (run.a_moves) a_stride *= run.count;
    if (run.b_moves) b_stride *= run.count;
  }
  return s;
}

int64_t OutermostCount(const Broadcast& s) {
  return s.outer.empty() ? s.inner : s.outer[0].count;
}

BroadcastPart PartOf(const Broadcast& s, int64_t begin, int64_t end) {
  BroadcastPart part = {.shape = s};
  const int64_t whole = OutermostCount(s);
  const Broadcast::Loop loop =
      s.outer.empty() ? Broadcast::Loop{whole, s.a_moves, s.b_moves}
                      : s.outer[0];
  if (s.outer.empty()) {
    part.shape.inner = end - begin;
  } else {
    part.shape.outer[0].count = end - begin;
  }
  const auto share = [&](int64_t count) {
    return count / whole * (end - begin);
  };
  part.shape.count = share(s.count);
  if (loop.a_stride != 0) part.shape.a_count = share(s.a_count);
  if (loop.b_stride != 0) part.shape.b_count = share(s.b_count);
  part.result = s.count / whole * begin;
  part.a = loop.a_stride * begin;
  part.b = loop.b_stride * begin;
  return part;
}

}  // namespace syncline

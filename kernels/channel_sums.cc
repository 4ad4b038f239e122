#include "kernels/channel_sums.h"

#include <algorithm>

#include "kernels/elementwise/loop.h"
#include "kernels/elementwise/row_sums.h"
#include "kernels/threads.h"

namespace syncline {
namespace {

// Channels that are added up at a time; a multiple of every block.
constexpr int64_t kChannelsAtOnce = 256;

// Adds planes of channels [begin, begin + count) of a sample to `totals`.
void AddPlanes(const ChannelPlanes& s, const float* x, int64_t count,
               double* totals) {
  for (int64_t c = 0; c < count; ++c, x += s.plane) {
    totals[c] += SumOf(s.plane, [=](int64_t i) { return x[i]; });
  }
}

template <int64_t kBlock>
void AddTiles(const ChannelPlanes& s, const float* x, int64_t count,
              double* totals) {
  for (int64_t c = 0; c < count; c += kBlock, x += s.plane * kBlock) {
    float sums[kBlock];
    SumTile<kBlock>(
        s.plane, [=](int64_t i, int64_t) { return x[i]; }, sums);
    for (int64_t j = 0; j < kBlock; ++j) totals[c + j] += sums[j];
  }
}

void SumSome(const ChannelPlanes& s, const float* x, int64_t begin,
             int64_t count, bool accumulate, float* sums) {
  double totals[kChannelsAtOnce] = {};
  x += begin * s.plane;
  for (int64_t n = 0; n < s.batch; ++n, x += s.channels * s.plane) {
    switch (s.block) {
      case 16:
        AddTiles<16>(s, x, count, totals);
        break;
      case 8:
        AddTiles<8>(s, x, count, totals);
        break;
      default:
        AddPlanes(s, x, count, totals);
    }
  }
  Emit(count, accumulate, sums + begin,
       [&](int64_t c) { return static_cast<float>(totals[c]); });
}

}  // namespace

void SumChannels(const ChannelPlanes& s, const float* x, bool accumulate,
                 float* sums) {
  ParallelForRows(s.channels / s.block, s.batch * s.plane * s.block,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t c = begin * s.block; c < end * s.block;
                         c += kChannelsAtOnce) {
                      SumSome(s, x, c,
                              std::min(kChannelsAtOnce, end * s.block - c),
                              accumulate, sums);
                    }
                  });
}

}  // namespace syncline

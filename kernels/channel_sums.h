#ifndef SYNCLINE_KERNELS_CHANNEL_SUMS_H_
#define SYNCLINE_KERNELS_CHANNEL_SUMS_H_

// Sums of an array by channel: the gradient of a bias that is added to whole
// planes, as a convolution's is.

#include <cstdint>

namespace syncline {

// An array [batch, channels, plane], float32, row-major; or, with a block,
// [batch, channels / block, plane, block].
struct ChannelPlanes {
  int64_t batch = 0;
  int64_t channels = 0;
  int64_t plane = 0;
  int64_t block = 1;  // 1, 8 or 16; divides `channels`
};

// sums[c] = the sum of channel c of x, over batch and plane, or +=. The error
// does not grow with their size (kernels/elementwise/row_sums.h). Uses the
// threads of the calling thread (kernels/threads.h), on whose number no bit
// depends.
void SumChannels(const ChannelPlanes& shape, const float* x, bool accumulate,
                 float* sums);

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_CHANNEL_SUMS_H_

#ifndef SYNCLINE_KERNELS_ELEMENTWISE_PHILOX_H_
#define SYNCLINE_KERNELS_ELEMENTWISE_PHILOX_H_

#include <cstdint>

#include "kernels/elementwise/host_device.h"

namespace syncline {

// Philox4x32-10: a counter-based generator, for the compiler of each device.
// Its numbers are a function of key and counter alone, so any thread of any
// device can have the n-th ones without those before.
// Source: Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011.
struct Philox {
  struct Key {
    uint32_t word[2];
  };
  // Of a counter and of what is drawn with it.
  struct Block {
    uint32_t word[4];
  };

  SYNCLINE_HOST_DEVICE static constexpr Block Draw(Block counter, Key key) {
    for (int round = 0; round < 10; ++round) {
      const uint64_t left = uint64_t{0xd2511f53u} * counter.word[0];
      const uint64_t right = uint64_t{0xcd9e8d57u} * counter.word[2];
      counter = {
          {static_cast<uint32_t>(right >> 32) ^ counter.word[1] ^ key.word[0],
           static_cast<uint32_t>(right),
           static_cast<uint32_t>(left >> 32) ^ counter.word[3] ^ key.word[1],
           static_cast<uint32_t>(left)}};
      key.word[0] += 0x9e3779b9u;
      key.word[1] += 0xbb67ae85u;
    }
    return counter;
  }
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_ELEMENTWISE_PHILOX_H_

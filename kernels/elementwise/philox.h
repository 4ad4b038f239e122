#ifndef SYNCLINE_KERNELS_ELEMENTWISE_PHILOX_H_
#define SYNCLINE_KERNELS_ELEMENTWISE_PHILOX_H_

#include <cstdint>

#include "kernels/elementwise/host_device.h"

namespace syncline {

// Philox4x32-10: random numbers that are a function of a key and a counter, so
// that whoever needs a number computes it, in any order and on any device.
// Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
//
// The numbers of a key are a sequence of 32-bit words. Block b has the words
// 4 * b to 4 * b + 3.
struct PhiloxBlock {
  uint32_t words[4];
};

// One round: a bijection of the block under the round's key.
SYNCLINE_HOST_DEVICE constexpr PhiloxBlock PhiloxRound(const PhiloxBlock& x,
                                                       uint32_t key0,
                                                       uint32_t key1) {
  const uint64_t a = uint64_t{0xD2511F53} * x.words[0];
  const uint64_t b = uint64_t{0xCD9E8D57} * x.words[2];
  return {{static_cast<uint32_t>(b >> 32) ^ x.words[1] ^ key0,
           static_cast<uint32_t>(b),
           static_cast<uint32_t>(a >> 32) ^ x.words[3] ^ key1,
           static_cast<uint32_t>(a)}};
}

inline constexpr int kPhiloxRounds = 10;
inline constexpr uint32_t kPhiloxStep0 = 0x9E3779B9;  // of the keys of rounds
inline constexpr uint32_t kPhiloxStep1 = 0xBB67AE85;

SYNCLINE_HOST_DEVICE constexpr PhiloxBlock Philox(PhiloxBlock counter,
                                                  uint32_t key0,
                                                  uint32_t key1) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    counter = PhiloxRound(counter, key0, key1);
    key0 += kPhiloxStep0;
    key1 += kPhiloxStep1;
  }
  return counter;
}

// Block `index` of the words of `seed`.
SYNCLINE_HOST_DEVICE constexpr PhiloxBlock PhiloxBlockOf(uint64_t seed,
                                                         uint64_t index) {
  return Philox({{static_cast<uint32_t>(index),
                  static_cast<uint32_t>(index >> 32), 0, 0}},
                static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
}

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_ELEMENTWISE_PHILOX_H_

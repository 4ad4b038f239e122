#ifndef SYNCLINE_KERNELS_CUDA_ATTENTION_MASK_H_
#define SYNCLINE_KERNELS_CUDA_ATTENTION_MASK_H_

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cuda/language.h"

namespace syncline::cuda {

// The scores of a round, as kernels read them, [heads, queries, keys].
struct RoundScores {
  int64_t first = 0;  // head, of all samples'
  int64_t heads_of_sample = 0;
  int64_t queries = 0;
  int64_t keys = 0;
  int64_t past = 0;
  bool causal = false;

  SYNCLINE_DEVICE int64_t SampleOf(int64_t line) const {
    return (first + line / queries) / heads_of_sample;
  }
  SYNCLINE_DEVICE int64_t HeadOf(int64_t line) const {
    return (first + line / queries) % heads_of_sample;
  }
};

// A mask as a kernel has it.
struct DeviceMask {
  bool adds = false;
  bool marks = false;
  bool hides = false;
  bool counts = false;
  float hidden = 0;
  int64_t batch = 0, head = 0, row = 0, column = 0;
  int64_t columns = 0;
  Global<const float> added;
  Global<const uint8_t> seen;
  Global<const int64_t> keys;

  // Where the mask of a query begins.
  SYNCLINE_DEVICE int64_t At(int64_t sample, int64_t head_of_sample,
                             int64_t query) const {
    return sample * batch + head_of_sample * head + query * row;
  }
  SYNCLINE_DEVICE int64_t At(const RoundScores& r, int64_t line) const {
    return At(r.SampleOf(line), r.HeadOf(line), line % r.queries);
  }
  // How many of the first keys the query may see: not fewer than the query
  // before it.
  SYNCLINE_DEVICE int64_t KeysFor(const RoundScores& r, int64_t line) const {
    return KeysFor(r, r.SampleOf(line), line % r.queries);
  }
  SYNCLINE_DEVICE int64_t KeysFor(const RoundScores& r, int64_t sample,
                                  int64_t query) const {
    int64_t n = columns < r.keys ? columns : r.keys;
    if (counts) {
      int64_t count = keys[sample];
      count = count < 0 ? 0 : count;
      count = count > r.keys ? r.keys : count;
      n = count < n ? count : n;
    }
    if (r.causal) {
      const int64_t seen_keys = r.past + query + 1;
      n = seen_keys < n ? seen_keys : n;
    }
    return n < 0 ? 0 : n;
  }
  SYNCLINE_DEVICE bool Hides(int64_t at) const {
    return marks && (seen[at] != 0) == hides;
  }
};

inline DeviceMask MaskOnDevice(const Attention::Mask& mask) {
  DeviceMask m;
  m.adds = mask.added != nullptr;
  m.marks = !m.adds && mask.seen != nullptr;
  m.hides = mask.hides;
  m.counts = mask.keys != nullptr;
  m.hidden = mask.hidden;
  m.batch = mask.batch;
  m.head = mask.head;
  m.row = mask.row;
  m.column = mask.column;
  m.columns = mask.columns;
  m.added = OnDevice(mask.added);
  m.seen = OnDevice(mask.seen);
  m.keys = OnDevice(mask.keys);
  return m;
}

}  // namespace syncline::cuda

#endif  // SYNCLINE_KERNELS_CUDA_ATTENTION_MASK_H_

#ifndef SYNCLINE_WORKER_PEERS_COMPRESSED_SUMS_H_
#define SYNCLINE_WORKER_PEERS_COMPRESSED_SUMS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/wire/block_map.h"
#include "worker/exchange/gradient_compressor.h"
#include "worker/peers/block_owners.h"
#include "worker/peers/compressed_bucket.h"

namespace syncline::worker {

// The sums of gradients on their way back to all ranks (ALL_REDUCE, HYBRID) in
// 8 bits an element, those of 1-bit Adam in signs. Their owner adds what the
// sums before have lost, and applies what it sends, so all ranks have the same
// values. With compressed gradients that is compression with error feedback on
// both ways. Source: Tang et al. 2019, "DoubleSqueeze".
//
// A sum that is not finite stays whole, as do running means. The bits depend on
// the job alone: blocks are cut and compressed as they are for any number of
// ranks.
//
// The parts for this rank and for others: one thread each.
class CompressedSums {
 public:
  // `of_job`: how gradients are compressed. `map` and `buckets` outlive this.
  CompressedSums(const GradientCompressor::Options& of_job, const BlockMap* map,
                 absl::Span<const Bucket> buckets, uint32_t rank);

  // Bytes of a rank: what its own sums have lost and their encoding, and the
  // encoding of the others'.
  static uint64_t MemoryBytes(const GradientCompressor::Options& of_job,
                              const BlockMap& map, uint32_t rank);

  // --- Of the own buckets ---

  // `sum` becomes what is sent of it. `samples` > 0: in it.
  void Compress(uint32_t block, absl::Span<float> sum, int64_t clock,
                uint64_t samples);
  // The step of `clock` was skipped: what is kept is as it was before.
  void Undo(int64_t clock);
  // The blocks of a bucket for the step of `clock`; they and their sizes() stay
  // until the next step. A block whose sum was not compressed in it, because no
  // gradient was left, is sent as zeros.
  LeavingBucket Leave(uint32_t bucket, int64_t clock);
  absl::Span<const uint32_t> sizes(uint32_t bucket) const {
    return sizes_out_[bucket];
  }

  // --- Of the others' ---

  ComingBucket& From(uint32_t bucket) { return arrivals_[bucket]; }

 private:
  static constexpr uint32_t kNotOwn = ~uint32_t{0};

  const BlockMap& map_;
  const absl::Span<const Bucket> buckets_;
  std::vector<uint32_t> own_;  // by block: the compressor's tensor and block
  GradientCompressor compressor_;
  std::vector<int64_t> clocks_;  // by own block: of its last sum
  std::vector<std::vector<uint32_t>> sizes_out_;  // by bucket
  std::vector<ComingBucket> arrivals_;            // by bucket
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_PEERS_COMPRESSED_SUMS_H_

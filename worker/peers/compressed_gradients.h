#ifndef SYNCLINE_WORKER_PEERS_COMPRESSED_GRADIENTS_H_
#define SYNCLINE_WORKER_PEERS_COMPRESSED_GRADIENTS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/update/float_source.h"
#include "common/wire/block_map.h"
#include "kernels/optimizer/finite.h"
#include "worker/collectives/peer_transport.h"
#include "worker/exchange/dense_tensors.h"
#include "worker/exchange/gradient_compressor.h"
#include "worker/peers/block_owners.h"
#include "worker/peers/compressed_bucket.h"

namespace syncline::worker {

// `options` with the running means of `tensors`, where they name none.
GradientCompressor::Options WithRunningMeans(
    GradientCompressor::Options options, const DenseTensors& tensors);

// The gradients of a job without ps, compressed: this rank's for the others'
// buckets, and the others' for its own.
//
// A gradient is compressed as it would be on its way to a ps, so its bits are
// the same. PeerExchange sends and receives what is described here.
//
// The parts for this rank and for others: one thread each.
class CompressedGradients {
 public:
  struct Options {
    GradientCompressor::Options compressor;
    // A step has this norm at most: each rank's gradient is scaled down before
    // it is compressed (GradientCompressor::Clip). It takes the whole gradient
    // to know its norm. 0: any.
    double clip_norm = 0;
    OnNonFinite on_non_finite = OnNonFinite::kFailJob;
  };
  // `map`, `buckets` and `tensors` outlive this. REQUIRES: compression is any.
  CompressedGradients(Options options, const BlockMap* map,
                      absl::Span<const Bucket> buckets,
                      const DenseTensors* tensors);

  // Bytes of the others' gradients that a rank has at a time, at most.
  static uint64_t ReceivedBytes(const GradientCompressor::Options& options,
                                const BlockMap& map, uint32_t rank);

  // --- This rank's ---

  // No gradient is compressed before all are there, and Clip was called.
  bool needs_all() const { return options_.clip_norm > 0; }
  // Errors: FailedPrecondition: the job fails at a gradient that is not finite.
  absl::Status Clip(int64_t clock, uint64_t samples);
  void Compress(uint32_t tensor, absl::Span<const float> gradient,
                int64_t clock, uint64_t samples);
  // The step of `clock` was skipped: what is kept is as it was before.
  void Undo(int64_t clock);
  // With what is kept. Between steps.
  const GradientCompressor& compressor() const { return compressor_; }

  // The two messages of a bucket. Their memory stays until the next step.
  struct Message {
    ConstPeerMemory sizes;
    LeavingBucket blocks;
  };
  // REQUIRES: its tensors are compressed, and another rank owns it.
  Message MessageOf(uint32_t bucket);
  // Of an own bucket, as an owner would have it from another rank. Reads that
  // memory.
  std::shared_ptr<const FloatSource> OwnSource(uint32_t bucket) const;

  // --- The others', of the buckets that this rank owns ---

  ComingBucket& From(uint32_t rank, uint32_t bucket) {
    return arrivals_[rank][bucket];
  }

 private:
  size_t CountOf(uint32_t block) const {
    return static_cast<size_t>(map_.blocks()[block].count);
  }

  const Options options_;
  const BlockMap& map_;
  const absl::Span<const Bucket> buckets_;
  const DenseTensors& tensors_;
  GradientCompressor compressor_;
  std::vector<std::vector<uint32_t>> sizes_out_;     // by bucket
  std::vector<std::vector<ComingBucket>> arrivals_;  // by rank, by bucket
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_PEERS_COMPRESSED_GRADIENTS_H_

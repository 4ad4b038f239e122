#ifndef SYNCLINE_WORKER_PEERS_PEER_MESSAGES_H_
#define SYNCLINE_WORKER_PEERS_PEER_MESSAGES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/aligned_buffer.h"
#include "common/base/crc32c.h"
#include "common/base/element_type.h"
#include "common/update/float_source.h"
#include "common/wire/block_map.h"
#include "worker/collectives/peer_transport.h"
#include "worker/exchange/dense_tensors.h"
#include "worker/peers/block_owners.h"
#include "worker/peers/step_reduction.h"

namespace syncline::worker {

// The parts of PeerExchange's messages: fixed layouts in the byte order of this
// machine, which all ranks share, as floats do.

// Of kFacts, kInitHead and kCounts.
struct FactsMessage {
  uint64_t layout_hash = 0;  // what all ranks must agree on
  uint64_t number = 0;       // samples; kInitHead: clocks of the job
  uint64_t abandoned = 0;    // 0 or 1
  uint64_t dropped = 0;      // blocks that the sender has found
  // The chief's: behind this step each rank writes its part of the checkpoint
  // of this cut. 0: none.
  uint64_t checkpoint_cut = 0;
  // The chief's: behind this step the strategy or the wire type may change, at
  // this cut, to this strategy (1 + TrainingRegime::Strategy) and this type
  // (ElementType). 0: they do not.
  uint64_t switch_cut = 0;
  uint32_t switch_to = 0;
  uint32_t switch_type = 0;
  // The chief's, where values are at their owners alone: behind this step each
  // rank sends it what it owns. 0 or 1.
  uint64_t wants_values = 0;
};

// Of kCheckpointPart: what has become of a rank's part of a checkpoint.
struct PartMessage {
  static constexpr size_t kTextBytesMax = 1023;
  uint64_t bytes = 0;   // of its file
  uint32_t crc32c = 0;  // of its file
  int32_t code = 0;     // not 0: it has failed
  // Has no blocks, so there is no file. 0 or 1.
  uint64_t is_empty = 0;
  uint64_t reserved[5] = {};
  char text[kTextBytesMax + 1] = {};  // of the failure; ends with a zero
};

// A payload of floats in memory of this rank.
class FloatPayload final : public FloatSource {
 public:
  explicit FloatPayload(const float* values) : values_(values) {}
  void CopyTo(size_t first, size_t count, float* out) const override {
    std::copy_n(values_ + first, count, out);
  }

 private:
  const float* const values_;
};

// Payloads in memory begin at cache lines.
inline size_t AlignedElements(size_t elements) {
  constexpr size_t kLine = kCacheLineBytes / sizeof(float);
  return (elements + kLine - 1) / kLine * kLine;
}

// Elements that the BlockSums of a bucket take in front of its sums.
inline size_t SumsElements(const Bucket& bucket) {
  return AlignedElements(bucket.blocks.size() *
                         sizeof(StepReduction::BlockSum) / sizeof(float));
}

template <typename T>
ConstPeerMemory BytesOfAll(absl::Span<const T> values) {
  return {reinterpret_cast<const uint8_t*>(values.data()),
          values.size() * sizeof(T)};
}
template <typename T>
PeerMemory WritableBytesOfAll(absl::Span<T> values) {
  return {reinterpret_cast<uint8_t*>(values.data()), values.size() * sizeof(T)};
}

// Adds a piece; a neighbour in memory of the last one becomes part of it.
inline void AddMerged(const ConstPeerMemory& piece,
                      std::vector<ConstPeerMemory>* merged) {
  if (!merged->empty() &&
      merged->back().data + merged->back().size == piece.data) {
    merged->back().size += piece.size;
  } else {
    merged->push_back(piece);
  }
}

// The pieces, one after the other.
inline std::vector<ConstPeerMemory> Merged(
    absl::Span<const absl::Span<const float>> pieces) {
  std::vector<ConstPeerMemory> merged;
  for (const absl::Span<const float> piece : pieces) {
    AddMerged(BytesOfAll(piece), &merged);
  }
  return merged;
}

// A bucket's values in the tensors that they are of, in its payload's order.
inline std::vector<ConstPeerMemory> ValuesOf(const BlockMap& map,
                                             const Bucket& bucket,
                                             const DenseTensors& tensors) {
  std::vector<absl::Span<const float>> pieces;
  for (const uint32_t id : bucket.blocks) {
    const Block& block = map.blocks()[id];
    pieces.push_back(absl::MakeConstSpan(tensors.values[block.tensor])
                         .subspan(static_cast<size_t>(block.offset),
                                  static_cast<size_t>(block.count)));
  }
  return Merged(pieces);
}

// Puts bytes of that payload, from byte `offset` of it on, to where
// values_of(tensor) says that a tensor's values begin. Elements of 16 bits go
// into the second half of their block's place, where WidenInPlace takes them.
template <typename ValuesOfTensor>
void StoreValuesAt(const BlockMap& map, const Bucket& bucket, ElementType type,
                   ValuesOfTensor values_of, size_t offset,
                   absl::Span<const uint8_t> bytes) {
  const size_t size = ElementBytes(type);
  while (!bytes.empty()) {
    const size_t element = offset / size;
    const auto behind =
        std::upper_bound(bucket.offsets.begin(), bucket.offsets.end(), element);
    const size_t i = static_cast<size_t>(behind - bucket.offsets.begin()) - 1;
    const Block& block = map.blocks()[bucket.blocks[i]];
    const size_t in_block = offset - bucket.offsets[i] * size;
    const auto elements = static_cast<size_t>(block.count);
    const size_t count = std::min(bytes.size(), elements * size - in_block);
    float* const to = values_of(block.tensor) + block.offset;
    std::memcpy(reinterpret_cast<uint8_t*>(to) +
                    elements * (sizeof(float) - size) + in_block,
                bytes.data(), count);
    bytes.remove_prefix(count);
    offset += count;
  }
}

// The same, into the tensors.
inline void StoreValues(const BlockMap& map, const Bucket& bucket,
                        const DenseTensors& tensors, size_t offset,
                        absl::Span<const uint8_t> bytes) {
  StoreValuesAt(
      map, bucket, ElementType::kFloat32,
      [&](uint32_t tensor) { return tensors.values[tensor].data(); }, offset,
      bytes);
}

// Of what all ranks, and the evaluator, must agree on. `extra`: what else the
// strategy has.
inline uint64_t LayoutHash(const BlockMap& map,
                           absl::Span<const Bucket> buckets,
                           absl::string_view extra) {
  std::string text = absl::StrCat(extra, " ", map.element_count());
  for (const Bucket& bucket : buckets) {
    absl::StrAppend(&text, ";", bucket.owner, ":",
                    absl::StrJoin(bucket.blocks, ","));
  }
  return (uint64_t{Crc32c(text)} << 32) | (text.size() & 0xffffffff);
}

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_PEERS_PEER_MESSAGES_H_

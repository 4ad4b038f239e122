#ifndef SYNCLINE_SERVER_SHARD_SENT_VALUES_H_
#define SYNCLINE_SERVER_SHARD_SENT_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/aligned_buffer.h"
#include "common/system/memory_claim.h"

namespace syncline::ps {

// The values that workers train with in a job whose values come back compressed
// (CompressionSpec.values, PARAMETER_SERVER in SYNC). The shard's own are
// whole; what it sends of a block at clock c is what the block's own values at
// c differ by from what was sent before, in 8 bits an element:
//
//   change(c) = int8(own(c) - sent(c - 1));  sent(c) = sent(c - 1) + change(c)
//
// Where nothing was sent at c - 1, sent(c) = own(c), and there is no change. So
// what rounding has lost is in the next change (error feedback), and every
// worker that has followed has sent(c), bit for bit. Source: Tang et al. 2019,
// "DoubleSqueeze", which has the same on the way back of sums.
//
// A worker that has not followed reads sent(c) whole. The first read of a block
// at a clock makes the change, whoever reads.
//
// Threads: every method touches one block. Calls for different blocks may run
// at the same time; those for one block may not. Nothing blocks.
class SentValues {
 public:
  // `counts`: elements of each block, > 0. `group`: those of one scale.
  SentValues(absl::Span<const size_t> counts, uint32_t group);
  // Of such blocks.
  static uint64_t MemoryBytes(absl::Span<const size_t> counts, uint32_t group);
  // Takes it from the system, but for the changes, a byte for each element.
  // REQUIRES: no other call runs. Errors:
  // TouchMemory's of common/system/memory_claim.h.
  absl::Status MakeResident(const GoOnCheck& go_on);

  // sent(clock) of a block whose own values are those of `clock`. At a clock
  // below one that was read already, of a call that came late, the later ones.
  // Valid until the next call for the block.
  absl::Span<const float> At(uint32_t block, int64_t clock,
                             absl::Span<const float> own);
  // change(clock), a block of common/wire/compression.h. Errors:
  // FailedPrecondition: sent(clock - 1) was never read, or `clock` is over.
  absl::StatusOr<absl::string_view> ChangeAt(uint32_t block, int64_t clock,
                                             absl::Span<const float> own);

 private:
  struct Block {
    absl::Span<float> sent;  // of memory_
    int64_t clock = -1;      // of `sent`; -1: nothing was read yet
    int64_t before = -1;     // of what `change` was added to; -1: there is none
    std::string change;
  };
  void Advance(Block* block, int64_t clock, absl::Span<const float> own) const;

  const uint32_t group_;
  AlignedFloats memory_;
  std::vector<Block> blocks_;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SHARD_SENT_VALUES_H_

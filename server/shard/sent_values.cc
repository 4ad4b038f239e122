#include "server/shard/sent_values.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/wire/compression.h"

namespace syncline::ps {

SentValues::SentValues(absl::Span<const size_t> counts, uint32_t group)
    : group_(group),
      memory_(std::accumulate(counts.begin(), counts.end(), size_t{0})),
      blocks_(counts.size()) {
  size_t first = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    blocks_[i].sent = memory_.span().subspan(first, counts[i]);
    blocks_[i].change.reserve(Int8Bytes(counts[i], group));
    first += counts[i];
  }
}

uint64_t SentValues::MemoryBytes(absl::Span<const size_t> counts,
                                 uint32_t group) {
  uint64_t bytes = 0;
  for (const size_t count : counts) {
    bytes += count * sizeof(float) + Int8Bytes(count, group);
  }
  return bytes;
}

absl::Status SentValues::MakeResident(const GoOnCheck& go_on) {
  return TouchMemory(
      "values as they are sent",
      {reinterpret_cast<char*>(memory_.data()), memory_.size() * sizeof(float)},
      go_on);
}

void SentValues::Advance(Block* block, int64_t clock,
                         absl::Span<const float> own) const {
  if (block->clock >= clock) return;
  block->before = std::exchange(block->clock, clock);
  float* const sent = block->sent.data();
  // Nobody can follow from there.
  if (block->before != clock - 1) {
    block->before = -1;
    std::copy(own.begin(), own.end(), sent);
    return;
  }
  AlignedFloats difference(own.size());
  for (size_t i = 0; i < own.size(); ++i) {
    difference.data()[i] = own[i] - sent[i];
  }
  block->change.clear();
  EncodeInt8(difference.data(), own.size(), group_, &block->change);
  const auto change = CompressedBlock::Parse(block->change, own.size());
  SYNCLINE_CHECK(change.ok());
  change->AddTo(sent);
}

absl::Span<const float> SentValues::At(uint32_t index, int64_t clock,
                                       absl::Span<const float> own) {
  Block& block = blocks_[index];
  Advance(&block, clock, own);
  return block.sent;
}

absl::StatusOr<absl::string_view> SentValues::ChangeAt(
    uint32_t index, int64_t clock, absl::Span<const float> own) {
  Block& block = blocks_[index];
  Advance(&block, clock, own);
  if (block.clock == clock && block.before == clock - 1) return block.change;
  return absl::FailedPreconditionError(absl::StrCat(
      "what changes to the values of clock ", clock, " from those of clock ",
      clock - 1, " was asked for, but those were not sent, and clock ",
      block.clock, "'s are the latest"));
}

}  // namespace syncline::ps

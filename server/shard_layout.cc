#include "server/shard_layout.h"

#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/wire/frame.h"

namespace syncline {
namespace {

constexpr BlockIndex kNotHere = std::numeric_limits<BlockIndex>::max();
// Sums over all workers stay within 64 bits.
constexpr uint64_t kSamplesMax = uint64_t{1} << 40;
constexpr double kWaitSecondsMax = 1e6;

absl::Status NotNegative(absl::string_view field, int64_t value) {
  if (value >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, ", must be at least 0"));
}

}  // namespace

ShardLayout::ShardLayout(BlockMap map, uint32_t shard)
    : map_(std::move(map)),
      shard_(shard),
      index_of_(map_.blocks().size(), kNotHere) {
  for (const uint32_t id : ids()) {
    index_of_[id] = static_cast<BlockIndex>(counts_.size());
    counts_.push_back(static_cast<size_t>(map_.blocks()[id].count));
  }
}

absl::StatusOr<std::vector<BlockIndex>> ShardLayout::CheckInit(
    const InitHeader& header, size_t payload_bytes) const {
  SYNCLINE_RETURN_IF_ERROR(NotNegative("total_clocks", header.total_clocks()));
  SYNCLINE_ASSIGN_OR_RETURN(std::vector<BlockIndex> blocks,
                            Indices(header.blocks()));
  SYNCLINE_RETURN_IF_ERROR(CheckPayload(blocks, payload_bytes));
  return blocks;
}

absl::StatusOr<PushFacts> ShardLayout::CheckPush(const PushHeader& header,
                                                 size_t payload_bytes) const {
  SYNCLINE_RETURN_IF_ERROR(NotNegative("push.clock", header.clock()));
  if (header.sample_count() > kSamplesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("push.sample_count is ", header.sample_count(),
                     ", must be at most ", kSamplesMax));
  }
  if (!(header.squared_norm() >= 0)) {
    return absl::InvalidArgumentError(absl::StrCat("push.squared_norm is ",
                                                   header.squared_norm(),
                                                   ", must be at least 0"));
  }
  PushFacts facts;
  facts.clock = header.clock();
  facts.sample_count = header.sample_count();
  facts.blocks_in_clock = header.blocks_in_clock();
  facts.finished = header.finished();
  facts.squared_norm = header.squared_norm();
  SYNCLINE_ASSIGN_OR_RETURN(facts.blocks, Indices(header.blocks()));
  SYNCLINE_RETURN_IF_ERROR(CheckPayload(facts.blocks, payload_bytes));
  return facts;
}

absl::StatusOr<PullFacts> ShardLayout::CheckPull(
    const PullHeader& header) const {
  SYNCLINE_RETURN_IF_ERROR(NotNegative("pull.clock", header.clock()));
  if (!(header.wait_seconds() > 0 &&
        header.wait_seconds() <= kWaitSecondsMax)) {
    return absl::InvalidArgumentError(
        absl::StrCat("pull.wait_seconds is ", header.wait_seconds(),
                     ", must be > 0 and at most ", kWaitSecondsMax));
  }
  PullFacts facts;
  facts.clock = header.clock();
  facts.cut_id = header.cut_id();
  SYNCLINE_ASSIGN_OR_RETURN(facts.blocks, Indices(header.blocks()));
  if (const size_t bytes = Elements(facts.blocks) * sizeof(float);
      bytes > kChunkBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("pull.blocks have ", bytes, " bytes, at most ",
                     kChunkBytesMax, " fit into a message"));
  }
  return facts;
}

std::vector<size_t> ShardLayout::Offsets(
    absl::Span<const BlockIndex> blocks) const {
  std::vector<size_t> offsets = {0};
  offsets.reserve(blocks.size() + 1);
  for (const BlockIndex block : blocks) {
    offsets.push_back(offsets.back() + counts_[block]);
  }
  return offsets;
}

absl::StatusOr<std::vector<BlockIndex>> ShardLayout::Indices(
    absl::Span<const uint32_t> ids) const {
  std::vector<BlockIndex> indices;
  indices.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const uint32_t id = ids[i];
    if (id >= index_of_.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("block ", id, " does not exist, there are ",
                       index_of_.size(), " blocks"));
    }
    if (index_of_[id] == kNotHere) {
      return absl::InvalidArgumentError(
          absl::StrCat("block ", id, " belongs to ps rank ",
                       map_.blocks()[id].shard, ", this is ps rank ", shard_));
    }
    if (i > 0 && id <= ids[i - 1]) {
      return absl::InvalidArgumentError(
          absl::StrCat("block ", id, " comes after block ", ids[i - 1],
                       ", they must be ascending"));
    }
    indices.push_back(index_of_[id]);
  }
  return indices;
}

absl::Status ShardLayout::CheckPayload(absl::Span<const BlockIndex> blocks,
                                       size_t payload_bytes) const {
  const size_t expected = Elements(blocks) * sizeof(float);
  if (payload_bytes == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the payload has ", payload_bytes, " bytes, its ",
                   blocks.size(), " blocks have ", expected));
}

size_t ShardLayout::Elements(absl::Span<const BlockIndex> blocks) const {
  size_t elements = 0;
  for (const BlockIndex block : blocks) elements += counts_[block];
  return elements;
}

}  // namespace syncline

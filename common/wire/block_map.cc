#include "common/wire/block_map.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <queue>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace syncline {
namespace {

constexpr int64_t kElementBytes = sizeof(float);
constexpr int64_t kBlockBytesMax = 1 << 20;
constexpr int64_t kBlockBytesStep = 4 << 10;
constexpr int64_t kBlocksPerModel = 256;
// 4 TiB of parameters, whose map takes some 150 MiB: every member of a job, and
// the scheduler, makes it before anything says whether the parameters fit.
constexpr int64_t kBlockCountMax = int64_t{1} << 22;
// Keeps every sum of bytes within an int64_t.
constexpr int64_t kElementsMax =
    std::numeric_limits<int64_t>::max() / kElementBytes / 2;

int64_t DivideUp(int64_t a, int64_t b) { return a / b + (a % b != 0); }

int64_t ElementsPerBlock(int64_t element_count) {
  const int64_t share =
      DivideUp(element_count * kElementBytes, kBlocksPerModel);
  const int64_t bytes = DivideUp(share, kBlockBytesStep) * kBlockBytesStep;
  return std::min(bytes, kBlockBytesMax) / kElementBytes;
}

absl::StatusOr<int64_t> TotalElements(absl::Span<const TensorSize> tensors) {
  int64_t total = 0;
  for (const TensorSize& tensor : tensors) {
    if (tensor.element_count <= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", tensor.name, " has ", tensor.element_count,
                       " elements, expected at least 1"));
    }
    if (tensor.element_count > kElementsMax - total) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", tensor.name, ": more than ", kElementsMax,
                       " elements in all"));
    }
    total += tensor.element_count;
  }
  return total;
}

// Shard of each block: largest block first, to the least loaded shard.
void Place(std::vector<Block>* blocks, std::vector<int64_t>* loads) {
  std::vector<uint32_t> by_size(blocks->size());
  std::iota(by_size.begin(), by_size.end(), 0);
  std::stable_sort(by_size.begin(), by_size.end(), [&](uint32_t a, uint32_t b) {
    return (*blocks)[a].count > (*blocks)[b].count;
  });
  using Load = std::pair<int64_t, uint32_t>;  // elements, shard
  std::priority_queue<Load, std::vector<Load>, std::greater<Load>> least;
  for (uint32_t shard = 0; shard < loads->size(); ++shard) {
    least.push({0, shard});
  }
  for (const uint32_t id : by_size) {
    const auto [load, shard] = least.top();
    least.pop();
    (*blocks)[id].shard = shard;
    (*loads)[shard] = load + (*blocks)[id].count;
    least.push({(*loads)[shard], shard});
  }
}

// The same, as a routing says.
absl::Status PlaceAsGiven(absl::Span<const uint32_t> block_shards,
                          std::vector<Block>* blocks,
                          std::vector<int64_t>* loads) {
  if (block_shards.size() != blocks->size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(block_shards.size(), " blocks are placed, the model has ",
                     blocks->size()));
  }
  for (size_t id = 0; id < blocks->size(); ++id) {
    const uint32_t shard = block_shards[id];
    if (shard >= loads->size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("block ", id, " is placed on shard ", shard,
                       ", there are ", loads->size(), " shards"));
    }
    (*blocks)[id].shard = shard;
    (*loads)[shard] += (*blocks)[id].count;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<BlockMap> BlockMap::Create(absl::Span<const TensorSize> tensors,
                                          uint32_t shard_count) {
  return Create(tensors, shard_count, {});
}

absl::StatusOr<BlockMap> BlockMap::Create(
    absl::Span<const TensorSize> tensors, uint32_t shard_count,
    absl::Span<const uint32_t> block_shards) {
  if (shard_count == 0) {
    return absl::InvalidArgumentError("no ps to place parameters on");
  }
  const absl::StatusOr<int64_t> total = TotalElements(tensors);
  if (!total.ok()) return total.status();
  const int64_t per_block = ElementsPerBlock(*total);

  int64_t block_count = 0;
  for (const TensorSize& tensor : tensors) {
    block_count += DivideUp(tensor.element_count, per_block);
  }
  if (block_count > kBlockCountMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the model needs ", block_count, " blocks, at most ",
                     kBlockCountMax, " are possible"));
  }

  BlockMap map;
  map.element_count_ = *total;
  map.blocks_.reserve(block_count);
  map.tensor_blocks_.resize(tensors.size());
  for (uint32_t tensor = 0; tensor < tensors.size(); ++tensor) {
    const int64_t count = tensors[tensor].element_count;
    for (int64_t offset = 0; offset < count; offset += per_block) {
      map.tensor_blocks_[tensor].push_back(map.blocks_.size());
      map.blocks_.push_back(
          {tensor, offset, std::min(per_block, count - offset), 0});
    }
  }
  map.shard_elements_.resize(shard_count);
  if (block_shards.empty()) {
    Place(&map.blocks_, &map.shard_elements_);
  } else if (absl::Status placed =
                 PlaceAsGiven(block_shards, &map.blocks_, &map.shard_elements_);
             !placed.ok()) {
    return placed;
  }
  map.shard_blocks_.resize(shard_count);
  for (uint32_t id = 0; id < map.blocks_.size(); ++id) {
    map.shard_blocks_[map.blocks_[id].shard].push_back(id);
  }
  return map;
}

}  // namespace syncline

#include "worker/peers/block_owners.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/base/status_macros.h"

namespace syncline::worker {
namespace {

// Owners of the blocks of one tensor. `loads`: elements by rank.
void PlaceTensor(const BlockMap& map, uint32_t tensor,
                 std::vector<int64_t>* loads, std::vector<uint32_t>* owners) {
  const absl::Span<const uint32_t> blocks = map.tensor_blocks(tensor);
  const size_t ranks = loads->size();
  std::vector<uint32_t> by_load(ranks);
  std::iota(by_load.begin(), by_load.end(), 0);
  std::stable_sort(by_load.begin(), by_load.end(), [&](uint32_t a, uint32_t b) {
    return (*loads)[a] < (*loads)[b];
  });
  // The last block may be short: it is for the rank that has most.
  size_t next = 0;
  for (size_t i = 0; i < ranks; ++i) {
    const size_t end =
        next + blocks.size() / ranks + (i < blocks.size() % ranks ? 1 : 0);
    for (; next < end; ++next) {
      (*owners)[blocks[next]] = by_load[i];
      (*loads)[by_load[i]] += map.blocks()[blocks[next]].count;
    }
  }
}

// The order in which backward is done with tensors.
std::vector<uint32_t> BackwardOrder(size_t tensors,
                                    absl::Span<const uint32_t> first_use) {
  std::vector<uint32_t> order(tensors);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return first_use.empty() ? a > b : first_use[a] > first_use[b];
  });
  return order;
}

size_t TensorCount(const BlockMap& map) {
  return map.blocks().empty() ? 0 : map.blocks().back().tensor + 1;
}

}  // namespace

absl::StatusOr<BlockMap> OwnedBlocks(absl::Span<const TensorSize> tensors,
                                     uint32_t ranks) {
  SYNCLINE_ASSIGN_OR_RETURN(const BlockMap cut,
                            BlockMap::Create(tensors, std::max(1u, ranks)));
  std::vector<uint32_t> owners(cut.blocks().size());
  std::vector<int64_t> loads(std::max(1u, ranks), 0);
  for (uint32_t tensor = 0; tensor < tensors.size(); ++tensor) {
    PlaceTensor(cut, tensor, &loads, &owners);
  }
  return BlockMap::Create(tensors, std::max(1u, ranks), owners);
}

std::vector<Bucket> MakeBuckets(const BlockMap& map,
                                absl::Span<const uint32_t> first_use,
                                const BucketSizes& sizes) {
  std::vector<Bucket> buckets;
  std::vector<Bucket> open(map.shard_count());
  const auto close = [&](uint32_t owner) {
    Bucket& bucket = open[owner];
    if (bucket.blocks.empty()) return;
    bucket.owner = owner;
    buckets.push_back(std::exchange(bucket, {}));
  };
  for (const uint32_t tensor : BackwardOrder(TensorCount(map), first_use)) {
    const uint32_t use = first_use.empty() ? tensor : first_use[tensor];
    for (const uint32_t id : map.tensor_blocks(tensor)) {
      const Block& block = map.blocks()[id];
      const size_t count = static_cast<size_t>(block.count);
      if (open[block.shard].elements + count > sizes.most) close(block.shard);
      Bucket& bucket = open[block.shard];
      bucket.first_use =
          bucket.blocks.empty() ? use : std::min(bucket.first_use, use);
      bucket.blocks.push_back(id);
      bucket.offsets.push_back(bucket.elements);
      bucket.elements += count;
    }
    for (uint32_t owner = 0; owner < open.size(); ++owner) {
      if (open[owner].elements >= sizes.worth) close(owner);
    }
  }
  for (uint32_t owner = 0; owner < open.size(); ++owner) close(owner);
  return buckets;
}

}  // namespace syncline::worker

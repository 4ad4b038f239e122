#include "worker/peers/compressed_sums.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/wire/compression.h"

namespace syncline::worker {
namespace {

// A block of kDeltas, of any number of elements, which are all 0.
constexpr char kNothing[] = {4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
static_assert(static_cast<int>(BlockEncoding::kDeltas) == 4);

// Each block of the rank is a tensor by itself: sums come one by one.
std::vector<Block> OwnBlocks(const BlockMap& map, uint32_t rank) {
  std::vector<Block> own;
  for (const Block& block : map.blocks()) {
    if (block.shard != rank) continue;
    own.push_back({.tensor = static_cast<uint32_t>(own.size()),
                   .offset = 0,
                   .count = block.count,
                   .shard = 0});
  }
  return own;
}

GradientCompressor::Options OptionsOf(const GradientCompressor::Options& of_job,
                                      const BlockMap& map, uint32_t rank) {
  using Kind = GradientCompression::Kind;
  GradientCompressor::Options options = of_job;
  if (of_job.compression.kind != Kind::kOneBitAdam) {
    options.compression = {.kind = Kind::kInt8};
    if (of_job.compression.any() && !of_job.compression.sparse()) {
      options.compression.block_elements = of_job.compression.block_elements;
    }
  }
  options.momentum = 0;
  options.moments = nullptr;
  options.start = nullptr;
  options.running_means.clear();
  for (const Block& block : map.blocks()) {
    if (block.shard != rank) continue;
    options.running_means.push_back(block.tensor <
                                        of_job.running_means.size() &&
                                    of_job.running_means[block.tensor]);
  }
  return options;
}

}  // namespace

CompressedSums::CompressedSums(const GradientCompressor::Options& of_job,
                               const BlockMap* map,
                               absl::Span<const Bucket> buckets, uint32_t rank)
    : map_(*map),
      buckets_(buckets),
      own_(map_.blocks().size(), kNotOwn),
      compressor_(OptionsOf(of_job, map_, rank), OwnBlocks(map_, rank)),
      sizes_out_(buckets.size()),
      arrivals_(buckets.size()) {
  uint32_t next = 0;
  for (uint32_t id = 0; id < own_.size(); ++id) {
    if (map_.blocks()[id].shard == rank) own_[id] = next++;
  }
  clocks_.assign(next, -1);
}

uint64_t CompressedSums::MemoryBytes(const GradientCompressor::Options& of_job,
                                     const BlockMap& map, uint32_t rank) {
  const GradientCompressor::Options options = OptionsOf(of_job, map, rank);
  GradientCompressor::Options of_others = options;
  of_others.running_means = of_job.running_means;
  std::vector<TensorSize> own;
  for (const Block& block : OwnBlocks(map, rank)) {
    own.push_back({"", block.count});
  }
  // Sums leave from where they were encoded, without a copy in messages.
  uint64_t bytes = GradientCompressor::StateBytes(options, own) -
                   GradientCompressor::EncodedBytes(of_others, map, rank);
  for (uint32_t other = 0; other < map.shard_count(); ++other) {
    if (other == rank) continue;
    bytes += GradientCompressor::EncodedBytes(of_others, map, other);
  }
  return bytes;
}

void CompressedSums::Compress(uint32_t block, absl::Span<float> sum,
                              int64_t clock, uint64_t samples) {
  const uint32_t own = own_[block];
  SYNCLINE_CHECK(own != kNotOwn);
  clocks_[own] = clock;
  compressor_.BeginStep(clock, samples);
  compressor_.Compress(own, sum, samples);
  const auto sent = CompressedBlock::Parse(compressor_.block(own), sum.size());
  SYNCLINE_CHECK(sent.ok());
  sent->CopyTo(0, sum.size(), sum.data());
}

void CompressedSums::Undo(int64_t clock) {
  if (compressor_.clock() == clock) compressor_.Undo();
}

LeavingBucket CompressedSums::Leave(uint32_t bucket, int64_t clock) {
  return LeaveWith(
      buckets_[bucket],
      [&](uint32_t id) {
        const uint32_t own = own_[id];
        return clocks_[own] == clock
                   ? compressor_.block(own)
                   : absl::string_view(kNothing, sizeof(kNothing));
      },
      &sizes_out_[bucket]);
}

}  // namespace syncline::worker

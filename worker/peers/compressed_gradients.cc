#include "worker/peers/compressed_gradients.h"

#include <cmath>
#include <utility>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/update/compressed_source.h"
#include "worker/exchange/gradient_norm.h"
#include "worker/peers/peer_messages.h"

namespace syncline::worker {

GradientCompressor::Options WithRunningMeans(
    GradientCompressor::Options options, const DenseTensors& tensors) {
  if (options.running_means.empty()) {
    options.running_means = tensors.running_means;
  }
  return options;
}

CompressedGradients::CompressedGradients(Options options, const BlockMap* map,
                                         absl::Span<const Bucket> buckets,
                                         const DenseTensors* tensors)
    : options_(std::move(options)),
      map_(*map),
      buckets_(buckets),
      tensors_(*tensors),
      compressor_(WithRunningMeans(options_.compressor, tensors_), map_),
      sizes_out_(buckets.size()),
      arrivals_(map_.shard_count()) {
  SYNCLINE_CHECK(options_.compressor.compression.any());
  for (auto& of_rank : arrivals_) of_rank.resize(buckets.size());
}

uint64_t CompressedGradients::ReceivedBytes(
    const GradientCompressor::Options& options, const BlockMap& map,
    uint32_t rank) {
  return (map.shard_count() - 1) *
         GradientCompressor::EncodedBytes(options, map, rank);
}

absl::Status CompressedGradients::Clip(int64_t clock, uint64_t samples) {
  SYNCLINE_ASSIGN_OR_RETURN(
      const double squares,
      SquaredNorm({.map = map_,
                   .gradients = tensors_.gradients,
                   .names = tensors_.names,
                   .running_means = tensors_.running_means,
                   .rows = {},
                   .wire_type = ElementType::kFloat32,
                   .clock = clock},
                  options_.on_non_finite));
  const double norm = std::sqrt(squares) / static_cast<double>(samples);
  compressor_.BeginStep(clock, samples);
  compressor_.Clip(norm, options_.clip_norm, /*averaged=*/true);
  return absl::OkStatus();
}

void CompressedGradients::Compress(uint32_t tensor,
                                   absl::Span<const float> gradient,
                                   int64_t clock, uint64_t samples) {
  compressor_.BeginStep(clock, samples);
  compressor_.Compress(tensor, gradient);
}

void CompressedGradients::Undo(int64_t clock) {
  if (compressor_.clock() == clock) compressor_.Undo();
}

CompressedGradients::Message CompressedGradients::MessageOf(uint32_t bucket) {
  std::vector<uint32_t>& sizes = sizes_out_[bucket];
  Message message;
  message.blocks = LeaveWith(
      buckets_[bucket], [&](uint32_t id) { return compressor_.block(id); },
      &sizes);
  message.sizes = BytesOfAll(absl::MakeConstSpan(sizes));
  return message;
}

std::shared_ptr<const FloatSource> CompressedGradients::OwnSource(
    uint32_t bucket) const {
  auto source = std::make_shared<CompressedSource>();
  for (const uint32_t id : buckets_[bucket].blocks) {
    SYNCLINE_CHECK(source->AddView(compressor_.block(id), CountOf(id)).ok());
  }
  return source;
}

}  // namespace syncline::worker

#include "worker/peers/compressed_gradients.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/update/compressed_source.h"
#include "worker/exchange/gradient_norm.h"
#include "worker/peers/peer_messages.h"

namespace syncline::worker {
namespace {

GradientCompressor::Options WithRunningMeans(
    GradientCompressor::Options options, const DenseTensors& tensors) {
  if (options.running_means.empty()) {
    options.running_means = tensors.running_means;
  }
  return options;
}

}  // namespace

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
  if (norm > options_.clip_norm) {
    compressor_.SetScale(static_cast<float>(options_.clip_norm / norm));
  }
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
  sizes.clear();
  Message message;
  for (const uint32_t id : buckets_[bucket].blocks) {
    const absl::string_view block = compressor_.block(id);
    sizes.push_back(static_cast<uint32_t>(block.size()));
    message.bytes += block.size();
    message.blocks.push_back(
        {reinterpret_cast<const uint8_t*>(block.data()), block.size()});
  }
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

PeerMemory CompressedGradients::SizesFrom(uint32_t rank, uint32_t bucket) {
  std::vector<uint32_t>& sizes = arrivals_[rank][bucket].sizes;
  sizes.resize(buckets_[bucket].blocks.size());
  return WritableBytesOfAll(absl::MakeSpan(sizes));
}

absl::StatusOr<PeerMemory> CompressedGradients::BlocksFrom(uint32_t rank,
                                                           uint32_t bucket) {
  Arrival& arrival = arrivals_[rank][bucket];
  size_t bytes = 0;
  for (size_t i = 0; i < arrival.sizes.size(); ++i) {
    const uint32_t id = buckets_[bucket].blocks[i];
    if (arrival.sizes[i] > CompressedBytesMax(CountOf(id))) {
      return absl::InvalidArgumentError(
          absl::StrCat("compressed block ", id, " of ", CountOf(id),
                       " elements has ", arrival.sizes[i], " bytes, at most ",
                       CompressedBytesMax(CountOf(id)), " can be"));
    }
    bytes += arrival.sizes[i];
  }
  arrival.bytes.resize(bytes);
  return PeerMemory{reinterpret_cast<uint8_t*>(arrival.bytes.data()), bytes};
}

absl::StatusOr<CompressedGradients::Received> CompressedGradients::Take(
    uint32_t rank, uint32_t bucket) {
  Arrival& arrival = arrivals_[rank][bucket];
  Received received;
  received.bytes = arrival.bytes.size();
  auto source = std::make_shared<CompressedSource>(
      std::exchange(arrival.bytes, std::string()));
  for (size_t i = 0; i < arrival.sizes.size(); ++i) {
    const uint32_t id = buckets_[bucket].blocks[i];
    SYNCLINE_RETURN_IF_ERROR(
        Annotate(source->Add(arrival.sizes[i], CountOf(id)),
                 absl::StrCat("compressed block ", id)));
  }
  received.gradient = std::move(source);
  return received;
}

}  // namespace syncline::worker

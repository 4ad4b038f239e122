#include "worker/compute/tensor_updates.h"

#include <algorithm>

#include "common/base/aligned_buffer.h"
#include "kernels/device/kernel_table.h"

namespace syncline::worker {

bool HasTensorUpdates(Device& device, OptimizerKind kind) {
  const TensorUpdateKernels* const kernels = device.kernels().tensor_update;
  return kernels != nullptr && kernels->has(kind);
}

std::vector<size_t> TensorOffsets(absl::Span<const int64_t> counts) {
  constexpr size_t kLine = kCacheLineBytes / sizeof(float);
  std::vector<size_t> offsets = {0};
  for (const int64_t count : counts) {
    const size_t lines = (static_cast<size_t>(count) + kLine - 1) / kLine;
    offsets.push_back(offsets.back() + lines * kLine);
  }
  return offsets;
}

void AppendChunks(size_t begin, size_t count, std::optional<float> momentum,
                  std::vector<TensorChunk>* chunks) {
  for (size_t at = 0; at < count; at += kTensorChunkMax) {
    chunks->push_back({.begin = static_cast<int64_t>(begin + at),
                       .count = static_cast<int32_t>(
                           std::min<size_t>(kTensorChunkMax, count - at)),
                       .momentum = momentum.value_or(-1)});
  }
}

uint64_t ChunkCount(uint64_t count) {
  return (count + kTensorChunkMax - 1) / kTensorChunkMax;
}

}  // namespace syncline::worker

#ifndef SYNCLINE_WORKER_COMPUTE_TENSOR_UPDATES_H_
#define SYNCLINE_WORKER_COMPUTE_TENSOR_UPDATES_H_

// Functions that LocalUpdater and DeviceUpdater share.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "kernels/device/device.h"
#include "kernels/device/tensor_update_kernels.h"
#include "kernels/optimizer/optimizer.h"

namespace syncline::worker {

// The device has kernels for the optimizer's updates.
bool HasTensorUpdates(Device& device, OptimizerKind kind);

// Where tensors of so many elements begin in an array of all of them, in
// floats: each on a cache line. The last one is the end of all.
std::vector<size_t> TensorOffsets(absl::Span<const int64_t> counts);

// The chunks of [begin, begin + count) of such an array; `momentum`: of a
// running mean.
void AppendChunks(size_t begin, size_t count, std::optional<float> momentum,
                  std::vector<TensorChunk>* chunks);
// How many these are.
uint64_t ChunkCount(uint64_t count);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COMPUTE_TENSOR_UPDATES_H_

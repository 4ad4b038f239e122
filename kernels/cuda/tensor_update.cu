#include <cmath>

#include "common/base/check.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/walk/block_fold.h"
#include "kernels/device/tensor_update_kernels.h"
#include "kernels/optimizer/element_update.h"

namespace syncline {
namespace {

using cuda::Global;
using cuda::OnDevice;
using cuda::Shared;

struct Earlier {
  SYNCLINE_DEVICE int64_t operator()(int64_t a, int64_t b) const {
    return a < b ? a : b;
  }
};

// A block for each chunk.
struct CheckKernel {
  Global<const TensorChunk> chunks;
  Global<const float> gradient;
  float scale;
  Global<ChunkCheck> found;

  SYNCLINE_DEVICE void operator()() const {
    const TensorChunk chunk = chunks[blockIdx.x];
    double squares = 0;
    int64_t first = ChunkCheck::kAllFinite;
    for (int i = threadIdx.x; i < chunk.count; i += blockDim.x) {
      const float g = gradient[chunk.begin + i];
      if (!std::isfinite(g) && i < first) first = i;
      const double mean = g * scale;  // a float's product
      squares += mean * mean;
    }
    cuda::SharedMemory memory;
    squares = cuda::BlockSum(squares, memory.Take<double>(cuda::kWarpsMax));
    first = cuda::BlockFold(first, memory.Take<int64_t>(cuda::kWarpsMax),
                            Earlier());
    if (threadIdx.x != 0) return;
    ChunkCheck check;
    check.squares = chunk.momentum < 0 ? squares : 0;
    check.first_non_finite = first;
    found[blockIdx.x] = check;
  }
};

template <typename Element>
struct UpdateKernel {
  Global<const TensorChunk> chunks;
  Global<const float> gradient;
  Global<float> value;
  Global<float> first;   // if the optimizer has a slot
  Global<float> second;  // likewise
  Element element;
  float scale;  // of running means

  SYNCLINE_DEVICE void operator()() const {
    const TensorChunk chunk = chunks[blockIdx.x];
    for (int i = threadIdx.x; i < chunk.count; i += blockDim.x) {
      const int64_t at = chunk.begin + i;
      float v = value[at];
      const float g = gradient[at];
      if (chunk.momentum >= 0) {
        AverageElement(chunk.momentum, scale)(g, v);
      } else {
        Update(at, g, v);
      }
      value[at] = v;
    }
  }

 private:
  SYNCLINE_DEVICE void Update(int64_t at, float g, float& v) const {
    if constexpr (Element::kSlots == 0) {
      element(g, v);
    } else {
      float m = first[at];
      if constexpr (Element::kSlots == 1) {
        element(g, v, m);
      } else {
        float s = second[at];
        element(g, v, m, s);
        second[at] = s;
      }
      first[at] = m;
    }
  }
};

struct ChangeKernel {
  Global<const TensorChunk> chunks;
  Global<const float> value;
  Global<float> change;
  float weight;

  SYNCLINE_DEVICE void operator()() const {
    const TensorChunk chunk = chunks[blockIdx.x];
    for (int i = threadIdx.x; i < chunk.count; i += blockDim.x) {
      const int64_t at = chunk.begin + i;
      const float v = value[at];
      change[at] =
          (chunk.momentum >= 0 ? v : static_cast<float>(change[at]) - v) *
          weight;
    }
  }
};

cuda::LaunchShape ShapeOf(int64_t count, size_t shared_bytes = 0) {
  return {.blocks = count,
          .threads = cuda::kBlockThreads,
          .shared_bytes = shared_bytes};
}

void Check(Stream& stream, int64_t count, const TensorChunk* chunks,
           const float* gradient, float scale, ChunkCheck* found) {
  constexpr size_t kShared =
      cuda::kWarpsMax * (sizeof(double) + sizeof(int64_t));
  cuda::Launch(stream, ShapeOf(count, kShared),
               CheckKernel{OnDevice(chunks), OnDevice(gradient), scale,
                           OnDevice(found)});
}

void Update(Stream& stream, const OptimizerParams& params,
            const OptimizerStep& step, float scale, int64_t count,
            const TensorChunk* chunks, const float* gradient, float* value,
            float* const* slots) {
  const auto launch = [&](const auto& element) {
    using Element = std::decay_t<decltype(element)>;
    cuda::Launch(stream, ShapeOf(count),
                 UpdateKernel<Element>{
                     OnDevice(chunks), OnDevice(gradient), OnDevice(value),
                     OnDevice(Element::kSlots > 0 ? slots[0] : nullptr),
                     OnDevice(Element::kSlots > 1 ? slots[1] : nullptr),
                     element, scale});
  };
  switch (params.kind) {
    case OptimizerKind::kSgd:
      return launch(SgdElement(params, step));
    case OptimizerKind::kMomentum:
      return launch(MomentumElement(params, step));
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
      return launch(AdamElement(params, step));
    default:
      SYNCLINE_CHECK(false && "HasElementUpdate");
  }
}

void Change(Stream& stream, float weight, int64_t count,
            const TensorChunk* chunks, const float* value, float* change) {
  cuda::Launch(stream, ShapeOf(count),
               ChangeKernel{OnDevice(chunks), OnDevice(value), OnDevice(change),
                            weight});
}

}  // namespace

const TensorUpdateKernels& CudaTensorUpdateKernels() {
  static constexpr TensorUpdateKernels kKernels = {.has = HasElementUpdate,
                                                   .check = Check,
                                                   .update = Update,
                                                   .change = Change};
  return kKernels;
}

}  // namespace syncline

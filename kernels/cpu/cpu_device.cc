#include "kernels/cpu/cpu_device.h"

#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/aligned_buffer.h"
#include "common/base/check.h"
#include "kernels/convolution.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/device/kernel_table.h"

namespace syncline {
namespace {

class CpuEvent : public Event {
 public:
  void Record(Stream&) override {}
  bool IsDone() override { return true; }
  absl::Status Wait() override { return absl::OkStatus(); }
};

}  // namespace

void CpuStream::CopyToDevice(void* to, const void* from, size_t bytes) {
  Copy(to, from, bytes);
}

void CpuStream::CopyToHost(void* to, const void* from, size_t bytes) {
  Copy(to, from, bytes);
}

void CpuStream::Copy(void* to, const void* from, size_t bytes) {
  const CpuKernel kernel(*this);
  if (to != from && bytes > 0) std::memcpy(to, from, bytes);
}

void CpuStream::Clear(void* to, size_t bytes) {
  const CpuKernel kernel(*this);
  if (bytes > 0) std::memset(to, 0, bytes);
}

// Work begins when it is queued, so there is nothing to queue behind.
void CpuStream::Wait(Event& event) { SYNCLINE_CHECK(event.Wait().ok()); }

const KernelTable& CpuDevice::kernels() const {
  static const KernelTable table = {
      .attention = &CpuAttentionKernels(),
      .binary = &CpuBinaryKernels(),
      .block_copy = &CpuBlockCopyKernels(),
      .cast = &CpuCastKernels(),
      .class_loss = &CpuClassLossKernels(),
      .clip = &CpuClipKernels(),
      .combination = &CpuCombinationKernels(),
      .comparison = &CpuComparisonKernels(),
      .convolution = &CpuConvolutionKernels(),
      .cumulative_sum = &CpuCumulativeSumKernels(),
      .dropout = &CpuDropoutKernels(),
      .einsum = &CpuEinsumKernels(),
      .extremum = &CpuExtremumKernels(),
      .float_class = &CpuFloatClassKernels(),
      .gather = &CpuGatherKernels(),
      .generator = &CpuGeneratorKernels(),
      .indexed = &CpuIndexedKernels(),
      .integer = &CpuIntegerKernels(),
      .layer_norm = &CpuLayerNormKernels(),
      .local_response = &CpuLocalResponseKernels(),
      .loss = &CpuLossKernels(),
      .loss_scale = &CpuLossScaleKernels(),
      .matrix_product = &CpuMatrixProductKernels(),
      .normalization = &CpuNormalizationKernels(),
      .padding = &CpuPaddingKernels(),
      .pointwise = &CpuPointwiseKernels(),
      .pooling = &CpuPoolingKernels(),
      .power = &CpuPowerKernels(),
      .recurrent = &CpuRecurrentKernels(),
      .reduction = &CpuReductionKernels(),
      .resample = &CpuResampleKernels(),
      .rotary = &CpuRotaryKernels(),
      .scatter = &CpuScatterKernels(),
      .select = &CpuSelectKernels(),
      .softmax = &CpuSoftmaxKernels(),
      .strided_copy = &CpuStridedCopyKernels(),
      .triangle = &CpuTriangleKernels(),
  };
  return table;
}

size_t CpuDevice::alignment() const { return kCacheLineBytes; }

int64_t CpuDevice::channel_block() const {
  return Convolution::BlockOfChannels();
}

absl::StatusOr<DeviceMemory> CpuDevice::Allocate(size_t bytes) {
  const size_t rounded =
      (bytes + kCacheLineBytes) / kCacheLineBytes * kCacheLineBytes;
  void* const data = std::aligned_alloc(kCacheLineBytes, rounded);
  if (data == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("there are no ", bytes, " bytes of memory"));
  }
  return DeviceMemory(this, data, bytes, /*is_pinned=*/false);
}

absl::StatusOr<DeviceMemory> CpuDevice::AllocatePinned(size_t bytes) {
  return Allocate(bytes);
}

absl::StatusOr<std::unique_ptr<Stream>> CpuDevice::MakeStream() {
  return std::make_unique<CpuStream>(this);
}

absl::StatusOr<std::unique_ptr<Event>> CpuDevice::MakeEvent() {
  return std::make_unique<CpuEvent>();
}

void CpuDevice::Free(void* data, size_t, bool) { std::free(data); }

CpuDevice& ThisMachine() {
  static CpuDevice& device = *new CpuDevice();
  return device;
}

}  // namespace syncline

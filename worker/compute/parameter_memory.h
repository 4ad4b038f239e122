#ifndef SYNCLINE_WORKER_COMPUTE_PARAMETER_MEMORY_H_
#define SYNCLINE_WORKER_COMPUTE_PARAMETER_MEMORY_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/aligned_buffer.h"
#include "common/system/memory_claim.h"
#include "common/system/shared_region.h"
#include "kernels/device/device.h"

namespace syncline::worker {

// An array of float32 for each parameter: its values, or its gradient. Each is
// there twice: in memory of the host, where the exchange with other processes
// reads and writes it, and in memory of the device, where a step computes with
// it. On a device that is the host both are one, and copies cost nothing.
// Thread-compatible; addresses stay as they are.
class ParameterMemory {
 public:
  // Of arrays with so many elements: bytes of all, and where each begins.
  static int64_t BytesFor(absl::Span<const int64_t> counts);
  static std::vector<int64_t> OffsetsFor(absl::Span<const int64_t> counts);
  static int64_t BytesOf(int64_t count);  // one, with what it is rounded up by

  // All zeros. `shared`: in memory that other processes of this host can be let
  // read, if there is any. Once. `device` outlives this. Errors: the device's.
  absl::Status Allocate(Device& device, Stream& stream,
                        absl::Span<const int64_t> counts, bool shared);
  // Takes the host's memory from the system, and pins it where copies go to a
  // device; shared memory is resident from the start. `what` is for messages.
  // Errors: ResourceExhausted; those of `go_on`.
  absl::Status MakeResident(absl::string_view what, const GoOnCheck& go_on);

  absl::Span<float> host(size_t i) const {
    return {host_[i], static_cast<size_t>(counts_[i])};
  }
  absl::Span<float* const> on_device() const { return device_; }
  const std::shared_ptr<SharedRegion>& region() const { return region_; }

  // Gives the host's memory back to the system until it is written again: the
  // arrays are unspecified then, zeros for most of them. REQUIRES: not shared,
  // and the device is the host.
  void Release();

  void CopyToDevice(Stream& stream) const;  // all
  void CopyToHost(Stream& stream, size_t i) const;

 private:
  std::vector<int64_t> counts_;
  AlignedFloats memory_;
  std::shared_ptr<SharedRegion> region_;  // null: in memory_
  DeviceMemory copy_;                     // empty: the device is the host
  Device* device_of_copy_ = nullptr;      // likewise
  PinnedRange pinned_;                    // of the host's memory
  std::vector<float*> host_;
  std::vector<float*> device_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COMPUTE_PARAMETER_MEMORY_H_

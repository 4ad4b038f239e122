#ifndef SYNCLINE_KERNELS_CUDA_NVML_H_
#define SYNCLINE_KERNELS_CUDA_NVML_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace syncline {

// NVIDIA's management library (NVML), which tells the use of a GPU. It comes
// with the driver. It is loaded at run time, because programs that were built
// for GPUs start without one, too; its functions are declared in nvml.cc, since
// CUDA's toolkit has its header in a package of its own. Thread-safe.
class Nvml {
 public:
  struct Usage {
    // Share of the last sampling period (up to 1 s) in which a kernel ran, of
    // any process. 0..1.
    double utilization = 0;
    // Of all processes, and of the driver.
    uint64_t used_bytes = 0;
    uint64_t memory_bytes = 0;
  };

  // Loads the library. `file`: tests have another. Errors: NotFound: there is
  // no such library; FailedPrecondition: it lacks a function; Internal: it
  // cannot begin, in its words.
  static absl::StatusOr<std::unique_ptr<Nvml>> Open(
      const std::string& file = "libnvidia-ml.so.1");
  virtual ~Nvml() = default;

  // Of the GPU at `address`, Device::Description's. Errors: Internal, in the
  // library's words: the GPU is lost, or does not tell (virtual GPUs).
  virtual absl::StatusOr<Usage> UsageOf(const std::string& address) = 0;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_CUDA_NVML_H_

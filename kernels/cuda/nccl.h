#ifndef SYNCLINE_KERNELS_CUDA_NCCL_H_
#define SYNCLINE_KERNELS_CUDA_NCCL_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda/nccl_interface.h"

namespace syncline::cuda {

// NVIDIA's library of reductions among GPUs. It is loaded at run time, as cuDNN
// is. Thread-safe.
class Nccl {
 public:
  // `file` is NCCL 2's; tests have another. The library stays loaded. Errors:
  // FailedPrecondition: there is none, it is another version, or it lacks a
  // function.
  static absl::StatusOr<std::unique_ptr<Nccl>> Load(
      const std::string& file = "libnccl.so.2");
  // With these functions, which tests have. Errors: FailedPrecondition: another
  // version. `file` is for the message.
  static absl::StatusOr<std::unique_ptr<Nccl>> Create(
      const NcclFunctions& functions, absl::string_view file);

  const std::string& name() const { return name_; }  // "NCCL 2.28.9"
  const NcclFunctions& functions() const { return functions_; }

  // An error of the library, `what` being what it was asked for. OK for its
  // success. `communicator`: null: it is about none. Codes: Unavailable:
  // another rank, or the way to it, is lost; Internal: all others, and
  // kNcclInProgress.
  absl::Status StatusOf(NcclResult result, absl::string_view what,
                        NcclCommunicator communicator = nullptr) const;

  // For a group, by the rank that tells the others. Errors: StatusOf's.
  absl::StatusOr<NcclId> MakeId() const;

 private:
  Nccl(const NcclFunctions& functions, std::string name)
      : functions_(functions), name_(std::move(name)) {}

  const NcclFunctions functions_;
  const std::string name_;
};

}  // namespace syncline::cuda

#endif  // SYNCLINE_KERNELS_CUDA_NCCL_H_

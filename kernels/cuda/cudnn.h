#ifndef SYNCLINE_KERNELS_CUDA_CUDNN_H_
#define SYNCLINE_KERNELS_CUDA_CUDNN_H_

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"
#include "kernels/cuda/cudnn_interface.h"

namespace syncline {

class Device;
class Stream;

namespace cuda {

// NVIDIA's library of convolutions, for one device. It is loaded at run time:
// it has half a gigabyte, and a machine without a GPU need not have it.
// Thread-safe.
class Cudnn {
 public:
  // `file` is cuDNN 9's; tests have another. The library stays loaded. Errors:
  // FailedPrecondition: there is none, it is another version, or it lacks a
  // function.
  static absl::StatusOr<std::unique_ptr<Cudnn>> Load(
      const std::string& file = "libcudnn.so.9");
  // With these functions, which tests have. Errors: FailedPrecondition: another
  // version. `file` is for the message.
  static absl::StatusOr<std::unique_ptr<Cudnn>> Create(
      const CudnnFunctions& functions, absl::string_view file);
  ~Cudnn();

  const std::string& name() const { return name_; }  // "cuDNN 9.19.0"
  const CudnnFunctions& functions() const { return functions_; }

  // An error of the library, `what` being what it was asked for: "choose an
  // algorithm". OK for its success. Codes: FailedPrecondition: it is of no use
  // on this machine (a driver that is too old, parts that are missing);
  // ResourceExhausted: no memory; Unimplemented: it has no such thing;
  // Internal: all others.
  absl::Status StatusOf(CudnnStatus status, absl::string_view what) const;

  // Calls `call` with the library's state, which is made at the first call, for
  // `device`. One call at a time. Errors: those of making the state; the
  // call's, with `what`.
  absl::Status With(Device& device, absl::string_view what,
                    absl::FunctionRef<CudnnStatus(CudnnHandle)> call);
  // The same for work that is put into a stream of the device.
  absl::Status Enqueue(Stream& stream, const char* what,
                       absl::FunctionRef<CudnnStatus(CudnnHandle)> call);

 private:
  Cudnn(const CudnnFunctions& functions, std::string name)
      : functions_(functions), name_(std::move(name)) {}
  absl::Status Begin(Device& device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const CudnnFunctions functions_;
  const std::string name_;
  Mutex mu_;
  CudnnHandle handle_ ABSL_GUARDED_BY(mu_) = nullptr;
};

}  // namespace cuda
}  // namespace syncline

#endif  // SYNCLINE_KERNELS_CUDA_CUDNN_H_

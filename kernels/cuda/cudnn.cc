#include "kernels/cuda/cudnn.h"

#include <dlfcn.h>

#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/cuda/library_device.h"

namespace syncline::cuda {
namespace {

constexpr size_t kMajor = 9;

// 91900 is 9.19.0, and 8907 is 8.9.7: cuDNN counts otherwise since 9.
size_t MajorOf(size_t version) {
  return version >= 10000 ? version / 10000 : version / 1000;
}
std::string VersionText(size_t version) {
  const size_t major = MajorOf(version);
  const size_t rest = version - major * (version >= 10000 ? 10000 : 1000);
  return absl::StrCat(major, ".", rest / 100, ".", rest % 100);
}

constexpr char kWhatToDo[] =
    "; install cuDNN 9, name its folder in LD_LIBRARY_PATH, or start the "
    "worker with --convolutions=own, which computes them with slower kernels "
    "of its own";

// The driver, the GPU or a part of the library is missing or too old.
bool IsOfTheMachine(CudnnStatus status) {
  return status / 1000 == kCudnnNotInitialized / 1000 ||
         (status >= kCudnnFirstOfTheMachine &&
          status <= kCudnnLastOfTheMachine);
}

absl::StatusCode CodeOf(CudnnStatus status) {
  if (IsOfTheMachine(status)) return absl::StatusCode::kFailedPrecondition;
  if (status == kCudnnHostAllocationFailed ||
      status == kCudnnDeviceAllocationFailed) {
    return absl::StatusCode::kResourceExhausted;
  }
  return status / 1000 == kCudnnNotSupported / 1000
             ? absl::StatusCode::kUnimplemented
             : absl::StatusCode::kInternal;
}

// Finds the functions of a loaded library, and the first that it lacks.
class Finder {
 public:
  explicit Finder(void* library) : library_(library) {}

  template <typename Function>
  void operator()(const char* name, Function& to) {
    void* const address = dlsym(library_, name);
    if (address == nullptr && missing_.empty()) missing_ = name;
    to = reinterpret_cast<Function>(address);
  }
  // The three functions of "cudnnGetConvolution<name>...".
  void Pass(const std::string& name, CudnnPass& to) {
    (*this)(absl::StrCat("cudnnGetConvolution", name, "Algorithm_v7").c_str(),
            to.recommend);
    (*this)(absl::StrCat("cudnnGetConvolution", name, "WorkspaceSize").c_str(),
            to.workspace);
    (*this)(absl::StrCat("cudnnConvolution", name).c_str(), to.run);
  }
  const std::string& missing() const { return missing_; }

 private:
  void* const library_;
  std::string missing_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Cudnn>> Cudnn::Load(const std::string& file) {
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("cuDNN 9, CUDA's library of convolutions, is not on this "
                     "machine: ",
                     dlerror(), kWhatToDo));
  }
  CudnnFunctions f;
  Finder find(library);
  find("cudnnGetVersion", f.version);
  find("cudnnGetErrorString", f.error_string);
  find("cudnnCreate", f.create);
  find("cudnnDestroy", f.destroy);
  find("cudnnSetStream", f.set_stream);
  find("cudnnCreateTensorDescriptor", f.create_tensor);
  find("cudnnSetTensorNdDescriptor", f.set_tensor);
  find("cudnnDestroyTensorDescriptor", f.destroy_tensor);
  find("cudnnCreateFilterDescriptor", f.create_filter);
  find("cudnnSetFilterNdDescriptor", f.set_filter);
  find("cudnnDestroyFilterDescriptor", f.destroy_filter);
  find("cudnnCreateConvolutionDescriptor", f.create_convolution);
  find("cudnnSetConvolutionNdDescriptor", f.set_convolution);
  find("cudnnSetConvolutionGroupCount", f.set_groups);
  find("cudnnSetConvolutionMathType", f.set_math);
  find("cudnnDestroyConvolutionDescriptor", f.destroy_convolution);
  find.Pass("Forward", f.forward);
  find.Pass("BackwardData", f.backward_data);
  find.Pass("BackwardFilter", f.backward_filter);
  // Its versions before 9 lack this one: their version says more.
  if (find.missing().empty() && MajorOf(f.version()) == kMajor) {
    find("cudnnGetLastErrorString", f.last_error_string);
  }
  if (!find.missing().empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(file, " has no ", find.missing(), kWhatToDo));
  }
  return Create(f, file);
}

absl::StatusOr<std::unique_ptr<Cudnn>> Cudnn::Create(
    const CudnnFunctions& functions, absl::string_view file) {
  const size_t version = functions.version();
  const std::string name = absl::StrCat("cuDNN ", VersionText(version));
  if (MajorOf(version) != kMajor) {
    return absl::FailedPreconditionError(
        absl::StrCat(file, " is ", name, ", but this program is built for ",
                     kMajor, kWhatToDo));
  }
  return std::unique_ptr<Cudnn>(new Cudnn(functions, name));
}

Cudnn::~Cudnn() {
  if (handle_ != nullptr) functions_.destroy(handle_);
}

absl::Status Cudnn::StatusOf(CudnnStatus status, absl::string_view what) const {
  if (status == kCudnnSuccess) return absl::OkStatus();
  char details[512] = {};
  functions_.last_error_string(details, sizeof(details));
  return absl::Status(
      CodeOf(status),
      absl::StrCat(name_, ": ", what, ": ", functions_.error_string(status),
                   details[0] == 0 ? "" : ": ", details));
}

absl::Status Cudnn::Begin(Device& device) {
  LibraryDevice::Of(device).Enter();
  if (handle_ != nullptr) return absl::OkStatus();
  CudnnHandle handle = nullptr;
  const absl::Status begun = StatusOf(functions_.create(&handle), "begin");
  if (absl::IsUnimplemented(begun)) {  // nothing of the library is
    return absl::FailedPreconditionError(begun.message());
  }
  SYNCLINE_RETURN_IF_ERROR(begun);
  handle_ = handle;
  return absl::OkStatus();
}

absl::Status Cudnn::With(Device& device, absl::string_view what,
                         absl::FunctionRef<CudnnStatus(CudnnHandle)> call) {
  MutexLock lock(&mu_);
  SYNCLINE_RETURN_IF_ERROR(Begin(device));
  return StatusOf(call(handle_), what);
}

absl::Status Cudnn::Enqueue(Stream& stream, const char* what,
                            absl::FunctionRef<CudnnStatus(CudnnHandle)> call) {
  MutexLock lock(&mu_);
  SYNCLINE_RETURN_IF_ERROR(Begin(stream.device()));
  LibraryStream& on = LibraryStream::Of(stream);
  SYNCLINE_RETURN_IF_ERROR(StatusOf(
      functions_.set_stream(handle_, on.ForLibraries()), "set a stream"));
  SYNCLINE_RETURN_IF_ERROR(StatusOf(call(handle_), what));
  on.NoteLibraryCall(what);
  return absl::OkStatus();
}

}  // namespace syncline::cuda

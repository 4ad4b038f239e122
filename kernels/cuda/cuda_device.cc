#include "kernels/cuda/cuda_device.h"

#if SYNCLINE_CUDA

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/cudnn.h"
#include "kernels/cuda/library_device.h"
#include "kernels/cuda/product_library.h"
#include "kernels/cuda/progress_mark.h"
#include "kernels/device/product_tuner.h"

namespace syncline {
namespace {

// Kernels are built for this one and later ones.
constexpr int kOldestMajor = 8;
// Of cudaMalloc.
constexpr size_t kAlignment = 256;

std::string Describe(cudaError_t error) {
  return absl::StrCat(cudaGetErrorName(error), " (", cudaGetErrorString(error),
                      ")");
}

// 13000 is 13.0.
std::string Version(int number) {
  return absl::StrCat(number / 1000, ".", number % 1000 / 10);
}

// The first error of a device's calls; the later ones follow from it.
//
// A kernel's fault comes to light in whatever is called after it. So the error
// names the work that the device was running, as far as streams have marks, and
// the kernel that was launched last before the call. Only a GPU can show it.
class FirstError {
 public:
  explicit FirstError(std::string device) : device_(std::move(device)) {}

  // `what`: "copy to the host".
  void Note(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return;
    ForgetErrorOfThread();
    MutexLock lock(&mu_);
    Keep(error, what);
  }
  // A launch may fail by itself, or for a fault of the kernel before it: both
  // are named.
  void NoteLaunch(cudaError_t error, const char* kernel) {
    if (error != cudaSuccess) ForgetErrorOfThread();
    MutexLock lock(&mu_);
    if (error != cudaSuccess) Keep(error, absl::StrCat("launch ", kernel));
    last_kernel_ = kernel;
  }
  // Marks of a stream, from now on until Remove. Any stream's call may be the
  // one that finds the fault.
  void Add(const cuda::ProgressMark* mark) {
    MutexLock lock(&mu_);
    marks_.push_back(mark);
  }
  void Remove(const cuda::ProgressMark* mark) {
    MutexLock lock(&mu_);
    marks_.erase(std::remove(marks_.begin(), marks_.end(), mark), marks_.end());
  }
  absl::Status status() {
    MutexLock lock(&mu_);
    return first_;
  }

 private:
  // CUDA keeps an error for its thread until it is asked: it would be taken for
  // one of the next call, of another device maybe. Errors that end the process'
  // use of CUDA stay.
  static void ForgetErrorOfThread() { cudaGetLastError(); }

  void Keep(cudaError_t error, absl::string_view what)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!first_.ok()) return;
    std::string text = absl::StrCat(device_, ": ", what, ": ", Describe(error));
    for (const cuda::ProgressMark* const mark : marks_) {
      const std::string running = mark->Running();
      if (!running.empty()) absl::StrAppend(&text, "; running: ", running);
    }
    if (last_kernel_ != nullptr) {
      absl::StrAppend(&text, "; launched last before it: ", last_kernel_);
    }
    first_ = absl::InternalError(text);
  }

  const std::string device_;
  Mutex mu_;
  absl::Status first_ ABSL_GUARDED_BY(mu_);
  const char* last_kernel_ ABSL_GUARDED_BY(mu_) = nullptr;  // a type's name
  std::vector<const cuda::ProgressMark*> marks_ ABSL_GUARDED_BY(mu_);
};

class CudaEvent : public Event {
 public:
  CudaEvent(cudaEvent_t event, FirstError* errors)
      : event_(event), errors_(*errors) {}
  ~CudaEvent() override {
    errors_.Note(cudaEventDestroy(event_), "destroy an event");
  }

  void Record(Stream& stream) override {
    errors_.Note(cudaEventRecord(event_, cuda::CudaStreamOf(stream)),
                 "record an event");
  }
  bool IsDone() override {
    const cudaError_t state = cudaEventQuery(event_);
    if (state == cudaErrorNotReady) return false;
    errors_.Note(state, "query an event");
    return true;
  }
  absl::Status Wait() override {
    errors_.Note(cudaEventSynchronize(event_), "wait for an event");
    return errors_.status();
  }

  cudaEvent_t get() const { return event_; }

 private:
  const cudaEvent_t event_;
  FirstError& errors_;
};

class CudaTimer : public Timer {
 public:
  CudaTimer(cudaEvent_t begin, cudaEvent_t end, FirstError* errors)
      : begin_(begin), end_(end), errors_(*errors) {}
  ~CudaTimer() override {
    errors_.Note(cudaEventDestroy(begin_), "destroy an event");
    errors_.Note(cudaEventDestroy(end_), "destroy an event");
  }

  void Start(Stream& stream) override {
    errors_.Note(cudaEventRecord(begin_, cuda::CudaStreamOf(stream)),
                 "record an event");
  }
  void Stop(Stream& stream) override {
    errors_.Note(cudaEventRecord(end_, cuda::CudaStreamOf(stream)),
                 "record an event");
  }
  std::optional<double> Seconds() override {
    float milliseconds = 0;
    const cudaError_t state = cudaEventElapsedTime(&milliseconds, begin_, end_);
    if (state == cudaErrorNotReady) return std::nullopt;
    errors_.Note(state, "measure a stretch of work");
    if (state != cudaSuccess) return std::nullopt;
    return milliseconds / 1e3;
  }

 private:
  const cudaEvent_t begin_;
  const cudaEvent_t end_;
  FirstError& errors_;
};

class CudaGraph : public DeviceGraph {
 public:
  // `last_mark`: cuda::ProgressMark::EndGraph's. `copied`: by a launch.
  CudaGraph(int number, cudaGraphExec_t graph, uint64_t last_mark,
            DeviceMeter::CopiedBytes copied, FirstError* errors)
      : number_(number),
        graph_(graph),
        last_mark_(last_mark),
        copied_(copied),
        errors_(*errors) {}
  ~CudaGraph() override {
    errors_.Note(cudaSetDevice(number_), "set the device");
    errors_.Note(cudaGraphExecDestroy(graph_), "destroy a graph");
  }

  void Launch(Stream& stream) override;

 private:
  const int number_;
  const cudaGraphExec_t graph_;
  const uint64_t last_mark_;
  const DeviceMeter::CopiedBytes copied_;
  FirstError& errors_;
};

// Work of a stream that is being kept.
struct KeptWork {
  absl::Status status;  // the first error
  DeviceMeter::CopiedBytes copied{};
};

class CudaStream : public cuda::LibraryStream {
 public:
  CudaStream(cuda::LibraryDevice* device, int number, cudaStream_t stream,
             DeviceMemory partial_sums, FirstError* errors, DeviceMeter* meter)
      : device_(*device),
        number_(number),
        stream_(stream),
        partial_sums_(std::move(partial_sums)),
        errors_(*errors),
        copies_(meter, [this] { return MakeTimer(); }) {}
  ~CudaStream() override {
    errors_.Note(cudaStreamDestroy(stream_), "destroy a stream");
    if (mark_.has_value()) errors_.Remove(&*mark_);
  }

  Device& device() override { return device_; }
  void CopyToDevice(void* to, const void* from, size_t bytes) override {
    const CountedCopy counted(this, DeviceMeter::kToDevice, bytes);
    Copy(to, from, bytes, cudaMemcpyHostToDevice, "copy to the device");
  }
  void CopyToHost(void* to, const void* from, size_t bytes) override {
    const CountedCopy counted(this, DeviceMeter::kToHost, bytes);
    Copy(to, from, bytes, cudaMemcpyDeviceToHost, "copy to the host");
  }
  void Copy(void* to, const void* from, size_t bytes) override {
    if (to == from) return;
    Copy(to, from, bytes, cudaMemcpyDeviceToDevice, "copy on the device");
  }
  void Clear(void* to, size_t bytes) override {
    if (bytes == 0) return;
    Note(cudaMemsetAsync(to, 0, bytes, get()), "clear");
  }
  void Wait(Event& event) override {
    Enter();
    Note(cudaStreamWaitEvent(stream_, static_cast<CudaEvent&>(event).get(), 0),
         "wait for an event in a stream");
  }
  absl::Status Synchronize() override {
    Enter();
    errors_.Note(cudaStreamSynchronize(stream_), "synchronize");
    absl::Status status = errors_.status();
    if (status.ok()) copies_.OnSynchronized();
    return status;
  }
  void UseMarks(std::shared_ptr<const Marks> marks) override {
    if (!mark_.has_value()) {
      // CUDA shows memory of this kind to kernels at the same address.
      auto memory = device_.AllocatePinned(sizeof(uint64_t));
      if (!memory.ok()) return;  // errors name less
      mark_memory_ = *std::move(memory);
      *mark_memory_.as<uint64_t>() = 0;
      errors_.Add(&mark_.emplace(mark_memory_.as<uint64_t>()));
    }
    mark_->UseNames(std::move(marks));
  }
  void Mark(uint32_t number) override {
    if (mark_.has_value()) mark_->Set(number);
  }

  absl::Status BeginGraph() override {
    Enter();
    // Of this thread's calls alone: other threads go on as they do.
    const cudaError_t error =
        cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal);
    if (error != cudaSuccess) return NotKept("begin a graph", error);
    kept_.emplace();
    if (mark_.has_value()) mark_->BeginGraph();
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<DeviceGraph>> EndGraph() override {
    Enter();
    const KeptWork kept = *std::exchange(kept_, std::nullopt);
    const uint64_t last_mark = mark_.has_value() ? mark_->EndGraph() : 0;
    cudaGraph_t work = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream_, &work);
    if (!kept.status.ok() || ended != cudaSuccess) {
      if (work != nullptr) cudaGraphDestroy(work);
      cudaGetLastError();  // It is no error of what follows.
      return kept.status.ok() ? NotKept("end a graph", ended) : kept.status;
    }
    cudaGraphExec_t graph = nullptr;
    const cudaError_t made = cudaGraphInstantiate(&graph, work, 0);
    const cudaError_t destroyed = cudaGraphDestroy(work);
    if (made != cudaSuccess) return NotKept("make a graph", made);
    auto made_graph = std::make_unique<CudaGraph>(number_, graph, last_mark,
                                                  kept.copied, &errors_);
    if (destroyed != cudaSuccess) return NotKept("free a graph", destroyed);
    return made_graph;
  }
  void Launch(cudaGraphExec_t graph, uint64_t last_mark,
              const DeviceMeter::CopiedBytes& copied) {
    Enter();
    errors_.NoteLaunch(cudaGraphLaunch(graph, stream_), "a graph of work");
    copies_.Count(copied);
    if (mark_.has_value()) mark_->Continue(last_mark);
  }

  // For what is queued now. CUDA's calls of this thread are then for this
  // stream's device.
  cudaStream_t get() {
    Enter();
    if (mark_.has_value() && !is_marking_) {
      is_marking_ = true;
      mark_->Queue(*this);
      is_marking_ = false;
    }
    return stream_;
  }
  void* ForLibraries() override { return get(); }
  void NoteLibraryCall(const char* what) override {
    NoteLaunch(cudaSuccess, what);
  }
  void NoteLaunch(cudaError_t error, const char* kernel) {
    if (is_marking_) return Note(error, "launch a mark");
    if (kept_.has_value()) return Note(error, kernel);
    errors_.NoteLaunch(error, kernel);
  }
  double* partial_sums() { return partial_sums_.as<double>(); }

 private:
  // A copy between the host and the device, for as long as it is queued. One
  // that is kept counts whenever its graph is launched.
  class CountedCopy {
   public:
    CountedCopy(CudaStream* stream, DeviceMeter::Direction direction,
                size_t bytes)
        : stream_(*stream) {
      if (stream_.kept_.has_value()) {
        stream_.kept_->copied[direction] += bytes;
      } else {
        stream_.copies_.Begin(stream_, direction, bytes);
      }
    }
    ~CountedCopy() { stream_.copies_.End(stream_); }

   private:
    CudaStream& stream_;
  };

  void Enter() { errors_.Note(cudaSetDevice(number_), "set the device"); }
  // Null: the device has failed, which is kept.
  std::unique_ptr<Timer> MakeTimer() {
    absl::StatusOr<std::unique_ptr<Timer>> timer = device_.MakeTimer();
    return timer.ok() ? *std::move(timer) : nullptr;
  }
  // Work that cannot be kept is no error of the device: it may still be queued.
  // A device that has failed says so again then.
  static absl::Status NotKept(const char* what, cudaError_t error) {
    cudaGetLastError();  // It is no error of what follows.
    return absl::FailedPreconditionError(
        absl::StrCat(what, ": ", Describe(error)));
  }
  void Note(cudaError_t error, const char* what) {
    if (!kept_.has_value()) return errors_.Note(error, what);
    if (error != cudaSuccess) kept_->status.Update(NotKept(what, error));
  }
  void Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
            const char* what) {
    if (bytes == 0) return;
    Note(cudaMemcpyAsync(to, from, bytes, kind, get()), what);
  }

  cuda::LibraryDevice& device_;
  const int number_;
  const cudaStream_t stream_;
  const DeviceMemory partial_sums_;
  FirstError& errors_;
  CopySampler copies_;
  // Once there are names.
  DeviceMemory mark_memory_;
  std::optional<cuda::ProgressMark> mark_;
  bool is_marking_ = false;
  std::optional<KeptWork> kept_;  // from BeginGraph to EndGraph
};

void CudaGraph::Launch(Stream& stream) {
  static_cast<CudaStream&>(stream).Launch(graph_, last_mark_, copied_);
}

class CudaDevice : public cuda::LibraryDevice {
 public:
  // `cudnn`: null or an error, as CudnnOf says.
  CudaDevice(int number, Description description,
             absl::StatusOr<std::unique_ptr<cuda::Cudnn>> cudnn,
             bool has_graphs)
      : number_(number),
        name_(absl::StrCat("cuda:", number)),
        description_(std::move(description)),
        cudnn_(std::move(cudnn)),
        has_graphs_(has_graphs),
        errors_(name_) {}
  ~CudaDevice() override { Enter(); }  // what it has belongs to the GPU

  absl::string_view name() const override { return name_; }
  Description description() const override { return description_; }
  absl::Status health() override { return errors_.status(); }
  void AllowTf32(bool is_allowed) override { takes_tf32_ = is_allowed; }
  ProductTuner* product_tuner() override {
    MutexLock lock(&mu_);
    if (product_tuner_ == nullptr) {
      // Products say what is missing.
      const absl::StatusOr<std::string> library = cuda::ProductLibraryName();
      if (!library.ok()) return nullptr;
      product_tuner_ = std::make_unique<ProductTuner>(
          ProductLibrary{description_.model, *library});
    }
    return product_tuner_.get();
  }
  const KernelTable& kernels() const override { return CudaKernelTable(); }
  size_t alignment() const override { return kAlignment; }
  int64_t channel_block() const override { return 1; }
  bool computes_in(absl::string_view op_type, DType type) const override {
    return CudaComputesIn(op_type, type);
  }
  bool is_host() const override { return false; }
  bool has_graphs() const override { return has_graphs_; }

  // CUDA's calls are for the device that their thread has set.
  void Enter() override {
    errors_.Note(cudaSetDevice(number_), "set the device");
  }
  absl::StatusOr<cuda::Cudnn*> cudnn() const override {
    if (!cudnn_.ok()) return cudnn_.status();
    return cudnn_->get();
  }
  bool takes_tf32() const override { return takes_tf32_; }

  absl::StatusOr<DeviceMemory> Allocate(size_t bytes) override {
    Enter();
    void* data = nullptr;
    const cudaError_t error = cudaMalloc(&data, bytes == 0 ? 1 : bytes);
    if (error != cudaSuccess) return NoMemory(error, bytes, "");
    return DeviceMemory(this, data, bytes, /*is_pinned=*/false);
  }
  absl::StatusOr<DeviceMemory> AllocatePinned(size_t bytes) override {
    Enter();
    void* data = nullptr;
    const cudaError_t error =
        cudaHostAlloc(&data, bytes == 0 ? 1 : bytes, cudaHostAllocPortable);
    if (error != cudaSuccess) return NoMemory(error, bytes, "pinned ");
    return DeviceMemory(this, data, bytes, /*is_pinned=*/true);
  }
  uint64_t FreeBytes() override {
    Enter();
    size_t free = 0;
    size_t total = 0;
    errors_.Note(cudaMemGetInfo(&free, &total), "query the memory");
    return free;
  }
  PinnedRange Pin(void* data, size_t bytes) override {
    Enter();
    if (bytes == 0) return {};
    if (cudaHostRegister(data, bytes, cudaHostRegisterPortable) !=
        cudaSuccess) {
      cudaGetLastError();  // It is no error of what follows.
      return {};
    }
    return PinnedRange(this, data);
  }
  absl::StatusOr<std::unique_ptr<Stream>> MakeStream() override {
    SYNCLINE_ASSIGN_OR_RETURN(DeviceMemory partial_sums,
                              Allocate(cuda::kPartialSumsBytes));
    cudaStream_t stream = nullptr;
    const cudaError_t error =
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (error != cudaSuccess) return Failed(error, "make a stream");
    return std::make_unique<CudaStream>(
        this, number_, stream, std::move(partial_sums), &errors_, &meter());
  }
  absl::StatusOr<std::unique_ptr<Event>> MakeEvent() override {
    Enter();
    cudaEvent_t event = nullptr;
    const cudaError_t error =
        cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (error != cudaSuccess) return Failed(error, "make an event");
    return std::make_unique<CudaEvent>(event, &errors_);
  }
  absl::StatusOr<std::unique_ptr<Timer>> MakeTimer() override {
    Enter();
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
    cudaError_t error = cudaEventCreate(&begin);
    if (error == cudaSuccess) error = cudaEventCreate(&end);
    if (error != cudaSuccess) return Failed(error, "make an event");
    return std::make_unique<CudaTimer>(begin, end, &errors_);
  }

 private:
  void Free(void* data, size_t, bool is_pinned) override {
    Enter();
    errors_.Note(is_pinned ? cudaFreeHost(data) : cudaFree(data), "free");
  }
  void Unpin(void* data) override {
    Enter();
    errors_.Note(cudaHostUnregister(data), "unpin memory");
  }
  absl::Status Failed(cudaError_t error, const char* what) {
    errors_.Note(error, what);
    return errors_.status();
  }
  absl::Status NoMemory(cudaError_t error, size_t bytes, const char* kind) {
    if (error != cudaErrorMemoryAllocation) return Failed(error, "allocate");
    cudaGetLastError();  // It is no error of what follows.
    size_t free = 0;
    size_t total = 0;
    errors_.Note(cudaMemGetInfo(&free, &total), "query the memory");
    return absl::ResourceExhaustedError(
        absl::StrCat(name_, " has no ", bytes, " bytes of ", kind,
                     "memory: ", free, " of ", total, " bytes are free"));
  }

  const int number_;
  const std::string name_;
  const Description description_;
  const absl::StatusOr<std::unique_ptr<cuda::Cudnn>> cudnn_;
  const bool has_graphs_;
  std::atomic<bool> takes_tf32_ = false;
  FirstError errors_;
  Mutex mu_;
  // Made with the library of products.
  std::unique_ptr<ProductTuner> product_tuner_ ABSL_GUARDED_BY(mu_);
};

// A field that CUDA does not tell stays empty.
Device::Description DescriptionOf(int number) {
  Device::Description description;
  cudaDeviceProp properties = {};
  if (cudaGetDeviceProperties(&properties, number) == cudaSuccess) {
    description.model = properties.name;
    description.memory_bytes = properties.totalGlobalMem;
  }
  char address[32] = {};
  if (cudaDeviceGetPCIBusId(address, sizeof(address), number) == cudaSuccess) {
    description.address = address;
  }
  return description;
}

// As CudaDevice takes it; says in `description` what it is.
absl::StatusOr<std::unique_ptr<cuda::Cudnn>> OpenCudnn(
    CudaConvolutions convolutions, Device::Description* description) {
  if (convolutions == CudaConvolutions::kOwn) {
    description->convolutions = "own kernels";
    return nullptr;
  }
  absl::StatusOr<std::unique_ptr<cuda::Cudnn>> cudnn = cuda::Cudnn::Load();
  if (cudnn.ok()) {
    description->convolutions = (*cudnn)->name();
  } else {
    description->convolutions = "none";
    description->why_no_convolutions = std::string(cudnn.status().message());
  }
  return cudnn;
}

}  // namespace

namespace cuda {

cudaStream_t CudaStreamOf(Stream& stream) {
  return static_cast<CudaStream&>(stream).get();
}

double* PartialSumsOf(Stream& stream) {
  return static_cast<CudaStream&>(stream).partial_sums();
}

void NoteLaunch(Stream& stream, cudaError_t error, const char* kernel) {
  static_cast<CudaStream&>(stream).NoteLaunch(error, kernel);
}

}  // namespace cuda

int CountCudaDevices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(
    int number, CudaConvolutions convolutions, bool has_graphs) {
  const std::string name = absl::StrCat("cuda:", number);
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) {
    int driver = 0;
    cudaDriverGetVersion(&driver);
    if (driver == 0) {
      return absl::NotFoundError(
          absl::StrCat(name, ": this machine has no driver for GPUs"));
    }
    return absl::FailedPreconditionError(absl::StrCat(
        name, ": the driver is for CUDA ", Version(driver),
        ", which is older than this program needs: ", Version(CUDART_VERSION),
        "; install a later driver"));
  }
  if (error != cudaSuccess || number < 0 || number >= count) {
    return absl::NotFoundError(
        error == cudaSuccess
            ? absl::StrCat(name, ": this machine has ", count, " GPUs")
            : absl::StrCat(name, ": this machine has no GPU that CUDA finds: ",
                           Describe(error)));
  }
  int major = 0;
  int minor = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, number);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, number);
  if (major < kOldestMajor) {
    return absl::FailedPreconditionError(absl::StrCat(
        name, " has compute capability ", major, ".", minor,
        ", but kernels are built for ", kOldestMajor, ".0 and later"));
  }
  Device::Description description = DescriptionOf(number);
  absl::StatusOr<std::unique_ptr<cuda::Cudnn>> cudnn =
      OpenCudnn(convolutions, &description);
  return std::make_unique<CudaDevice>(number, std::move(description),
                                      std::move(cudnn), has_graphs);
}

}  // namespace syncline

#else

namespace syncline {

int CountCudaDevices() { return 0; }

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(int, CudaConvolutions,
                                                       bool) {
  return absl::UnimplementedError(
      "this program was built without CUDA: there was no nvcc");
}

}  // namespace syncline

#endif  // SYNCLINE_CUDA

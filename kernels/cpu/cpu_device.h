#ifndef SYNCLINE_KERNELS_CPU_CPU_DEVICE_H_
#define SYNCLINE_KERNELS_CPU_CPU_DEVICE_H_

#include <memory>

#include "kernels/device/device.h"

namespace syncline {

// A stream of a CpuDevice: its work is done when the call returns, by the
// calling thread and the threads that it may use (kernels/threads.h).
class CpuStream : public Stream {
 public:
  explicit CpuStream(Device* device) : device_(device) {}

  Device& device() override { return *device_; }
  void CopyToDevice(void* to, const void* from, size_t bytes) override;
  void CopyToHost(void* to, const void* from, size_t bytes) override;
  void Copy(void* to, const void* from, size_t bytes) override;
  void Clear(void* to, size_t bytes) override;
  void Wait(Event& event) override;
  absl::Status Synchronize() override { return absl::OkStatus(); }

  // A kernel begins or has ended: for devices of tests, which see to it that
  // nothing else touches their memory. Copies call them too.
  virtual void BeginKernel() {}
  virtual void EndKernel() {}

 private:
  Device* const device_;
};

// The first line of every kernel in kernels/cpu. REQUIRES: a CpuStream.
class CpuKernel {
 public:
  explicit CpuKernel(Stream& stream)
      : stream_(static_cast<CpuStream&>(stream)) {
    stream_.BeginKernel();
  }
  ~CpuKernel() { stream_.EndKernel(); }
  CpuKernel(const CpuKernel&) = delete;
  CpuKernel& operator=(const CpuKernel&) = delete;

 private:
  CpuStream& stream_;
};

// This machine's processors: memory of the host, kernels that run when they are
// called, events that are done when they are recorded.
class CpuDevice : public Device {
 public:
  absl::string_view name() const override { return "cpu"; }
  const KernelTable& kernels() const override;
  size_t alignment() const override;
  int64_t channel_block() const override;
  bool is_host() const override { return true; }
  absl::StatusOr<DeviceMemory> Allocate(size_t bytes) override;
  absl::StatusOr<DeviceMemory> AllocatePinned(size_t bytes) override;
  absl::StatusOr<std::unique_ptr<Stream>> MakeStream() override;
  absl::StatusOr<std::unique_ptr<Event>> MakeEvent() override;

 protected:
  void Free(void* data, size_t bytes, bool is_pinned) override;
};

// The one of this process.
CpuDevice& ThisMachine();

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_CPU_CPU_DEVICE_H_

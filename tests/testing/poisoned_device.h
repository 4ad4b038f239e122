#ifndef SYNCLINE_TESTS_TESTING_POISONED_DEVICE_H_
#define SYNCLINE_TESTS_TESTING_POISONED_DEVICE_H_

// A device whose memory the host cannot touch: this machine's kernels on pages
// that may be read and written only while a kernel or a copy runs. An operator
// that looks at a tensor itself ends the process.

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <memory>

#include "common/base/check.h"
#include "kernels/cpu/cpu_device.h"

namespace syncline::testing {

class PoisonedDevice : public CpuDevice {
 public:
  absl::string_view name() const override { return "poisoned"; }
  bool is_host() const override { return false; }
  uint64_t FreeBytes() override { return uint64_t{1} << 40; }

  absl::StatusOr<DeviceMemory> Allocate(size_t bytes) override {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t mapped = (bytes + page) / page * page;
    void* const data = mmap(nullptr, mapped, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, 0);
    SYNCLINE_CHECK(data != MAP_FAILED);
    pages_[data] = mapped;
    return DeviceMemory(this, data, bytes, /*is_pinned=*/false);
  }
  absl::StatusOr<DeviceMemory> AllocatePinned(size_t bytes) override {
    // The host may touch it.
    return ThisMachine().AllocatePinned(bytes);
  }
  absl::StatusOr<std::unique_ptr<Stream>> MakeStream() override {
    return std::make_unique<PoisonedStream>(this);
  }

  // Kernels and copies so far.
  int launches() const { return launches_; }

 private:
  class PoisonedStream : public CpuStream {
   public:
    explicit PoisonedStream(PoisonedDevice* device)
        : CpuStream(device), poisoned_(*device) {}
    void BeginKernel() override {
      if (poisoned_.running_++ > 0) return;
      ++poisoned_.launches_;
      poisoned_.Protect(PROT_READ | PROT_WRITE);
    }
    void EndKernel() override {
      if (--poisoned_.running_ == 0) poisoned_.Protect(PROT_NONE);
    }

   private:
    PoisonedDevice& poisoned_;
  };

  void Protect(int protection) {
    for (const auto& [data, bytes] : pages_) {
      SYNCLINE_CHECK(mprotect(data, bytes, protection) == 0);
    }
  }
  void Free(void* data, size_t bytes, bool is_pinned) override {
    const auto it = pages_.find(data);
    munmap(data, it->second);
    pages_.erase(it);
  }

  std::map<void*, size_t> pages_;
  int running_ = 0;
  int launches_ = 0;
};

}  // namespace syncline::testing

#endif  // SYNCLINE_TESTS_TESTING_POISONED_DEVICE_H_

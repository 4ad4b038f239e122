#include "tests/testing/cuda_emulator/emulated_device.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/language.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/progress_mark.h"
#include "kernels/device/kernel_table.h"
#include "tests/testing/cuda_emulator/cuda_emulator.h"

namespace syncline::testing {
namespace {

constexpr size_t kReportsMax = 10;
// Of CUDA.
constexpr int64_t kBlocksMax = (int64_t{1} << 31) - 1;
constexpr int kThreadsMax = 1024;

// All emulated memory of this process, by its first byte. Kernels' arguments
// are made where no device is known.
struct Memories {
  Mutex mu;
  std::map<const void*, std::unique_ptr<EmulatedMemory>> by_begin
      ABSL_GUARDED_BY(mu);
};
Memories& AllMemories() {
  static Memories& memories = *new Memories();
  return memories;
}

// Work is done when it is queued.
class EmulatedTimer : public Timer {
 public:
  void Start(Stream&) override { begin_ = MonotonicNow(); }
  void Stop(Stream&) override {
    seconds_ = absl::ToDoubleSeconds(MonotonicNow() - begin_);
  }
  std::optional<double> Seconds() override { return seconds_; }

 private:
  absl::Time begin_ = absl::InfinitePast();
  std::optional<double> seconds_;
};

class EmulatedStream : public cuda::LibraryStream {
 public:
  explicit EmulatedStream(EmulatedDevice* device)
      : device_(*device), copies_(&device->meter(), [] {
          return std::make_unique<EmulatedTimer>();
        }) {}

  Device& device() override { return device_; }
  EmulatedDevice& emulated() { return device_; }

  void CopyToDevice(void* to, const void* from, size_t bytes) override {
    QueueMark();
    if (!device_.MayWrite("copy to the device", to, bytes)) return;
    copies_.Begin(*this, DeviceMeter::kToDevice, bytes);
    std::memcpy(to, from, bytes);
    copies_.End(*this);
  }
  void CopyToHost(void* to, const void* from, size_t bytes) override {
    QueueMark();
    if (!device_.MayRead("copy to the host", from, bytes)) return;
    copies_.Begin(*this, DeviceMeter::kToHost, bytes);
    std::memcpy(to, from, bytes);
    copies_.End(*this);
  }
  void Copy(void* to, const void* from, size_t bytes) override {
    QueueMark();
    if (to == from || !device_.MayRead("copy", from, bytes) ||
        !device_.MayWrite("copy", to, bytes)) {
      return;
    }
    std::memcpy(to, from, bytes);
  }
  void Clear(void* to, size_t bytes) override {
    QueueMark();
    if (device_.MayWrite("clear", to, bytes)) std::memset(to, 0, bytes);
  }
  void Wait(Event&) override {}
  absl::Status Synchronize() override {
    copies_.OnSynchronized();
    return device_.status();
  }
  void* ForLibraries() override {
    QueueMark();
    return static_cast<Stream*>(this);
  }
  void NoteLibraryCall(const char*) override {}
  void UseMarks(std::shared_ptr<const Marks> marks) override {
    if (!mark_.has_value()) {
      mark_memory_ = *device_.Allocate(sizeof(uint64_t));
      Clear(mark_memory_.data(), sizeof(uint64_t));
      mark_.emplace(mark_memory_.as<uint64_t>());
    }
    mark_->UseNames(std::move(marks));
  }
  void Mark(uint32_t number) override {
    if (mark_.has_value()) mark_->Set(number);
  }
  // Before whatever is queued.
  void QueueMark() {
    if (!mark_.has_value() || is_marking_) return;
    const int64_t before = device_.launches();
    is_marking_ = true;
    mark_->Queue(*this);
    is_marking_ = false;
    device_.CountMarks(device_.launches() - before);
  }
  std::string Running() const {
    return mark_.has_value() ? mark_->Running() : "";
  }
  double* partial_sums() {
    if (partial_sums_.data() == nullptr) {
      partial_sums_ = *device_.Allocate(cuda::kPartialSumsMax * sizeof(double));
    }
    return partial_sums_.as<double>();
  }

 private:
  EmulatedDevice& device_;
  CopySampler copies_;
  DeviceMemory partial_sums_;  // once a kernel wants it
  // Once there are names.
  DeviceMemory mark_memory_;
  std::optional<cuda::ProgressMark> mark_;
  bool is_marking_ = false;
};

class EmulatedEvent : public Event {
 public:
  explicit EmulatedEvent(EmulatedDevice* device) : device_(*device) {}
  void Record(Stream&) override {}
  bool IsDone() override { return true; }
  absl::Status Wait() override { return device_.status(); }

 private:
  EmulatedDevice& device_;
};

}  // namespace

void QueueMark(Stream& stream) {
  static_cast<EmulatedStream&>(stream).QueueMark();
}

EmulatedMemory* FindEmulatedMemory(const void* address) {
  Memories& memories = AllMemories();
  MutexLock lock(&memories.mu);
  auto it = memories.by_begin.upper_bound(address);
  if (it == memories.by_begin.begin()) return nullptr;
  EmulatedMemory* const memory = std::prev(it)->second.get();
  const auto* const at = static_cast<const unsigned char*>(address);
  return at <= memory->data() + memory->bytes() ? memory : nullptr;
}

EmulatedDevice::EmulatedDevice(uint64_t seed, uint64_t memory_bytes)
    : memory_bytes_(memory_bytes), random_(seed), runner_(seed) {}

EmulatedDevice::~EmulatedDevice() = default;

const KernelTable& EmulatedDevice::kernels() const { return CudaKernelTable(); }

Device::Description EmulatedDevice::description() const {
  return {.model = "emulated GPU",
          .address = "emulated",
          .memory_bytes = memory_bytes_};
}

bool EmulatedDevice::computes_in(absl::string_view op_type, DType type) const {
  return CudaComputesIn(op_type, type);
}

absl::StatusOr<DeviceMemory> EmulatedDevice::Allocate(size_t bytes) {
  if (bytes > FreeBytes()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("emulated has no ", bytes,
                     " bytes of memory: ", FreeBytes(), " are free"));
  }
  used_bytes_ += bytes;
  auto memory = std::make_unique<EmulatedMemory>("memory of the device", bytes);
  void* const data = memory->data();
  Memories& memories = AllMemories();
  MutexLock lock(&memories.mu);
  memories.by_begin[data] = std::move(memory);
  return DeviceMemory(this, data, bytes, /*is_pinned=*/false);
}

absl::StatusOr<DeviceMemory> EmulatedDevice::AllocatePinned(size_t bytes) {
  void* const data = std::malloc(std::max<size_t>(bytes, 1));
  SYNCLINE_CHECK(data != nullptr);
  return DeviceMemory(this, data, bytes, /*is_pinned=*/true);
}

void EmulatedDevice::Free(void* data, size_t bytes, bool is_pinned) {
  if (is_pinned) {
    std::free(data);
    return;
  }
  used_bytes_ -= bytes;
  Memories& memories = AllMemories();
  MutexLock lock(&memories.mu);
  memories.by_begin.erase(data);
}

absl::StatusOr<std::unique_ptr<Stream>> EmulatedDevice::MakeStream() {
  return std::make_unique<EmulatedStream>(this);
}

absl::StatusOr<std::unique_ptr<Timer>> EmulatedDevice::MakeTimer() {
  return std::make_unique<EmulatedTimer>();
}

absl::StatusOr<std::unique_ptr<Event>> EmulatedDevice::MakeEvent() {
  return std::make_unique<EmulatedEvent>(this);
}

EmulatedMemory* EmulatedDevice::Find(absl::string_view what, const void* at,
                                     size_t bytes, size_t* begin) {
  EmulatedMemory* const memory = FindEmulatedMemory(at);
  if (memory != nullptr) {
    *begin = static_cast<const unsigned char*>(at) - memory->data();
    if (*begin + bytes <= memory->bytes()) return memory;
  }
  Report(absl::StrCat(what, ": ", bytes,
                      " bytes are not within memory of the device"));
  return nullptr;
}

bool EmulatedDevice::MayRead(absl::string_view what, const void* at,
                             size_t bytes) {
  if (bytes == 0) return false;
  size_t begin = 0;
  const EmulatedMemory* const memory = Find(what, at, bytes, &begin);
  if (memory == nullptr) return false;
  if (!memory->IsWritten(begin, bytes)) {
    Report(absl::StrCat(what, ": nobody has written ", begin, " to ",
                        begin + bytes));
  }
  return true;
}

bool EmulatedDevice::MayWrite(absl::string_view what, void* at, size_t bytes) {
  if (bytes == 0) return false;
  size_t begin = 0;
  EmulatedMemory* const memory = Find(what, at, bytes, &begin);
  if (memory == nullptr) return false;
  memory->SetWritten(begin, bytes);
  return true;
}

void EmulatedDevice::Report(std::string what) {
  if (reports_.size() < kReportsMax) reports_.push_back(std::move(what));
}

absl::Status EmulatedDevice::status() const {
  if (reports_.empty()) return absl::OkStatus();
  return absl::InternalError(absl::StrJoin(reports_, "; "));
}

void EmulatedDevice::Run(int64_t blocks, int threads, size_t shared_bytes,
                         const std::string& name,
                         const std::function<void()>& kernel) {
  if (++launches_ >= fails_at_) {
    // The first error counts, as CUDA's does.
    if (launches_ > fails_at_ && !reports_.empty()) return;
    return Report(absl::StrCat(name, ": the device was lost"));
  }
  if (blocks > kBlocksMax || threads <= 0 || threads > kThreadsMax ||
      threads % cuda::kWarpThreads != 0 ||
      shared_bytes > cuda::kSharedBytesMax) {
    Report(absl::StrCat(name, ": CUDA launches no ", blocks, " blocks of ",
                        threads, " threads with ", shared_bytes,
                        " bytes of shared memory"));
    return;
  }
  blocks_ += blocks;
  std::vector<uint32_t> order(blocks);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random_);
  EmulatedMemory shared("shared memory", shared_bytes);
  for (const uint32_t block : order) {
    shared.Forget();
    runner_.Run({.launch = static_cast<uint32_t>(launches_),
                 .index = block,
                 .blocks = static_cast<uint32_t>(blocks),
                 .threads = threads,
                 .shared = &shared,
                 .report =
                     [&](const std::string& what) {
                       Report(absl::StrCat(name, ": ", what));
                     }},
                kernel);
  }
}

}  // namespace syncline::testing

namespace syncline::cuda {

namespace {

std::string Demangled(const char* name) {
  int status = 0;
  char* const text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  const std::string result = text == nullptr ? name : text;
  std::free(text);
  return result;
}

}  // namespace

Global<double> PartialSums(Stream& stream) {
  return OnDevice(static_cast<testing::EmulatedStream&>(stream).partial_sums());
}

void RunEmulated(Stream& stream, int64_t blocks, int threads,
                 size_t shared_bytes, const std::type_info& kernel_type,
                 const std::function<void()>& kernel) {
  auto& emulated = static_cast<testing::EmulatedStream&>(stream);
  emulated.QueueMark();
  const std::string running = emulated.Running();
  emulated.emulated().Run(
      blocks, threads, shared_bytes,
      absl::StrCat(Demangled(kernel_type.name()),
                   running.empty() ? "" : ", running: ", running),
      kernel);
}

}  // namespace syncline::cuda

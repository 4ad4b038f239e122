#include "tests/testing/cuda_emulator/emulated_device.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
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
constexpr char kWithinGraph[] = " within a graph";
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

// The work of a stream, in its order.
class WorkQueue {
 public:
  // The number of what is put in, from 1 on.
  int64_t Add(std::function<void()> work) {
    waiting_.push_back(std::move(work));
    return ++added_;
  }
  int64_t added() const { return added_; }
  bool IsDone(int64_t number) const { return done_ >= number; }
  void RunUntil(int64_t number) {
    while (done_ < number) {
      const std::function<void()> work = std::move(waiting_.front());
      waiting_.pop_front();
      ++done_;
      work();
    }
  }
  void RunOne() { RunUntil(std::min(done_ + 1, added_)); }
  void RunAll() { RunUntil(added_); }

 private:
  std::deque<std::function<void()>> waiting_;
  int64_t added_ = 0;
  int64_t done_ = 0;
};

class EmulatedEvent : public Event {
 public:
  explicit EmulatedEvent(EmulatedDevice* device) : device_(*device) {}
  void Record(Stream& stream) override;
  bool IsDone() override {
    return queue_ == nullptr || queue_->IsDone(number_);
  }
  absl::Status Wait() override {
    Run();
    return device_.status();
  }
  // In another stream: until what was recorded last is done.
  std::function<void()> WorkOfWaiting() const {
    return [queue = queue_, number = number_] {
      if (queue != nullptr) queue->RunUntil(number);
    };
  }

 private:
  void Run() { WorkOfWaiting()(); }

  EmulatedDevice& device_;
  std::shared_ptr<WorkQueue> queue_;  // null: nothing was recorded
  int64_t number_ = 0;
};

class EmulatedGraph : public DeviceGraph {
 public:
  EmulatedGraph(EmulatedDevice* device, std::vector<std::function<void()>> work,
                uint64_t last_mark)
      : device_(*device), work_(std::move(work)), last_mark_(last_mark) {
    device_.CountGraphs(1);
  }
  ~EmulatedGraph() override { device_.CountGraphs(-1); }

  void Launch(Stream& stream) override;

 private:
  EmulatedDevice& device_;
  const std::vector<std::function<void()>> work_;
  const uint64_t last_mark_;
};

class EmulatedStream : public cuda::LibraryStream {
 public:
  explicit EmulatedStream(EmulatedDevice* device)
      : device_(*device), copies_(&device->meter(), [] {
          return std::make_unique<EmulatedTimer>();
        }) {}
  ~EmulatedStream() override { queue_->RunAll(); }

  Device& device() override { return device_; }
  EmulatedDevice& emulated() { return device_; }

  // Does it now or later, or keeps it.
  void Queue(std::function<void()> work) {
    if (kept_.has_value()) return kept_->push_back(std::move(work));
    queue_->Add(std::move(work));
    if (!device_.works_late()) {
      queue_->RunAll();
    } else if (device_.DrawOneOf(3)) {
      queue_->RunOne();
    }
  }
  const std::shared_ptr<WorkQueue>& queue() const { return queue_; }

  void CopyToDevice(void* to, const void* from, size_t bytes) override {
    QueueMark();
    Queue([this, to, from, bytes] {
      if (!device_.MayWrite("copy to the device", to, bytes)) return;
      copies_.Begin(*this, DeviceMeter::kToDevice, bytes);
      std::memcpy(to, from, bytes);
      copies_.End(*this);
    });
  }
  void CopyToHost(void* to, const void* from, size_t bytes) override {
    QueueMark();
    Queue([this, to, from, bytes] {
      if (!device_.MayRead("copy to the host", from, bytes)) return;
      copies_.Begin(*this, DeviceMeter::kToHost, bytes);
      std::memcpy(to, from, bytes);
      copies_.End(*this);
    });
  }
  void Copy(void* to, const void* from, size_t bytes) override {
    QueueMark();
    Queue([this, to, from, bytes] {
      if (to == from || !device_.MayRead("copy", from, bytes) ||
          !device_.MayWrite("copy", to, bytes)) {
        return;
      }
      std::memcpy(to, from, bytes);
    });
  }
  void Clear(void* to, size_t bytes) override {
    QueueMark();
    Queue([this, to, bytes] {
      if (device_.MayWrite("clear", to, bytes)) std::memset(to, 0, bytes);
    });
  }
  void Wait(Event& event) override {
    if (kept_.has_value())
      return device_.Report(absl::StrCat("an event", kWithinGraph));
    Queue(static_cast<EmulatedEvent&>(event).WorkOfWaiting());
  }
  absl::Status Synchronize() override {
    if (kept_.has_value()) device_.Report(absl::StrCat("a wait", kWithinGraph));
    queue_->RunAll();
    copies_.OnSynchronized();
    return device_.status();
  }
  absl::Status BeginGraph() override {
    SYNCLINE_CHECK(device_.has_graphs() && !kept_.has_value());
    kept_.emplace();
    if (mark_.has_value()) mark_->BeginGraph();
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<DeviceGraph>> EndGraph() override {
    SYNCLINE_CHECK(kept_.has_value());
    auto work = *std::exchange(kept_, std::nullopt);
    const uint64_t last_mark = mark_.has_value() ? mark_->EndGraph() : 0;
    if (!device_.why_no_graph().ok()) return device_.why_no_graph();
    return std::make_unique<EmulatedGraph>(&device_, std::move(work),
                                           last_mark);
  }
  void Launch(const std::vector<std::function<void()>>& work,
              uint64_t last_mark) {
    SYNCLINE_CHECK(!kept_.has_value());
    for (const auto& piece : work) Queue(piece);
    if (mark_.has_value()) mark_->Continue(last_mark);
  }
  bool is_keeping() const { return kept_.has_value(); }
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
    is_marking_ = true;
    mark_->Queue(*this);
    is_marking_ = false;
  }
  bool is_marking() const { return is_marking_; }
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
  const std::shared_ptr<WorkQueue> queue_ = std::make_shared<WorkQueue>();
  // From BeginGraph to EndGraph.
  std::optional<std::vector<std::function<void()>>> kept_;
  DeviceMemory partial_sums_;  // once a kernel wants it
  // Once there are names.
  DeviceMemory mark_memory_;
  std::optional<cuda::ProgressMark> mark_;
  bool is_marking_ = false;
};

void EmulatedEvent::Record(Stream& stream) {
  auto& on = static_cast<EmulatedStream&>(stream);
  if (on.is_keeping())
    return device_.Report(absl::StrCat("an event", kWithinGraph));
  queue_ = on.queue();
  number_ = queue_->added();
}

void EmulatedGraph::Launch(Stream& stream) {
  device_.CountGraphLaunch();
  static_cast<EmulatedStream&>(stream).Launch(work_, last_mark_);
}

}  // namespace

void QueueWork(Stream& stream, std::function<void()> work) {
  auto& on = static_cast<EmulatedStream&>(stream);
  on.QueueMark();
  on.Queue(std::move(work));
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

EmulatedDevice::EmulatedDevice(uint64_t seed, uint64_t memory_bytes,
                               ProductLibrary products)
    : memory_bytes_(memory_bytes),
      product_tuner_(std::move(products)),
      random_(seed),
      runner_(seed) {}

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
  emulated.Queue([&emulated, blocks, threads, shared_bytes,
                  name = Demangled(kernel_type.name()),
                  is_mark = emulated.is_marking(), kernel] {
    const std::string running = emulated.Running();
    emulated.emulated().Run(
        blocks, threads, shared_bytes,
        absl::StrCat(name, running.empty() ? "" : ", running: ", running),
        kernel);
    if (is_mark) emulated.emulated().CountMarks(1);
  });
}

}  // namespace syncline::cuda

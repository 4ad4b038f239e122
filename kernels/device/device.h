#ifndef SYNCLINE_KERNELS_DEVICE_DEVICE_H_
#define SYNCLINE_KERNELS_DEVICE_DEVICE_H_

// A device offers memory, streams of work, and the kernels that run on them. An
// operator resolves its node to plain descriptors and calls the kernels; it
// never reads or writes a tensor's memory itself.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/dtype.h"

namespace syncline {

class Device;
class ProductTuner;
class Stream;
struct KernelTable;

// Memory of a device, or host memory that a device copies from and to without
// a detour. Owned; freed with this. Move-only.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  // `device` outlives this. `is_pinned`: as AllocatePinned made it.
  DeviceMemory(Device* device, void* data, size_t bytes, bool is_pinned)
      : device_(device), data_(data), bytes_(bytes), is_pinned_(is_pinned) {}
  DeviceMemory(DeviceMemory&& other) noexcept { Swap(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    Swap(other);
    return *this;
  }
  ~DeviceMemory();

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void Swap(DeviceMemory& other) {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(is_pinned_, other.is_pinned_);
  }

  Device* device_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
  bool is_pinned_ = false;
};

// Memory of the host, owned by somebody else, that a device copies from and to
// without a detour for as long as this is there. Move-only.
class PinnedRange {
 public:
  PinnedRange() = default;
  // `device` outlives this, and so does the memory.
  PinnedRange(Device* device, void* data) : device_(device), data_(data) {}
  PinnedRange(PinnedRange&& other) noexcept { Swap(other); }
  PinnedRange& operator=(PinnedRange&& other) noexcept {
    Swap(other);
    return *this;
  }
  ~PinnedRange();

  // Otherwise copies take a detour, which is slower and nothing else.
  bool is_pinned() const { return data_ != nullptr; }

 private:
  void Swap(PinnedRange& other) {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
  }

  Device* device_ = nullptr;
  void* data_ = nullptr;
};

class Event;

// Work of a stream that has been kept (Stream::BeginGraph), and is put into it
// by one call, again and again. Thread-compatible.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;

  // Puts all of the work into `stream`: the one that it was kept from. The
  // graph stays until the stream has done it, and so do the names of its marks.
  // A device that fails within it says in its error which of them it was
  // running.
  virtual void Launch(Stream& stream) = 0;
};

// A queue of a device's work: kernels and copies run one after the other, in
// the order in which they were put in. Calls return as soon as the work is in
// the queue; on the host the work is then done. One thread at a time.
class Stream {
 public:
  virtual ~Stream() = default;

  virtual Device& device() = 0;

  // Memory of the host stays as it is, and is not read, until the copy is done.
  virtual void CopyToDevice(void* to, const void* from, size_t bytes) = 0;
  virtual void CopyToHost(void* to, const void* from, size_t bytes) = 0;
  // Within the device. The ranges are the same or do not overlap.
  virtual void Copy(void* to, const void* from, size_t bytes) = 0;
  virtual void Clear(void* to, size_t bytes) = 0;  // with zeros
  // Work that is queued from now on begins when the latest Record of `event`,
  // in any stream of this device, is done. Does not block.
  virtual void Wait(Event& event) = 0;

  // Names for Mark, by number, until the next UseMarks. Names that are used
  // already stay as they are, and cost nothing.
  using Marks = std::vector<std::string>;
  virtual void UseMarks(std::shared_ptr<const Marks> marks) {}
  // Work that is queued from now on, until the next Mark, is that of
  // marks[number]. A device that fails later than the work was queued says in
  // its error which of them it was running. Costs a write of 8 bytes in the
  // stream, or nothing where no work follows. On the host an error needs no
  // name. REQUIRES: `number` is one of UseMarks.
  virtual void Mark(uint32_t number) {}

  // From here to EndGraph work is not done but kept, with its arguments: the
  // addresses and numbers of now. Copies to and from the host are of pinned
  // memory. Nothing waits meanwhile, for this stream or for an event in it, and
  // no event is recorded in it. Errors, with which nothing has begun:
  // Unimplemented: the device keeps no work (Device::has_graphs);
  // FailedPrecondition: it refuses.
  virtual absl::Status BeginGraph();
  // Ends it, also with an error. Errors: FailedPrecondition: some of the work
  // cannot be kept, or the device has no room; the stream goes on as if there
  // had been none of it.
  virtual absl::StatusOr<std::unique_ptr<DeviceGraph>> EndGraph();

  // Blocks until all work before this call is done. Errors: Internal: the
  // device failed; nothing more can be expected of it.
  virtual absl::Status Synchronize() = 0;
};

// A point in a stream's work. Thread-compatible.
class Event {
 public:
  virtual ~Event() = default;

  // The point is behind all work that is in the stream now.
  virtual void Record(Stream& stream) = 0;
  // Of the latest Record; true if there was none.
  virtual bool IsDone() = 0;
  // Blocks until it is done. Errors: as Stream::Synchronize.
  virtual absl::Status Wait() = 0;
};

// Thread-safe. Outlives all that it made.
class Device {
 public:
  virtual ~Device() = default;

  virtual absl::string_view name() const = 0;  // "cpu", "cuda:0"

  // For people and planners; empty where the device is the host.
  struct Description {
    std::string model = {};  // "NVIDIA H200"
    // Tells the devices of a machine apart, in all processes: "0000:3b:00.0".
    std::string address = {};
    uint64_t memory_bytes = 0;  // all that it has
    // The library of its convolutions: "cuDNN 9.19.0". Other versions may
    // choose other algorithms, which give other last bits.
    std::string convolutions = {};
    // Why it has none, for people; empty: it has.
    std::string why_no_convolutions = {};
  };
  virtual Description description() const { return {}; }
  // OK, or why the device computes nothing any more. Thread-safe.
  virtual absl::Status health() { return absl::OkStatus(); }
  // Whether matrix products and convolutions that are made from now on may
  // round their float32 factors to TF32, which has 11 bits of precision; sums
  // stay float32. A device without such products takes no notice. Thread-safe.
  virtual void AllowTf32(bool is_allowed) {}

  // Chooses the algorithms of its matrix products (product_tuner.h); null:
  // there is nothing to choose, or no library to choose from. Of the device.
  virtual ProductTuner* product_tuner() { return nullptr; }

  // The kernels. A null entry means that the device does not have that one:
  // planning refuses nodes that need it (worker/ops/op.h: RequireKernels).
  virtual const KernelTable& kernels() const = 0;

  // Arrays begin at multiples of this many bytes.
  virtual size_t alignment() const = 0;
  // How many neighbouring channels a convolution wants innermost; 1: it takes
  // them row by row (kernels/convolution.h).
  virtual int64_t channel_block() const = 0;
  // The kernels of this operator take and write arrays of this 16-bit type
  // (floats.h), and compute sums and statistics of them in float32. Where they
  // do not, a plan widens such arrays around kernels for float32
  // (worker/ops/widened_op.h).
  virtual bool computes_in(absl::string_view op_type, DType type) const {
    return false;
  }
  // Memory of the host is memory of this device: nothing needs to be copied.
  virtual bool is_host() const = 0;

  // Its streams keep work as graphs.
  virtual bool has_graphs() const { return false; }

  // Contents are undefined. Errors: ResourceExhausted: there is not as much.
  virtual absl::StatusOr<DeviceMemory> Allocate(size_t bytes) = 0;
  virtual absl::StatusOr<DeviceMemory> AllocatePinned(size_t bytes) = 0;
  // Bytes that Allocate could give now, in pieces. REQUIRES: !is_host().
  virtual uint64_t FreeBytes() { return 0; }
  // Makes copies from and to `data` as fast as those of AllocatePinned's
  // memory. The range is whole pages, or has its pages to itself. Where the
  // device or the system refuses, or the device is the host, it is not pinned.
  virtual PinnedRange Pin(void* data, size_t bytes) { return {}; }
  // Errors: Internal: the device failed.
  virtual absl::StatusOr<std::unique_ptr<Stream>> MakeStream() = 0;
  virtual absl::StatusOr<std::unique_ptr<Event>> MakeEvent() = 0;

 protected:
  friend class DeviceMemory;
  friend class PinnedRange;
  virtual void Free(void* data, size_t bytes, bool is_pinned) = 0;
  virtual void Unpin(void* data) {}
};

inline DeviceMemory::~DeviceMemory() {
  if (data_ != nullptr) device_->Free(data_, bytes_, is_pinned_);
}

inline PinnedRange::~PinnedRange() {
  if (data_ != nullptr) device_->Unpin(data_);
}

// A copy of `values` in memory of the device, complete on return: for what a
// plan computes on the host and its kernels read. Errors: Allocate's,
// MakeStream's, Synchronize's.
absl::StatusOr<DeviceMemory> Upload(Device& device, const void* values,
                                    size_t bytes);
template <typename T>
absl::StatusOr<DeviceMemory> Upload(Device& device,
                                    absl::Span<const T> values) {
  return Upload(device, values.data(), values.size() * sizeof(T));
}

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_DEVICE_H_

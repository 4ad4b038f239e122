#ifndef SYNCLINE_KERNELS_DEVICE_DEVICE_METER_H_
#define SYNCLINE_KERNELS_DEVICE_DEVICE_METER_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/device/device.h"

namespace syncline {

// Measures how long a device takes for a stretch of a stream's work, without
// waiting for it. Thread-compatible.
class Timer {
 public:
  virtual ~Timer() = default;

  // The stretch begins, and ends, behind all work that is in the stream then.
  // Cost a few microseconds each.
  virtual void Start(Stream& stream) = 0;
  virtual void Stop(Stream& stream) = 0;
  // Of the latest stretch; none: it is not over yet. Does not block.
  virtual std::optional<double> Seconds() = 0;
};

// Counts what was copied between the host and one device, and what the device
// computed. Seconds are estimates by what is timed. Thread-safe.
class DeviceMeter {
 public:
  enum Direction { kToDevice, kToHost };
  static constexpr int kDirections = 2;
  using CopiedBytes = std::array<uint64_t, kDirections>;  // by direction
  enum Pass { kForward, kBackward };
  static constexpr int kPasses = 2;

  void AddCopiedBytes(Direction direction, size_t bytes) {
    bytes_[direction].fetch_add(bytes, std::memory_order_relaxed);
  }
  void AddCopySeconds(Direction direction, double seconds);
  void AddPassSeconds(Pass pass, double seconds);

  // Of all copies that were queued.
  uint64_t copied_bytes(Direction direction) const {
    return bytes_[direction].load(std::memory_order_relaxed);
  }
  // For which streams copied.
  double copy_seconds(Direction direction) const {
    return copy_seconds_[direction].load(std::memory_order_relaxed);
  }
  // Of training steps: forward with the loss, backward with its copies.
  double pass_seconds(Pass pass) const {
    return pass_seconds_[pass].load(std::memory_order_relaxed);
  }

 private:
  std::array<std::atomic<uint64_t>, kDirections> bytes_{};
  std::array<std::atomic<double>, kDirections> copy_seconds_{};
  std::array<std::atomic<double>, kPasses> pass_seconds_{};
};

// Counts the copies of one stream, and times some of them: all those between
// two Synchronize of the stream, once in kPeriod such rounds, for the rounds
// until the next. A round that is not timed costs an addition for each copy.
// The stream's thread.
class CopySampler {
 public:
  // A prime: what comes again every few rounds is not timed each time.
  static constexpr int64_t kPeriod = 17;
  // Of one round; the others' time is taken for the same.
  static constexpr size_t kTimedMax = 512;

  using MakeTimer = std::function<std::unique_ptr<Timer>()>;
  // `meter` outlives this. A timer may be null: then nothing is timed.
  CopySampler(DeviceMeter* meter, MakeTimer make_timer)
      : meter_(*meter), make_timer_(std::move(make_timer)) {}

  // Around the call that queues a copy.
  void Begin(Stream& stream, DeviceMeter::Direction direction, size_t bytes);
  void End(Stream& stream);
  // Copies of a graph that is launched, which are not timed.
  void Count(const DeviceMeter::CopiedBytes& bytes);
  // All copies until now are done.
  void OnSynchronized();

 private:
  struct Timed {
    DeviceMeter::Direction direction = DeviceMeter::kToDevice;
    std::unique_ptr<Timer> timer;
  };

  bool is_timed() const { return round_ % kPeriod == 0; }

  DeviceMeter& meter_;
  const MakeTimer make_timer_;
  int64_t round_ = 0;
  std::vector<Timed> timed_;  // used again
  size_t used_ = 0;           // of them, in this round
  std::array<int64_t, DeviceMeter::kDirections> copies_{};  // of this round
  Timer* open_ = nullptr;                                   // of the copy
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_DEVICE_METER_H_

#ifndef SYNCLINE_COMMON_SYSTEM_DISK_THREAD_H_
#define SYNCLINE_COMMON_SYSTEM_DISK_THREAD_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"

namespace syncline {

// Counts the calls to a disk that one call of a DiskThread makes, where it
// makes many: whoever waits for it sees by them that the disk does not hang.
// Thread-safe.
class DiskCalls {
 public:
  void Add() { made_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t made() const { return made_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> made_ = 0;
};

// One thread that makes the calls to a disk which may hang, as a mounted folder
// does whose server is gone: a call that hangs cannot be ended, so whoever
// waits for it leaves. The calls that were begun are still made, in their
// order, when the disk goes on, and the thread ends behind the last one. A call
// therefore owns all that it uses. Begin, Await, Run and Get: one thread at a
// time; LeaveAt: any.
class DiskThread {
 public:
  using Call = absl::AnyInvocable<absl::Status()>;

  explicit DiskThread(absl::string_view name);
  // Waits for nothing that hangs: where a call is being made, the thread is
  // left behind.
  ~DiskThread();
  DiskThread(const DiskThread&) = delete;
  DiskThread& operator=(const DiskThread&) = delete;

  // Queues a call behind those that were begun.
  void Begin(Call call);
  // Waits until all calls that were begun are made. Nothing: it is `deadline`,
  // on the monotonic clock, and one is not. Else what the last one returned, or
  // the reason of LeaveAt.
  std::optional<absl::Status> Await(absl::Time deadline);
  // Begin, and Await without a deadline.
  absl::Status Run(Call call);
  // As Run, for a call that returns more than a status.
  template <typename T>
  absl::StatusOr<T> Get(absl::AnyInvocable<absl::StatusOr<T>()> call) {
    const auto got = std::make_shared<std::optional<absl::StatusOr<T>>>();
    SYNCLINE_RETURN_IF_ERROR(Run([call = std::move(call), got]() mutable {
      *got = call();
      return absl::OkStatus();
    }));
    return *std::move(*got);
  }

  // From `time` on, on the monotonic clock, nobody waits for a call that is not
  // made: whoever does is told `why`. The earliest `time` counts. Thread-safe.
  void LeaveAt(absl::Time time, const absl::Status& why);
  // Whether calls are still to be made. Thread-safe.
  bool is_busy() const;

 private:
  struct State;
  static void Work(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_SYSTEM_DISK_THREAD_H_

#ifndef SYNCLINE_KERNELS_CUDA_NCCL_GROUP_H_
#define SYNCLINE_KERNELS_CUDA_NCCL_GROUP_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "kernels/cuda/nccl.h"
#include "kernels/device/device.h"

namespace syncline::cuda {

// One rank's part in a group of GPUs that reduce arrays among themselves by
// NCCL. A group is for one epoch: the rank that makes its id (Nccl::MakeId)
// gives it to the others by a way that only they can read, and all of them
// join.
//
// Sums are made in an order of NCCL's own, which depends on its version, the
// number of ranks and how these are connected: they are not the bits of the
// rank order.
//
// Every wait has a deadline. A deadline that passes, an error of the library or
// of the device, and Abort break the group: NCCL ends its kernels, so the
// stream goes on, arrays that were under way are undefined, and every later
// call returns why. NCCL does not know who is missing; the caller says it
// (Options::missing).
//
// Every rank makes the same calls in the same order, with the same sizes. One
// thread at a time; Abort is thread-safe.
class NcclGroup {
 public:
  struct Options {
    const Nccl* library = nullptr;  // outlives the group
    std::string label;              // for messages: "job j-1 on worker:0"
    uint32_t rank = 0;
    uint32_t ranks = 1;
    // Names the ranks that are behind this one, when a deadline passes.
    // Called without locks of the group's; may be null.
    std::function<std::string()> missing = nullptr;
  };

  // Blocks until all ranks have joined. `stream` is of this rank's device,
  // where arrays are; it outlives the group. Deadlines are of MonotonicNow().
  // Errors: DeadlineExceeded, with who is missing; Unavailable: another rank is
  // lost; Internal: the library's others.
  static absl::StatusOr<std::unique_ptr<NcclGroup>> Join(Options options,
                                                         const NcclId& id,
                                                         Stream* stream,
                                                         absl::Time deadline);
  // Leaves the group, with the others where it is whole, for which it waits
  // some seconds.
  ~NcclGroup();

  // These put their work into the stream; Await says when it is done. Errors:
  // Join's, or why the group is broken. Arrays are on the device.

  // values[i] becomes the sum of all ranks'.
  absl::Status AllReduce(float* values, size_t count, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mu_);
  // `from` has `count` elements for each rank; `to` gets the sum of this rank's
  // part. It may be that part of `from`.
  absl::Status ReduceScatter(const float* from, float* to, size_t count,
                             absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);
  // `to` gets the `count` elements of each rank, in the order of ranks. `from`
  // may be this rank's part of it.
  absl::Status AllGather(const float* from, float* to, size_t count,
                         absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);
  // Blocks until the work that is in the stream now is done. Errors: as above;
  // the device's.
  absl::Status Await(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);

  // Breaks the group; waits end with `why`. May block: for as long as NCCL
  // takes to end its kernels and threads, and for a call of the library that
  // another thread makes at that moment.
  void Abort(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);
  // Why it is broken; OK: it is not.
  absl::Status status() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  NcclGroup(Options options, Stream* stream, std::unique_ptr<Event> event)
      : options_(std::move(options)),
        stream_(*stream),
        event_(std::move(event)) {}

  absl::Status Begin(const NcclId& id, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Puts a call's work into the stream.
  absl::Status Enqueue(
      const char* what, absl::Time deadline,
      absl::FunctionRef<NcclResult(NcclCommunicator, void* stream)> call)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Until `done` says so, or the group breaks. Asks the library for errors
  // meanwhile. `done` is called with the library's latest answer.
  absl::Status WaitFor(absl::FunctionRef<bool(NcclResult latest)> done,
                       NcclResult latest, absl::string_view what,
                       absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);
  // Until the call that gave `result` has ended.
  absl::Status Settle(NcclResult result, absl::string_view what,
                      absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);
  // The first reason stays. Returns it.
  absl::Status Break(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  Stream& stream_;
  const std::unique_ptr<Event> event_;  // of Await
  mutable Mutex mu_;
  CondVar broken_;
  // Null: it is broken, or has not begun. Calls of the library are made under
  // the lock: none of them but `abort` blocks, and none may come behind that.
  NcclCommunicator communicator_ ABSL_GUARDED_BY(mu_) = nullptr;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline::cuda

#endif  // SYNCLINE_KERNELS_CUDA_NCCL_GROUP_H_

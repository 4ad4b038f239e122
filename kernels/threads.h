#ifndef SYNCLINE_KERNELS_THREADS_H_
#define SYNCLINE_KERNELS_THREADS_H_

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace syncline {

// oneDNN's threads are libgomp's. By default an idle one spins for
// milliseconds, which several daemons on one machine take from each other.
// libgomp reads its waiting policy from the environment when it is loaded, that
// is, before main, so the only way to choose it is to start again: this sets
// OMP_WAIT_POLICY=passive and executes the program anew with the same
// arguments, unless the variable is set already. Call it first in the main of
// whatever computes, before any thread or file is opened. Returns where there
// is nothing to do or the program cannot be executed (then idle threads spin).
void RestartWithPassiveWaiting(char** argv);

// How many threads matrix products and ParallelFor that the calling thread
// starts may use; >= 1. Holds for the calling thread alone.
void SetComputeThreads(int threads);
int ComputeThreads();

// Elements of a simple loop that take longer than waking a thread.
inline constexpr int64_t kElementsPerThread = 32768;

// Calls run(begin, end) for ranges that together are [0, count), each at least
// `grain` long, at the same time on as many threads as SetComputeThreads said,
// and returns when all are done. A range too short to share is one call on this
// thread. The number of threads decides where the range is cut. A loop whose
// results must not depend on that writes each element within one call. Must not
// be called from within `run`.
void ParallelFor(int64_t count, int64_t grain,
                 absl::FunctionRef<void(int64_t, int64_t)> run);
// The same over rows of `row` elements each.
inline void ParallelForRows(int64_t rows, int64_t row,
                            absl::FunctionRef<void(int64_t, int64_t)> run) {
  ParallelFor(rows, row > 0 ? kElementsPerThread / row + 1 : 1, run);
}

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_THREADS_H_

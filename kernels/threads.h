#ifndef SYNCLINE_KERNELS_THREADS_H_
#define SYNCLINE_KERNELS_THREADS_H_

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

// How many threads matrix products that the calling thread starts may use;
// >= 1. Holds for the calling thread alone.
void SetComputeThreads(int threads);

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_THREADS_H_

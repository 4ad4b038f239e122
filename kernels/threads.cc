#include "kernels/threads.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>

#include "common/base/check.h"

// libgomp's; declared here because <omp.h> is the compiler's, and clang's is
// another library's.
extern "C" void omp_set_num_threads(int threads);
extern "C" int omp_get_max_threads();
extern "C" int omp_get_num_threads();
extern "C" int omp_get_thread_num();
// The function that gcc calls for `#pragma omp parallel`: each thread of a
// team, which is oneDNN's, calls run(data).
extern "C" void GOMP_parallel(void (*run)(void*), void* data, unsigned threads,
                              unsigned flags);

namespace syncline {

void RestartWithPassiveWaiting(char** argv) {
  static constexpr char kPolicy[] = "OMP_WAIT_POLICY";
  if (getenv(kPolicy) != nullptr) return;
  if (setenv(kPolicy, "passive", 0) != 0) return;
  // Not through /proc/self/exe itself: the process would be called "exe".
  char program[PATH_MAX] = {};
  if (readlink("/proc/self/exe", program, sizeof(program) - 1) <= 0) return;
  execv(program, argv);
}

void SetComputeThreads(int threads) {
  SYNCLINE_CHECK(threads >= 1);
  omp_set_num_threads(threads);
}

int ComputeThreads() { return omp_get_max_threads(); }

namespace {

struct Loop {
  int64_t count;
  absl::FunctionRef<void(int64_t, int64_t)> run;
};

// Runs the calling thread's share of a loop.
void RunShare(void* data) {
  const Loop& loop = *static_cast<const Loop*>(data);
  const int64_t threads = omp_get_num_threads();
  const int64_t i = omp_get_thread_num();
  loop.run(loop.count * i / threads, loop.count * (i + 1) / threads);
}

}  // namespace

void ParallelFor(int64_t count, int64_t grain,
                 absl::FunctionRef<void(int64_t, int64_t)> run) {
  SYNCLINE_CHECK(grain >= 1);
  const int64_t threads = std::min<int64_t>(ComputeThreads(), count / grain);
  if (threads <= 1) {
    if (count > 0) run(0, count);
    return;
  }
  Loop loop = {count, run};
  GOMP_parallel(RunShare, &loop, static_cast<unsigned>(threads), /*flags=*/0);
}

}  // namespace syncline

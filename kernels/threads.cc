#include "kernels/threads.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/check.h"

// libgomp's; declared here because <omp.h> is the compiler's, and clang's is
// another library's.
extern "C" void omp_set_num_threads(int threads);

namespace syncline {

void RestartWithPassiveWaiting(char** argv) {
  static constexpr char kPolicy[] = "OMP_WAIT_POLICY";
  if (getenv(kPolicy) != nullptr) return;
  // Not through /proc/self/exe itself: the process would be called "exe".
  char program[PATH_MAX] = {};
  if (readlink("/proc/self/exe", program, sizeof(program) - 1) <= 0) return;
  if (setenv(kPolicy, "passive", 0) != 0) return;
  execv(program, argv);
}

void SetComputeThreads(int threads) {
  SYNCLINE_CHECK(threads >= 1);
  omp_set_num_threads(threads);
}

}  // namespace syncline

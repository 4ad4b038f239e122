#include "kernels/threads.h"

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
  if (setenv(kPolicy, "passive", 0) != 0) return;
  execv("/proc/self/exe", argv);
}

void SetComputeThreads(int threads) {
  SYNCLINE_CHECK(threads >= 1);
  omp_set_num_threads(threads);
}

}  // namespace syncline

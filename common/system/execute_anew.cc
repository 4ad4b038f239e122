#include "common/system/execute_anew.h"

#include <limits.h>
#include <linux/close_range.h>
#include <unistd.h>

#include <csignal>

namespace syncline {

void ExecuteAnew(char** argv) {
  // Not through /proc/self/exe itself: the process would be called "exe".
  char program[PATH_MAX] = {};
  if (readlink("/proc/self/exe", program, sizeof(program) - 1) <= 0) return;
  // Ours are closed by execv anyway; those of libraries, a driver's, may not
  // be. A kernel without the call leaves these open.
  close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);
  execv(program, argv);
}

}  // namespace syncline

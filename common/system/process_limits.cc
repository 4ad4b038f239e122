#include "common/system/process_limits.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <system_error>

namespace syncline {
namespace {

// For the handler, which takes no argument; never freed.
const std::string* g_program = nullptr;

[[noreturn]] void ExplainAndExit() {
  const char* const program = g_program->c_str();
  try {
    if (const std::exception_ptr thrown = std::current_exception()) {
      std::rethrow_exception(thrown);
    }
  } catch (const std::system_error& error) {
    // Only threads throw it here: files are used with error codes.
    std::fprintf(stderr,
                 "%s: cannot start a thread: %s; are the limits of memory "
                 "(ulimit -v) and of processes (ulimit -u) large enough?\n",
                 program, error.code().message().c_str());
    _exit(EXIT_FAILURE);
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "%s: out of memory\n", program);
    _exit(EXIT_FAILURE);
  } catch (...) {
  }
  std::abort();
}

}  // namespace

uint64_t RaiseOpenFilesLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : before;
}

void ExplainUncaughtExceptions(const std::string& program) {
  g_program = new std::string(program);
  std::set_terminate(&ExplainAndExit);
}

}  // namespace syncline

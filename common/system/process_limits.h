#ifndef SYNCLINE_COMMON_SYSTEM_PROCESS_LIMITS_H_
#define SYNCLINE_COMMON_SYSTEM_PROCESS_LIMITS_H_

#include <cstdint>
#include <string>

namespace syncline {

// Raises the limit of open files (ulimit -n) as far as this user may; each
// connection takes one. Returns the limit that holds then; never fails.
uint64_t RaiseOpenFilesLimit();

// A thread that cannot be started (ulimit -v, ulimit -u), and memory that is
// exhausted, end the process with exit code 1 and one line on standard error,
// "PROGRAM: cannot start a thread: ...", instead of a core dump.
void ExplainUncaughtExceptions(const std::string& program);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_SYSTEM_PROCESS_LIMITS_H_

#ifndef SYNCLINE_COMMON_SYSTEM_EXECUTE_ANEW_H_
#define SYNCLINE_COMMON_SYSTEM_EXECUTE_ANEW_H_

namespace syncline {

// Executes this program anew with these arguments, as the same process: what it
// had is gone, threads, memory, and all open files but the standard ones, and
// no signal is blocked. Its standard output and error, its environment, its id
// and its parent stay. From any thread, at any time. Returns only if that
// cannot be done.
void ExecuteAnew(char** argv);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_SYSTEM_EXECUTE_ANEW_H_

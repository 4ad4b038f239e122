#ifndef SYNCLINE_COMMON_BASE_CHECK_H_
#define SYNCLINE_COMMON_BASE_CHECK_H_

#include <cstdio>
#include <cstdlib>

// For errors of the programmer only: never for input from a peer, file, flag,
// environment or device. Prints the condition and aborts.
#define SYNCLINE_CHECK(condition)                                           \
  do {                                                                      \
    if (!(condition)) {                                                     \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, \
                   #condition);                                             \
      std::abort();                                                         \
    }                                                                       \
  } while (false)

#endif  // SYNCLINE_COMMON_BASE_CHECK_H_

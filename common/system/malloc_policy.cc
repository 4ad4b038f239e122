#include "common/system/malloc_policy.h"

#include <cstdlib>  // defines __GLIBC__

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace syncline {

void KeepMessageMemory(int arenas) {
#ifdef __GLIBC__
  constexpr int kKeptBytes = 8 << 20;  // twice the largest message
  mallopt(M_TRIM_THRESHOLD, kKeptBytes);
  mallopt(M_MMAP_THRESHOLD, kKeptBytes);
  mallopt(M_ARENA_MAX, arenas);
#endif
}

void ReturnFreedMemory() {
#ifdef __GLIBC__
  malloc_trim(/*pad=*/0);
#endif
}

}  // namespace syncline

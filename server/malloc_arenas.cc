#include "server/malloc_arenas.h"

#include <malloc.h>

namespace syncline {

void LimitMallocArenas() {
  // The main arena and one more: gRPC's threads and the lanes rarely allocate
  // at the same time.
  mallopt(M_ARENA_MAX, 2);
}

}  // namespace syncline

#include "server/malloc_arenas.h"

#include <malloc.h>

namespace syncline {

void LimitMallocArenas() {
  // What is allocated on the way of a gradient is large and rare.
  mallopt(M_ARENA_MAX, 1);
}

}  // namespace syncline

#ifndef SYNCLINE_SERVER_MALLOC_ARENAS_H_
#define SYNCLINE_SERVER_MALLOC_ARENAS_H_

namespace syncline {

// For a process whose business is to be a ps; call it before threads start.
// glibc gives every few threads an arena of their own, and message buffers that
// one thread receives and another frees leave each of them half empty:
// measured, 70 MiB more resident with 64 MiB of parameters.
void LimitMallocArenas();

}  // namespace syncline

#endif  // SYNCLINE_SERVER_MALLOC_ARENAS_H_

#ifndef SYNCLINE_COMMON_SYSTEM_MALLOC_POLICY_H_
#define SYNCLINE_COMMON_SYSTEM_MALLOC_POLICY_H_

namespace syncline {

// Makes malloc keep the memory of messages that come and go, a few MiB each and
// hundreds a second. By default glibc returns it to the system after each one,
// and the page faults of getting it back cost half of the kernel time of a
// small training step. At most 8 MiB in each of `arenas` is kept. Threads share
// that many: fewer cost some waiting, more cost memory where one thread
// receives what another frees, as on a ps: measured, 70 MiB with 64 MiB of
// parameters. Call it once, first in main, before any thread; does nothing on
// other C libraries.
void KeepMessageMemory(int arenas);

// Gives the system what malloc keeps of freed memory, in all arenas: after work
// that needed more than what follows. Takes milliseconds a GiB; does nothing on
// other C libraries.
void ReturnFreedMemory();

}  // namespace syncline

#endif  // SYNCLINE_COMMON_SYSTEM_MALLOC_POLICY_H_

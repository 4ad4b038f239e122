// A library to preload into a process: its wall clock is ahead of the system's
// by as many nanoseconds as the 8 bytes of the file say that
// SYNCLINE_STEPPED_CLOCK names. The file may change at any time; that is a step
// of the wall clock, and waits that follow that clock follow the step, as they
// do when the system's clock is set. The monotonic clock is left alone.

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <ctime>

namespace {

constexpr int64_t kSecond = 1000000000;
// How soon a wait notices a step.
constexpr int64_t kSlice = 20000000;

template <typename Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

const std::atomic<int64_t>* MapOffset() {
  static const std::atomic<int64_t> none = 0;
  const char* path = std::getenv("SYNCLINE_STEPPED_CLOCK");
  const int fd = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return &none;
  void* const mapped =
      mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  return mapped == MAP_FAILED
             ? &none
             : static_cast<const std::atomic<int64_t>*>(mapped);
}

int64_t Offset() {
  static const std::atomic<int64_t>* const offset = MapOffset();
  return offset->load();
}

int64_t SystemNow() {
  static const auto next = Next<int (*)(clockid_t, timespec*)>("clock_gettime");
  timespec now = {};
  next(CLOCK_REALTIME, &now);
  return now.tv_sec * kSecond + now.tv_nsec;
}

timespec ToTimespec(int64_t ns) {
  return {.tv_sec = ns / kSecond, .tv_nsec = ns % kSecond};
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) {
  static const auto next = Next<int (*)(clockid_t, timespec*)>("clock_gettime");
  if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE) {
    return next(clock, time);
  }
  *time = ToTimespec(SystemNow() + Offset());
  return 0;
}

int gettimeofday(timeval* time, void* /*zone*/) {
  const timespec now = ToTimespec(SystemNow() + Offset());
  *time = {.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
  return 0;
}

time_t time(time_t* out) {
  const time_t now = (SystemNow() + Offset()) / kSecond;
  if (out != nullptr) *out = now;
  return now;
}

// Abseil's waits: a futex with a moment of the wall clock.
long syscall(long number, ...) {
  static const auto next =
      Next<long (*)(long, long, long, long, long, long, long)>("syscall");
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& argument : a) argument = va_arg(list, long);
  va_end(list);
  const auto* until = reinterpret_cast<const timespec*>(a[3]);
  if (number != SYS_futex || (a[1] & FUTEX_CLOCK_REALTIME) == 0 ||
      until == nullptr) {
    return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  }
  const int64_t wanted = until->tv_sec * kSecond + until->tv_nsec;
  for (;;) {
    const int64_t now = SystemNow();
    const int64_t real = wanted - Offset();
    const timespec slice = ToTimespec(std::min(real, now + kSlice));
    const long result = next(number, a[0], a[1], a[2],
                             reinterpret_cast<long>(&slice), a[4], a[5]);
    const bool late = wanted - Offset() <= SystemNow();
    if (result != -1 || errno != ETIMEDOUT || late) return result;
  }
}

}  // extern "C"

#ifndef SYNCLINE_COMMON_BASE_MUTEX_H_
#define SYNCLINE_COMMON_BASE_MUTEX_H_

// The only mutex of the project: std::mutex with clang's thread-safety
// annotations. absl::Mutex is not used, because its timed waits follow the wall
// clock: setting that clock back by an hour prolongs them by an hour.

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

#if defined(__SANITIZE_THREAD__)
#define SYNCLINE_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SYNCLINE_TSAN 1
#endif
#endif

namespace syncline {

class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mu_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mu_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mu_;
};

// Waits end at a deadline of MonotonicNow(); a spurious return is possible, so
// callers loop.
class CondVar {
 public:
  // Returns false if the deadline passed.
  bool WaitUntil(Mutex* mu, absl::Time deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock<std::mutex> lock(mu->mu_, std::adopt_lock);
    const bool woken =
        cv_.wait_until(lock, WakeTime(deadline)) == std::cv_status::no_timeout;
    lock.release();
    return woken;
  }
  void Signal() { cv_.notify_one(); }
  void SignalAll() { cv_.notify_all(); }

 private:
#ifdef SYNCLINE_TSAN
  // The thread sanitizer of gcc 12 knows only the wait by the system's clock.
  static std::chrono::system_clock::time_point WakeTime(absl::Time deadline) {
    return std::chrono::system_clock::now() +
           std::chrono::duration_cast<std::chrono::system_clock::duration>(
               ToSteadyTime(deadline) - std::chrono::steady_clock::now());
  }
#else
  static std::chrono::steady_clock::time_point WakeTime(absl::Time deadline) {
    return ToSteadyTime(deadline);
  }
#endif

  std::condition_variable cv_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mu) ABSL_EXCLUSIVE_LOCK_FUNCTION(mu) : mu_(mu) {
    mu_->Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mu_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mu_;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_MUTEX_H_

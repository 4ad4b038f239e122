#ifndef SYNCLINE_COMMON_BASE_MUTEX_H_
#define SYNCLINE_COMMON_BASE_MUTEX_H_

// The only mutex of the project: absl::Mutex with clang's thread-safety
// annotations. Under the thread sanitizer the same interface stands on
// std::mutex, because the distribution's Abseil is not built for the sanitizer
// and reports races that are not there.

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

#if defined(__SANITIZE_THREAD__)
#define SYNCLINE_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SYNCLINE_TSAN 1
#endif
#endif

#ifdef SYNCLINE_TSAN
#include <algorithm>
#include <condition_variable>  // NOLINT
#include <mutex>               // NOLINT

#include "absl/time/clock.h"
#endif

namespace syncline {

#ifdef SYNCLINE_TSAN

class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mu_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mu_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mu_;
};

// Waits end at a deadline; a spurious return is possible, so callers loop.
class CondVar {
 public:
  // Returns false if the deadline passed.
  bool WaitUntil(Mutex* mu, absl::Time deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock<std::mutex> lock(mu->mu_, std::adopt_lock);
    // Sanitizer builds see only the system clock's wait, never wait_for.
    const bool woken =
        cv_.wait_until(lock, absl::ToChronoTime(std::min(
                                 deadline, absl::Now() + absl::Hours(1)))) ==
        std::cv_status::no_timeout;
    lock.release();
    return woken;
  }
  void Signal() { cv_.notify_one(); }
  void SignalAll() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

#else

class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mu_.Lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mu_.Unlock(); }

 private:
  friend class CondVar;
  absl::Mutex mu_;
};

// Waits end at a deadline; a spurious return is possible, so callers loop.
class CondVar {
 public:
  // Returns false if the deadline passed.
  bool WaitUntil(Mutex* mu, absl::Time deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return !cv_.WaitWithDeadline(&mu->mu_, deadline);
  }
  void Signal() { cv_.Signal(); }
  void SignalAll() { cv_.SignalAll(); }

 private:
  absl::CondVar cv_;
};

#endif

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

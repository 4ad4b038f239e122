#include "common/system/thread_pool.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/system/thread_name.h"

namespace syncline {

ThreadPool::ThreadPool(absl::string_view name, int thread_count,
                       size_t queue_max)
    : queue_max_(queue_max) {
  SYNCLINE_CHECK(thread_count > 0);
  threads_.reserve(thread_count);
  for (int i = 0; i < thread_count; ++i) {
    threads_.emplace_back(&ThreadPool::Run, this, absl::StrCat(name, "-", i));
  }
}

ThreadPool::~ThreadPool() { Stop(); }

bool ThreadPool::TrySubmit(Task task) {
  MutexLock lock(&mu_);
  if (stopping_ || queue_.size() >= queue_max_) return false;
  queue_.push_back(std::move(task));
  wake_.Signal();
  return true;
}

void ThreadPool::Stop() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    wake_.SignalAll();
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

size_t ThreadPool::queue_length() const {
  MutexLock lock(&mu_);
  return queue_.size();
}

void ThreadPool::Run(const std::string& thread_name) {
  SetThreadName(thread_name);
  while (true) {
    Task task;
    {
      MutexLock lock(&mu_);
      while (queue_.empty()) {
        if (stopping_) return;
        wake_.WaitUntil(&mu_, MonotonicNow() + absl::Minutes(1));
      }
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    task();
  }
}

}  // namespace syncline

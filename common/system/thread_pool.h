#ifndef SYNCLINE_COMMON_SYSTEM_THREAD_POOL_H_
#define SYNCLINE_COMMON_SYSTEM_THREAD_POOL_H_

#include <cstddef>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"

namespace syncline {

// A pool of named threads that run tasks in the order they were queued (one
// thread: strictly one after the other). Thread-safe. (Executor is the name of
// the class that runs a model, worker/compute/executor.h.)
class ThreadPool {
 public:
  using Task = absl::AnyInvocable<void()>;

  // Threads are named "name-0", "name-1" ... At most `queue_max` tasks wait.
  ThreadPool(absl::string_view name, int thread_count,
             size_t queue_max = 65536);
  ~ThreadPool();  // Stop()
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Queues a task. Never blocks. False, and the task is not kept: stopped, or
  // queue_max tasks wait already. A task may submit more.
  [[nodiscard]] bool TrySubmit(Task task) ABSL_LOCKS_EXCLUDED(mu_);

  // Takes no more tasks, runs the queued ones, joins. Idempotent. Not from a
  // task.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

  size_t queue_length() const ABSL_LOCKS_EXCLUDED(mu_);
  int thread_count() const { return static_cast<int>(threads_.size()); }

 private:
  void Run(const std::string& thread_name);

  const size_t queue_max_;
  std::vector<std::thread> threads_;
  mutable Mutex mu_;
  CondVar wake_;
  std::deque<Task> queue_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_SYSTEM_THREAD_POOL_H_

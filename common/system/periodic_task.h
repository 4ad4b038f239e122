#ifndef SYNCLINE_COMMON_SYSTEM_PERIODIC_TASK_H_
#define SYNCLINE_COMMON_SYSTEM_PERIODIC_TASK_H_

#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace syncline {

// Runs one function again and again on a thread of its own: the first time
// after one period, then each period after the last start, or at once where the
// function took longer. Thread-safe.
class PeriodicTask {
 public:
  PeriodicTask(absl::string_view name, absl::Duration period,
               absl::AnyInvocable<void()> run);
  ~PeriodicTask();  // Stop()
  PeriodicTask(const PeriodicTask&) = delete;
  PeriodicTask& operator=(const PeriodicTask&) = delete;

  // Runs it now, or right after the run that is going on. Never blocks.
  void RunSoon() ABSL_LOCKS_EXCLUDED(mu_);

  // Waits for a run that is going on, joins. Idempotent. Not from the function.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Loop(const std::string& name);
  // Until the next run is due; false: stop.
  bool AwaitNext(absl::Time due) ABSL_LOCKS_EXCLUDED(mu_);

  const absl::Duration period_;
  absl::AnyInvocable<void()> run_;  // the thread's alone
  Mutex mu_;
  CondVar wake_;
  bool run_soon_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_SYSTEM_PERIODIC_TASK_H_

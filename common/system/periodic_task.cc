#include "common/system/periodic_task.h"

#include <utility>

#include "common/base/clock.h"
#include "common/system/thread_name.h"

namespace syncline {

PeriodicTask::PeriodicTask(absl::string_view name, absl::Duration period,
                           absl::AnyInvocable<void()> run)
    : period_(period),
      run_(std::move(run)),
      thread_(&PeriodicTask::Loop, this, std::string(name)) {}

PeriodicTask::~PeriodicTask() { Stop(); }

void PeriodicTask::RunSoon() {
  MutexLock lock(&mu_);
  run_soon_ = true;
  wake_.Signal();
}

void PeriodicTask::Stop() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    wake_.Signal();
  }
  if (thread_.joinable()) thread_.join();
}

bool PeriodicTask::AwaitNext(absl::Time due) {
  MutexLock lock(&mu_);
  while (!stopping_ && !run_soon_ && MonotonicNow() < due) {
    wake_.WaitUntil(&mu_, due);
  }
  run_soon_ = false;
  return !stopping_;
}

void PeriodicTask::Loop(const std::string& name) {
  SetThreadName(name);
  absl::Time due = MonotonicNow() + period_;
  while (AwaitNext(due)) {
    due = MonotonicNow() + period_;
    run_();
  }
}

}  // namespace syncline

#include "common/system/disk_thread.h"

#include <algorithm>
#include <deque>
#include <string>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/system/thread_name.h"

namespace syncline {

// The thread shares it, so that it can be left behind.
struct DiskThread::State {
  explicit State(absl::string_view name) : name(name) {}

  const std::string name;
  Mutex mu;
  CondVar changed;
  // The first one is being made.
  std::deque<Call> calls ABSL_GUARDED_BY(mu);
  absl::Status last ABSL_GUARDED_BY(mu);  // what a call has returned
  bool ends ABSL_GUARDED_BY(mu) = false;  // no more calls come
  absl::Time leave_at ABSL_GUARDED_BY(mu) = absl::InfiniteFuture();
  absl::Status why ABSL_GUARDED_BY(mu);
};

DiskThread::DiskThread(absl::string_view name)
    : state_(std::make_shared<State>(name)),
      thread_([state = state_] { Work(state); }) {}

DiskThread::~DiskThread() {
  bool is_idle = false;
  {
    MutexLock lock(&state_->mu);
    state_->ends = true;
    state_->changed.SignalAll();
    is_idle = state_->calls.empty();
  }
  if (is_idle) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void DiskThread::Begin(Call call) {
  MutexLock lock(&state_->mu);
  state_->calls.push_back(std::move(call));
  state_->changed.SignalAll();
}

std::optional<absl::Status> DiskThread::Await(absl::Time deadline) {
  MutexLock lock(&state_->mu);
  while (!state_->calls.empty()) {
    const absl::Time now = MonotonicNow();
    if (now >= state_->leave_at) return state_->why;
    if (now >= deadline) return std::nullopt;
    state_->changed.WaitUntil(&state_->mu,
                              std::min(deadline, state_->leave_at));
  }
  return state_->last;
}

absl::Status DiskThread::Run(Call call) {
  Begin(std::move(call));
  return *Await(absl::InfiniteFuture());
}

void DiskThread::LeaveAt(absl::Time time, const absl::Status& why) {
  MutexLock lock(&state_->mu);
  if (time >= state_->leave_at) return;
  state_->leave_at = time;
  state_->why = why;
  state_->changed.SignalAll();
}

bool DiskThread::is_busy() const {
  MutexLock lock(&state_->mu);
  return !state_->calls.empty();
}

void DiskThread::Work(const std::shared_ptr<State>& state) {
  SetThreadName(state->name);
  while (true) {
    Call* call = nullptr;
    {
      MutexLock lock(&state->mu);
      while (state->calls.empty()) {
        if (state->ends) return;
        state->changed.WaitUntil(&state->mu, MonotonicNow() + absl::Minutes(1));
      }
      call = &state->calls.front();  // a deque moves none when others come
    }
    const absl::Status status = (*call)();
    *call = nullptr;  // what it owns ends here, before it counts as made
    MutexLock lock(&state->mu);
    state->last = status;
    state->calls.pop_front();
    state->changed.SignalAll();
  }
}

}  // namespace syncline

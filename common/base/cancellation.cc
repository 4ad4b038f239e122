#include "common/base/cancellation.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "common/base/clock.h"

namespace syncline {

Cancellation::Scope::Scope(Cancellation* cancellation,
                           std::function<void()> end)
    : cancellation_(cancellation), end_(std::move(end)) {
  if (cancellation_ != nullptr && !cancellation_->Add(this)) end_();
}

Cancellation::Scope::~Scope() {
  if (cancellation_ != nullptr) cancellation_->Remove(this);
}

void Cancellation::Cancel() {
  std::vector<Scope*> scopes;
  {
    MutexLock lock(&mu_);
    if (cancelled_) return;
    cancelled_ = true;
    ending_ = true;
    scopes = scopes_;
  }
  for (Scope* const scope : scopes) scope->end_();
  MutexLock lock(&mu_);
  ending_ = false;
  changed_.SignalAll();
}

bool Cancellation::cancelled() const {
  MutexLock lock(&mu_);
  return cancelled_;
}

bool Cancellation::Add(Scope* scope) {
  MutexLock lock(&mu_);
  if (!cancelled_) scopes_.push_back(scope);
  return !cancelled_;
}

void Cancellation::Remove(Scope* scope) {
  MutexLock lock(&mu_);
  // The functions that Cancel calls do not block, so the wait is short.
  while (ending_) changed_.WaitUntil(&mu_, MonotonicNow() + absl::Minutes(1));
  scopes_.erase(std::remove(scopes_.begin(), scopes_.end(), scope),
                scopes_.end());
}

}  // namespace syncline

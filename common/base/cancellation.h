#ifndef SYNCLINE_COMMON_BASE_CANCELLATION_H_
#define SYNCLINE_COMMON_BASE_CANCELLATION_H_

#include <functional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"

namespace syncline {

// Ends blocking work from another thread, also work that starts later. There is
// no way back. Thread-safe.
//
//   Cancellation::Scope scope(cancellation, [&] { context->TryCancel(); });
//   ...  // blocks; ends early if another thread calls Cancel
class Cancellation {
 public:
  // Blocking work, until this is destroyed: `end` makes it return soon. It is
  // called once at most, by Cancel or, where that came before, right here; with
  // no lock held; and never after the destructor, which waits for it. It does
  // not block, and destroys no Scope. `cancellation` may be null.
  class Scope {
   public:
    Scope(Cancellation* cancellation, std::function<void()> end);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    friend class Cancellation;
    Cancellation* const cancellation_;
    const std::function<void()> end_;
  };

  void Cancel() ABSL_LOCKS_EXCLUDED(mu_);
  bool cancelled() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // False: cancelled before.
  bool Add(Scope* scope) ABSL_LOCKS_EXCLUDED(mu_);
  void Remove(Scope* scope) ABSL_LOCKS_EXCLUDED(mu_);

  mutable Mutex mu_;
  CondVar changed_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;  // Cancel calls the scopes
  std::vector<Scope*> scopes_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_CANCELLATION_H_

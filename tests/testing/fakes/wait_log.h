#ifndef SYNCLINE_TESTS_TESTING_FAKES_WAIT_LOG_H_
#define SYNCLINE_TESTS_TESTING_FAKES_WAIT_LOG_H_

#include <functional>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/base/mutex.h"

namespace syncline {

// How long a test waits for what should come at once.
inline constexpr absl::Duration kPatience = absl::Seconds(20);

// A list of events in order; a test can wait for more of them. Thread-safe.
template <typename T>
class WaitLog {
 public:
  void Add(T value) {
    MutexLock lock(&mu_);
    values_.push_back(std::move(value));
    changed_.SignalAll();
  }
  // At least `count` values; fewer if they do not come in time, which the
  // caller is to check.
  std::vector<T> Await(size_t count) {
    return AwaitThat(
        [=](const std::vector<T>& v) { return v.size() >= count; });
  }
  // All values as soon as `done` is true of them, or when patience ends.
  std::vector<T> AwaitThat(
      const std::function<bool(const std::vector<T>&)>& done) {
    const absl::Time deadline = absl::Now() + kPatience;
    MutexLock lock(&mu_);
    while (!done(values_) && changed_.WaitUntil(&mu_, deadline)) {
    }
    return values_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<T> values_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline

#endif  // SYNCLINE_TESTS_TESTING_FAKES_WAIT_LOG_H_

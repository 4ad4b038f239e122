#ifndef SYNCLINE_TESTS_BENCH_SLOWED_WORKERS_H_
#define SYNCLINE_TESTS_BENCH_SLOWED_WORKERS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "common/system/child_process.h"
#include "common/system/periodic_task.h"

namespace syncline {

// Workers on machines of their own, of which one at a time is three times as
// slow, played on this machine with SIGSTOP and SIGCONT: a slow worker runs for
// a third of the time.
//
// Workers on other machines do not take each other's processors. Where there
// are more workers than processors, they run in groups of so many as there are,
// the groups by turns of 6 ms: then each worker has its own constant share of a
// processor, whatever the others do. From construction to destruction;
// afterwards all run.
class SlowedWorkers {
 public:
  static constexpr int kFactor = 3;

  // `slow`: the worker that is slow all the time; unset: one after the other is
  // for 0.4 s, at random. The processes outlive this, and nobody else signals
  // or waits for them meanwhile.
  SlowedWorkers(std::vector<ChildProcess*> workers, std::optional<size_t> slow,
                uint64_t seed);
  ~SlowedWorkers();

  // For people: "SIGSTOP ..., in 2 groups by turns of 6 ms".
  static std::string Describe(size_t workers);

 private:
  void Tick();

  const std::vector<ChildProcess*> workers_;
  const bool is_random_;
  const size_t groups_;
  // The task's thread alone.
  size_t slow_;
  Random random_;
  uint64_t tick_ = 0;
  std::optional<PeriodicTask> ticking_;  // last: it uses the rest
};

}  // namespace syncline

#endif  // SYNCLINE_TESTS_BENCH_SLOWED_WORKERS_H_

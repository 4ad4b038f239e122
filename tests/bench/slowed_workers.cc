#include "tests/bench/slowed_workers.h"

#include <algorithm>
#include <csignal>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace syncline {
namespace {

// A slow worker runs in the first of the ticks of a turn, others in all.
constexpr int kTickMilliseconds = 2;
constexpr uint64_t kTicksOfATurn = SlowedWorkers::kFactor;
constexpr int kSlowMilliseconds = 400;

size_t GroupsOf(size_t workers) {
  const size_t processors =
      std::max<size_t>(1, std::thread::hardware_concurrency());
  return (workers + processors - 1) / processors;
}

}  // namespace

SlowedWorkers::SlowedWorkers(std::vector<ChildProcess*> workers,
                             std::optional<size_t> slow, uint64_t seed)
    : workers_(std::move(workers)),
      is_random_(!slow.has_value()),
      groups_(GroupsOf(workers_.size())),
      slow_(slow.value_or(0)),
      random_(seed) {
  ticking_.emplace("slowed-workers", absl::Milliseconds(kTickMilliseconds),
                   [this] { Tick(); });
}

SlowedWorkers::~SlowedWorkers() {
  ticking_->Stop();
  for (ChildProcess* worker : workers_) worker->Signal(SIGCONT);
}

void SlowedWorkers::Tick() {
  const uint64_t turn = tick_ / kTicksOfATurn;
  const uint64_t tick_of_turn = tick_ % kTicksOfATurn;
  if (is_random_ && tick_ % (kSlowMilliseconds / kTickMilliseconds) == 0) {
    slow_ = random_.Below(workers_.size());
  }
  ++tick_;
  // Those that stop before those that go on, who need the processors.
  if (tick_of_turn == 0) {
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (i % groups_ != turn % groups_) workers_[i]->Signal(SIGSTOP);
    }
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (i % groups_ == turn % groups_) workers_[i]->Signal(SIGCONT);
    }
  } else if (slow_ % groups_ == turn % groups_) {
    workers_[slow_]->Signal(SIGSTOP);
  }
}

std::string SlowedWorkers::Describe(size_t workers) {
  const size_t groups = GroupsOf(workers);
  std::string text =
      absl::StrCat("SIGSTOP and SIGCONT: a slow worker's process runs for 1/",
                   kFactor, " of the time");
  if (groups > 1) {
    absl::StrAppend(&text, "; for want of processors all workers run in ",
                    groups, " groups by turns of ",
                    kTickMilliseconds * kTicksOfATurn, " ms");
  }
  return text;
}

}  // namespace syncline

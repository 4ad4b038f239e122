#include "server/lanes/lanes.h"

#include <atomic>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"

namespace syncline::ps {

Lanes::Lane::Lane(int index)
    : thread(absl::StrCat("lane", index), 1,
             std::numeric_limits<size_t>::max()) {}

Lanes::Lanes(int count) {
  SYNCLINE_CHECK(count > 0);
  for (int i = 0; i < count; ++i) lanes_.push_back(std::make_unique<Lane>(i));
}

Lanes::~Lanes() {
  for (const auto& lane : lanes_) lane->thread.Stop();
}

void Lanes::Submit(int lane, Task task) {
  Lane* const target = lanes_[lane].get();
  {
    MutexLock lock(&target->mu);
    target->queue.push_back(std::move(task));
    if (std::exchange(target->running, true)) return;
  }
  Wake(target);
}

bool Lanes::SubmitHere(int lane, Task task) {
  Lane* const target = lanes_[lane].get();
  MutexLock lock(&target->mu);
  target->queue.push_back(std::move(task));
  return !std::exchange(target->running, true);
}

void Lanes::RunHere(int lane) {
  Lane* const target = lanes_[lane].get();
  Task task;
  {
    MutexLock lock(&target->mu);
    task = std::move(target->queue.front());
    target->queue.pop_front();
  }
  task(&target->scratch);
  {
    MutexLock lock(&target->mu);
    target->running = !target->queue.empty();
    if (!target->running) return;
  }
  Wake(target);  // for those that have come meanwhile
}

void Lanes::Wake(Lane* lane) {
  SYNCLINE_CHECK(lane->thread.TrySubmit([lane] { RunQueued(lane); }));
}

void Lanes::RunQueued(Lane* lane) {
  while (true) {
    Task task;
    {
      MutexLock lock(&lane->mu);
      lane->running = !lane->queue.empty();
      if (!lane->running) return;
      task = std::move(lane->queue.front());
      lane->queue.pop_front();
    }
    task(&lane->scratch);
  }
}

void Lanes::SubmitAfterAll(Task task) {
  struct Shared {
    std::atomic<size_t> left;
    Task task;
  };
  auto shared = std::make_shared<Shared>();
  shared->left = lanes_.size();
  shared->task = std::move(task);
  for (int lane = 0; lane < count(); ++lane) {
    Submit(lane, [shared](DenseUpdater::Scratch* scratch) {
      if (shared->left.fetch_sub(1) == 1) shared->task(scratch);
    });
  }
}

size_t Lanes::queued() const {
  size_t tasks = 0;
  for (const auto& lane : lanes_) {
    MutexLock lock(&lane->mu);
    tasks += lane->queue.size();
  }
  return tasks;
}

void Lanes::Drain() {
  Mutex mu;
  CondVar drained;
  bool done = false;
  SubmitAfterAll([&](DenseUpdater::Scratch*) {
    MutexLock lock(&mu);
    done = true;
    drained.Signal();
  });
  MutexLock lock(&mu);
  while (!done) drained.WaitUntil(&mu, MonotonicNow() + absl::Minutes(1));
}

}  // namespace syncline::ps

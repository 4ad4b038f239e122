#include "common/rpc/steady_event_engine.h"

#include <memory>
#include <thread>

#include "absl/base/call_once.h"
#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/system/thread_name.h"
#include "grpc/event_engine/event_engine.h"
#include "grpc/grpc.h"

namespace syncline {
namespace {

using grpc_event_engine::experimental::EndpointConfig;
using grpc_event_engine::experimental::EventEngine;
using grpc_event_engine::experimental::MemoryAllocator;
using grpc_event_engine::experimental::MemoryAllocatorFactory;

constexpr EventEngine::TaskHandle kNoTask = {{-1, -1}};

// The timers of the process, and gRPC's own engine, which runs what is due.
// Lives as long as the process: gRPC may use it to the end. Thread-safe.
class SteadyTimers {
 public:
  explicit SteadyTimers(std::unique_ptr<EventEngine> engine)
      : engine_(std::move(engine)) {
    std::thread([this] { Loop(); }).detach();
  }

  EventEngine& engine() { return *engine_; }

  EventEngine::TaskHandle RunAfter(EventEngine::Duration after,
                                   TimerQueue::Function function)
      ABSL_LOCKS_EXCLUDED(mu_) {
    if (after <= EventEngine::Duration::zero()) {
      engine_->Run(std::move(function));
      return kNoTask;
    }
    const absl::Time due = MonotonicNow() + absl::FromChrono(after);
    MutexLock lock(&mu_);
    const bool first = due < queue_.next_due();
    const int64_t id = queue_.Add(due, std::move(function));
    if (first) wake_.Signal();
    return {{static_cast<intptr_t>(id), 0}};
  }

  bool Cancel(EventEngine::TaskHandle task) ABSL_LOCKS_EXCLUDED(mu_) {
    // Destroyed after the lock: what it holds may cancel timers of its own.
    std::optional<TimerQueue::Function> function;
    MutexLock lock(&mu_);
    function = queue_.Take(task.keys[0]);
    return function.has_value();
  }

 private:
  [[noreturn]] void Loop() {
    SetThreadName("grpc-steady");
    for (;;) {
      for (TimerQueue::Function& function : AwaitDue()) {
        engine_->Run(std::move(function));
      }
    }
  }

  std::vector<TimerQueue::Function> AwaitDue() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    while (MonotonicNow() < queue_.next_due()) {
      wake_.WaitUntil(&mu_, queue_.next_due());
    }
    return queue_.TakeDue(MonotonicNow());
  }

  const std::unique_ptr<EventEngine> engine_;
  Mutex mu_;
  CondVar wake_;
  TimerQueue queue_ ABSL_GUARDED_BY(mu_);
};

// What gRPC gets whenever it asks for an engine; it destroys it and asks again
// as it likes.
class SteadyEventEngine final : public EventEngine {
 public:
  explicit SteadyEventEngine(SteadyTimers* timers) : timers_(*timers) {}

  absl::StatusOr<std::unique_ptr<Listener>> CreateListener(
      Listener::AcceptCallback on_accept,
      absl::AnyInvocable<void(absl::Status)> on_shutdown,
      const EndpointConfig& config,
      std::unique_ptr<MemoryAllocatorFactory> memory_allocators) override {
    return timers_.engine().CreateListener(std::move(on_accept),
                                           std::move(on_shutdown), config,
                                           std::move(memory_allocators));
  }
  ConnectionHandle Connect(OnConnectCallback on_connect,
                           const ResolvedAddress& address,
                           const EndpointConfig& config,
                           MemoryAllocator memory_allocator,
                           Duration timeout) override {
    return timers_.engine().Connect(std::move(on_connect), address, config,
                                    std::move(memory_allocator), timeout);
  }
  bool CancelConnect(ConnectionHandle handle) override {
    return timers_.engine().CancelConnect(handle);
  }
  bool IsWorkerThread() override { return timers_.engine().IsWorkerThread(); }
  std::unique_ptr<DNSResolver> GetDNSResolver(
      const DNSResolver::ResolverOptions& options) override {
    return timers_.engine().GetDNSResolver(options);
  }
  void Run(Closure* closure) override { timers_.engine().Run(closure); }
  void Run(absl::AnyInvocable<void()> closure) override {
    timers_.engine().Run(std::move(closure));
  }
  TaskHandle RunAfter(Duration when, Closure* closure) override {
    return timers_.RunAfter(when, [closure] { closure->Run(); });
  }
  TaskHandle RunAfter(Duration when,
                      absl::AnyInvocable<void()> closure) override {
    return timers_.RunAfter(when, std::move(closure));
  }
  bool Cancel(TaskHandle handle) override { return timers_.Cancel(handle); }

 private:
  SteadyTimers& timers_;
};

}  // namespace

int64_t TimerQueue::Add(absl::Time due, Function function) {
  const int64_t id = ++last_id_;
  timers_.emplace(std::pair(due, id), std::move(function));
  due_.emplace(id, due);
  return id;
}

std::optional<TimerQueue::Function> TimerQueue::Take(int64_t id) {
  const auto due = due_.find(id);
  if (due == due_.end()) return std::nullopt;
  const auto timer = timers_.find({due->second, id});
  Function function = std::move(timer->second);
  timers_.erase(timer);
  due_.erase(due);
  return function;
}

std::vector<TimerQueue::Function> TimerQueue::TakeDue(absl::Time now) {
  std::vector<Function> taken;
  while (!timers_.empty() && next_due() <= now) {
    const auto first = timers_.begin();
    taken.push_back(std::move(first->second));
    due_.erase(first->first.second);
    timers_.erase(first);
  }
  return taken;
}

absl::Time TimerQueue::next_due() const {
  return timers_.empty() ? absl::InfiniteFuture()
                         : timers_.begin()->first.first;
}

void UseSteadyEventEngine() {
  static absl::once_flag once;
  absl::call_once(once, [] {
    namespace grpc_engine = grpc_event_engine::experimental;
    // Never undone: the engine lives as long as the process.
    grpc_init();
    auto* const timers = new SteadyTimers(grpc_engine::CreateEventEngine());
    grpc_engine::SetEventEngineFactory(
        [timers] { return std::make_unique<SteadyEventEngine>(timers); });
  });
}

}  // namespace syncline

#include "scheduler/service/events_stream.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/rpc/grpc_status.h"
#include "scheduler/core/describe.h"
#include "scheduler/core/stopping.h"

namespace syncline::scheduler {
namespace {

// Of a reader that does not come after them.
constexpr size_t kWaitingMax = 4 * JobEventLog::kMax;

class EventsReactor final : public grpc::ServerWriteReactor<JobEvent>,
                            public ControlLoop::Watcher {
 public:
  static grpc::ServerWriteReactor<JobEvent>* Start(
      ControlLoop* loop, const EventsRequest& request) {
    std::shared_ptr<EventsReactor> reactor(
        new EventsReactor(loop, request.job_id()));
    reactor->self_ = reactor;
    if (request.follow()) {
      const absl::Status watched = loop->Watch(reactor->job_id_, reactor);
      if (!watched.ok()) reactor->End(watched);
    } else {
      reactor->Take(/*is_last=*/true);
    }
    return reactor.get();
  }

  // One call at a time.
  void OnStatus(std::shared_ptr<const JobStatus> status) override {
    Take(IsFinal(status->state()));
  }
  void OnDrain() override { End(SchedulerStopping()); }

 private:
  EventsReactor(ControlLoop* loop, std::string job_id)
      : loop_(loop), job_id_(std::move(job_id)) {}

  // Fetches what is new. `is_last`: nothing comes after that.
  void Take(bool is_last) {
    auto list = loop_->Events(job_id_, next_);
    if (!list.ok()) return End(list.status());
    MutexLock lock(&mu_);
    if (ended_) return;
    if (list->left_out + 1 > next_) {
      JobEvent& gap = waiting_.emplace_back();
      if (!list->events.empty()) {
        *gap.mutable_time() = list->events[0].event.time();
      }
      gap.set_kind("scheduler");
      gap.set_text(absl::StrCat("earlier events are no longer kept: ",
                                list->left_out + 1 - next_));
    }
    for (StoredEvent& stored : list->events) {
      next_ = stored.number + 1;
      waiting_.push_back(std::move(stored.event));
    }
    is_last_ = is_last_ || is_last;
    if (waiting_.size() > kWaitingMax) {
      return EndLocked(absl::ResourceExhaustedError(
          "events come faster than they are read; ask again"));
    }
    if (!writing_) WriteNext();
  }

  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    writing_ = !waiting_.empty();
    if (writing_) return StartWrite(&waiting_.front());
    if (is_last_) EndLocked(absl::OkStatus());
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&mu_);
    waiting_.pop_front();
    if (ended_) return;
    if (!ok) return EndLocked(absl::CancelledError("the user left"));
    WriteNext();
  }
  void OnCancel() override { End(absl::CancelledError("the user left")); }
  void OnDone() override {
    loop_->Unwatch(job_id_, this);
    const std::shared_ptr<EventsReactor> self = std::move(self_);
  }

  void End(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    if (!ended_) EndLocked(status);
  }
  void EndLocked(const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    ended_ = true;
    Finish(ToGrpcStatus(status));
  }

  ControlLoop* const loop_;
  const std::string job_id_;
  std::shared_ptr<EventsReactor> self_;  // until gRPC is done with it
  uint64_t next_ = 1;                    // Take's

  Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool is_last_ ABSL_GUARDED_BY(mu_) = false;
  // The front is being written while writing_ is true. Stable addresses.
  std::deque<JobEvent> waiting_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

grpc::ServerWriteReactor<JobEvent>* SendEvents(ControlLoop* loop,
                                               const EventsRequest& request) {
  return EventsReactor::Start(loop, request);
}

}  // namespace syncline::scheduler

#include "common/cluster/scheduler_session.h"

#include <deque>
#include <utility>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "common/cluster/session_core.h"
#include "common/cluster/utf8_fields.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "common/system/log.h"
#include "common/system/periodic_task.h"
#include "common/system/thread_pool.h"
#include "proto/scheduler.grpc.pb.h"

namespace syncline {
namespace {

constexpr absl::Duration kTickPeriod = absl::Milliseconds(100);
// A session has no natural end: leases, keep-alive and the answer timeout find
// what is stuck long before this.
constexpr absl::Duration kStreamLife = absl::Hours(24 * 365);
// While there is no session, the reason is logged this often.
constexpr absl::Duration kComplaintPeriod = absl::Seconds(30);
// How long the end of a cancelled stream may take before a line is logged.
constexpr absl::Duration kCloseWarning = absl::Seconds(5);

// Told what happens on a stream; from gRPC's threads.
class StreamListener {
 public:
  virtual ~StreamListener() = default;
  virtual void OnMessage(const SchedulerMessage& message) = 0;
  // The last call; the stream may be destroyed after it has returned.
  virtual void OnEnded(const absl::Status& status) = 0;
};

// One stream. Lives until its listener was told that it has ended, and must not
// be destroyed by a reaction: with the last channel, gRPC joins the very thread
// that reactions run on. Thread-safe.
class SessionStream final
    : public grpc::ClientBidiReactor<DaemonMessage, SchedulerMessage> {
 public:
  SessionStream(const std::shared_ptr<grpc::Channel>& channel,
                StreamListener* listener)
      : listener_(listener),
        stub_(Daemons::NewStub(channel)),
        context_(MakeContext(MonotonicNow() + kStreamLife)) {
    stub_->async()->Session(context_.get(), this);
    // Writes start outside of reactions: the hold keeps OnDone away until the
    // reading side has seen the end.
    AddHold();
    StartRead(&incoming_);
    StartCall();
  }

  // Queues; dropped once the stream has ended.
  void Write(DaemonMessage message) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    outgoing_.push_back(std::move(message));
    if (outgoing_.size() == 1 && !ended_) StartWrite(&outgoing_.front());
  }
  // OnEnded follows.
  void Cancel() { context_->TryCancel(); }

 private:
  void OnReadDone(bool ok) override {
    if (ok) {
      listener_->OnMessage(incoming_);
      StartRead(&incoming_);
      return;
    }
    {
      MutexLock lock(&mu_);
      ended_ = true;
    }
    RemoveHold();
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&mu_);
    if (!ok) return;  // the stream is over
    outgoing_.pop_front();
    if (!ended_ && !outgoing_.empty()) StartWrite(&outgoing_.front());
  }

  void OnDone(const grpc::Status& status) override {
    listener_->OnEnded(
        status.ok() ? absl::UnavailableError("the scheduler closed the stream")
                    : FromGrpcStatus(status));
  }

  StreamListener* const listener_;
  const std::unique_ptr<Daemons::Stub> stub_;
  const std::unique_ptr<grpc::ClientContext> context_;
  SchedulerMessage incoming_;  // reactions only

  Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  // The front one is being written.
  std::deque<DaemonMessage> outgoing_ ABSL_GUARDED_BY(mu_);
};

// Feeds a SessionCore and carries out what it decides. One stream at a time:
// the core opens the next one in a tick, after it was told that the last one
// has ended.
class SchedulerSessionImpl final : public SchedulerSession,
                                   public StreamListener {
 public:
  SchedulerSessionImpl(const Options& options, Callbacks callbacks)
      : callbacks_(std::move(callbacks)),
        scheduler_address_(options.scheduler_address),
        channel_(
            MakeChannel(options.scheduler_address, ExpectedPeer::kScheduler)),
        core_({.scheduler_address = options.scheduler_address,
               .self = options.self,
               .auto_index = options.auto_index,
               .connect_timeout = options.connect_timeout,
               .task_taken_timeout = options.task_taken_timeout,
               .orphan_timeout = options.orphan_timeout,
               .one_job_orphan_timeout = options.one_job_orphan_timeout,
               .seed = EntropySeed()}),
        delivery_("session", 1),
        ticker_("session-tick", kTickPeriod, [this] { Tick(); }) {
    MutexLock lock(&mu_);
    SessionActions actions;
    core_.Start(MonotonicNow(), &actions);
    Execute(&actions);
  }

  ~SchedulerSessionImpl() override {
    ticker_.Stop();
    CloseStreamAndWait();
    delivery_.Stop();
  }

  void Send(DaemonMessage message) override ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    SessionActions actions;
    core_.Send(std::move(message), &actions);
    Execute(&actions);
  }

  void SetRunningJob(std::string job_id) override ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    core_.SetRunningJob(std::move(job_id));
  }

 private:
  void Tick() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    SessionActions actions;
    core_.OnTick(MonotonicNow(), &actions);
    Execute(&actions);
  }

  void OnMessage(const SchedulerMessage& message) override
      ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    SessionActions actions;
    core_.OnMessage(message, MonotonicNow(), &actions);
    Execute(&actions);
  }

  void OnEnded(const absl::Status& status) override ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    SessionActions actions;
    core_.OnStreamEnded(status, MonotonicNow(), &actions);
    // One that was registered for long comes back at once where its connection
    // had its age, or is told as lost.
    const bool had_its_age =
        absl::IsUnavailable(status) &&
        MonotonicNow() - std::exchange(registered_at_, absl::InfiniteFuture()) >
            kComplaintPeriod;
    if (!closing_ && !core_.closed() && !had_its_age) Complain(status);
    Execute(&actions);
    stream_open_ = false;
    stream_ended_.SignalAll();
  }

  // Members of a cluster start in any order: one line, then now and then.
  void Complain(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const absl::Time now = MonotonicNow();
    if (now < complain_at_) return;
    complain_at_ = now + kComplaintPeriod;
    LogWarning("no session with the scheduler, trying again")
        .Field("scheduler", scheduler_address_)
        .Status(status);
  }

  void CloseStreamAndWait() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    closing_ = true;
    if (stream_open_) stream_->Cancel();
    // A cancelled call ends at once; until it has, gRPC uses the stream.
    while (stream_open_) {
      if (!stream_ended_.WaitUntil(&mu_, MonotonicNow() + kCloseWarning)) {
        LogWarning("the stream to the scheduler has not ended yet");
      }
    }
  }

  // Nothing here blocks or calls back: gRPC runs reactions on its own threads,
  // and the user's callbacks run on delivery_.
  void Execute(SessionActions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (closing_) return;
    for (SessionAction& action : *actions) {
      if (std::holds_alternative<OpenStream>(action)) {
        SYNCLINE_CHECK(!stream_open_);
        stream_ = std::make_unique<SessionStream>(channel_, this);
        stream_open_ = true;
      } else if (std::holds_alternative<CloseStream>(action)) {
        if (stream_open_) stream_->Cancel();
      } else if (auto* write = std::get_if<WriteEvent>(&action)) {
        MakeStringsUtf8(&write->event);
        if (stream_open_) stream_->Write(std::move(write->event));
      } else if (auto* loss = std::get_if<AnnounceLoss>(&action)) {
        LogLoss(*loss);
        Deliver(std::move(action));
      } else if (auto* older = std::get_if<IgnoreOlder>(&action)) {
        LogWarning("a scheduler answered that has been replaced; it is ignored")
            .Field("scheduler", scheduler_address_)
            .Field("its_epoch", older->epoch)
            .Field("epoch", older->newest);
      } else {
        Deliver(std::move(action));
      }
    }
  }

  void LogLoss(const AnnounceLoss& loss) {
    LogWarning line(loss.job_id.empty()
                        ? "the scheduler is lost"
                        : "the scheduler is lost: the job is orphaned");
    if (!loss.job_id.empty()) line.Job(loss.job_id);
    line.Field("scheduler", scheduler_address_)
        .Field("waits", absl::FormatDuration(loss.wait))
        .Field("then", loss.then)
        .Status(loss.why);
  }

  void Deliver(SessionAction action) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const bool queued = delivery_.TrySubmit(
        [this, action = std::move(action)] { CallBack(action); });
    // A scheduler has a handful of commands in flight, not 65,536.
    if (!queued) LogError("commands of the scheduler are not taken");
  }

  void CallBack(const SessionAction& action) ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(&mu_);
      if (closing_) return;
    }
    if (auto* command = std::get_if<DeliverCommand>(&action)) {
      if (callbacks_.on_command) callbacks_.on_command(command->command);
    } else if (auto* registered = std::get_if<DeliverRegistered>(&action)) {
      {
        MutexLock lock(&mu_);
        complain_at_ = absl::InfinitePast();
        registered_at_ = MonotonicNow();
      }
      if (callbacks_.on_registered) {
        callbacks_.on_registered(registered->registered);
      }
    } else if (auto* loss = std::get_if<AnnounceLoss>(&action)) {
      if (callbacks_.on_lost) callbacks_.on_lost(loss->why);
    } else if (auto* rejected = std::get_if<DeliverRejected>(&action)) {
      if (callbacks_.on_rejected) callbacks_.on_rejected(rejected->status);
    }
  }

  const Callbacks callbacks_;
  const std::string scheduler_address_;  // for messages
  const std::shared_ptr<grpc::Channel> channel_;

  Mutex mu_;
  absl::Time complain_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  CondVar stream_ended_;
  SessionCore core_ ABSL_GUARDED_BY(mu_);
  // The last one, also when it has ended.
  std::unique_ptr<SessionStream> stream_ ABSL_GUARDED_BY(mu_);
  bool stream_open_ ABSL_GUARDED_BY(mu_) = false;
  // By this stream; InfiniteFuture: it is not yet.
  absl::Time registered_at_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  bool closing_ ABSL_GUARDED_BY(mu_) = false;

  ThreadPool delivery_;
  PeriodicTask ticker_;
};

}  // namespace

std::unique_ptr<SchedulerSession> SchedulerSession::Start(Options options,
                                                          Callbacks callbacks) {
  return std::make_unique<SchedulerSessionImpl>(options, std::move(callbacks));
}

}  // namespace syncline

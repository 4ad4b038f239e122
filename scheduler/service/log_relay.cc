#include "scheduler/service/log_relay.h"

#include <algorithm>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/cluster/member_logs_service.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/user_calls.h"
#include "common/system/log_file_reader.h"
#include "common/system/log_splicer.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/support/async_stream.h"
#include "proto/scheduler.grpc.pb.h"
#include "scheduler/core/cluster/log_sources.h"
#include "scheduler/core/describe.h"
#include "scheduler/core/stopping.h"

namespace syncline::scheduler {
namespace {

constexpr size_t kTasksMax = 256;
constexpr absl::Duration kUserStall = absl::Minutes(5);
// Of a task, and of all.
constexpr size_t kTailBytesMax = 64 << 10;
constexpr absl::Duration kTailLimit = absl::Seconds(4);
constexpr absl::Duration kIdle = absl::Milliseconds(200);
constexpr absl::Duration kLookPeriod = absl::Milliseconds(500);
// A member that has all its lines says the next one within moments.
constexpr absl::Duration kSilenceMax = absl::Seconds(10);
constexpr absl::Duration kCallMax = absl::Hours(1);
constexpr absl::Duration kRetry = absl::Seconds(1);
// A call that breaks after so long, which is longer than to connect may take,
// may be one whose connection has had its age, as all have under TLS.
constexpr absl::Duration kLongCall = absl::Seconds(6);
// A job that has ended has no more lines when nothing was heard for so long, or
// when the last ones still trickle in after so long.
constexpr absl::Duration kQuiet = absl::Seconds(1);
constexpr absl::Duration kLastLinesMax = absl::Minutes(10);

absl::Status UserGone() {
  return absl::CancelledError("the user left, or the connection had its age");
}

// Where lines go. Thread-compatible, but for what is said of its parts.
class LogSink {
 public:
  virtual ~LogSink() = default;
  virtual void Write(LogLines lines) = 0;
  // Nobody wants more.
  virtual bool gone() const = 0;
};

// The user's side.
class UserStream final : public grpc::ServerWriteReactor<LogLines>,
                         public LogSink {
 public:
  explicit UserStream(grpc::CallbackServerContext* call) : call_(call) {}
  void Own(std::shared_ptr<UserStream> self) { self_ = std::move(self); }

  // Blocks until the lines before have left, or the user.
  void Write(LogLines lines) override ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::Time deadline = MonotonicNow() + kUserStall;
    MutexLock lock(&mu_);
    while (is_writing_ && !gone_) {
      if (!changed_.WaitUntil(&mu_, deadline)) break;
    }
    if (is_writing_ && !gone_) {
      // The outcome would wait behind the lines: the call is broken.
      call_->TryCancel();
      gone_ = true;
    }
    if (gone_) return;
    lines_ = std::move(lines);
    is_writing_ = true;
    StartWrite(&lines_);
  }

  bool gone() const override ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    return gone_;
  }

  // Once; nothing is written any more.
  void End(const absl::Status& status) { Finish(ToGrpcStatus(status)); }

 private:
  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    is_writing_ = false;
    gone_ = gone_ || !ok;
    changed_.SignalAll();
  }
  void OnCancel() override ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    gone_ = true;
    changed_.SignalAll();
  }
  void OnDone() override {
    const std::shared_ptr<UserStream> self = std::move(self_);
  }

  grpc::CallbackServerContext* const call_;  // until OnDone
  std::shared_ptr<UserStream> self_;         // until gRPC is done with it
  mutable Mutex mu_;
  CondVar changed_;
  bool is_writing_ ABSL_GUARDED_BY(mu_) = false;
  bool gone_ ABSL_GUARDED_BY(mu_) = false;
  LogLines lines_;  // being written
};

// Collects the lines of each task, until a time limit. Thread-safe.
class TailSink final : public LogSink {
 public:
  explicit TailSink(absl::Time deadline) : deadline_(deadline) {}

  void Write(LogLines lines) override ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    for (LogLines& part : parts_) {
      if (part.task().type() != lines.task().type() ||
          part.task().index() != lines.task().index()) {
        continue;
      }
      part.mutable_text()->append(lines.text());
      // The last lines count.
      if (part.text().size() > kTailBytesMax) {
        const size_t begin =
            part.text().find('\n', part.text().size() - kTailBytesMax);
        part.mutable_text()->erase(0, begin + 1);
      }
      return;
    }
    parts_.push_back(std::move(lines));
  }
  bool gone() const override { return MonotonicNow() >= deadline_; }

  void End(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    status_ = status;
    ended_.SignalAll();
  }
  absl::StatusOr<std::vector<LogLines>> Await() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    while (!status_.has_value() && ended_.WaitUntil(&mu_, deadline_)) {
    }
    const bool is_late = !status_.has_value() || absl::IsCancelled(*status_);
    if (!is_late && !status_->ok()) return *status_;
    return parts_;
  }

 private:
  const absl::Time deadline_;
  Mutex mu_;
  CondVar ended_;
  std::optional<absl::Status> status_ ABSL_GUARDED_BY(mu_);
  std::vector<LogLines> parts_ ABSL_GUARDED_BY(mu_);
};

// A call to a member.
struct MemberCall {
  uint64_t incarnation = 0;
  std::unique_ptr<MemberLogs::Stub> stub;
  std::unique_ptr<grpc::ClientContext> context;
  std::unique_ptr<grpc::ClientAsyncReader<LogLines>> reader;
  LogLines lines;
  grpc::Status status;
  absl::Time began;
  absl::Time asked;  // for what comes next
  bool is_finishing = false;
  bool is_given_up = false;  // cancelled here
};

// A task of the job.
struct Follower {
  LogSource source;
  LogSplicer splicer;
  std::unique_ptr<MemberCall> call;
  absl::Time begin_at = absl::InfinitePast();  // not before
  std::string told;                            // the last note
  bool is_over = false;
};

// One call of Jobs.Logs. For one thread.
class LogRelay {
 public:
  LogRelay(const ServiceContext& context, LogsRequest request, LogSink* stream)
      : context_(context), request_(std::move(request)), stream_(stream) {}

  ~LogRelay() {
    is_closing_ = true;
    for (Follower& follower : followers_) {
      if (follower.call != nullptr) follower.call->context->TryCancel();
    }
    // Cancelled calls end by themselves.
    while (open_calls_ > 0) HandleEvent();
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  absl::Status Run() {
    SYNCLINE_RETURN_IF_ERROR(Look());
    began_final_ = is_final_;
    for (;;) {
      if (stream_->gone()) return UserGone();
      if (context_.logs->stopping() || context_.loop->draining()) {
        return SchedulerStopping();
      }
      if (MonotonicNow() >= look_at_) SYNCLINE_RETURN_IF_ERROR(Look());
      for (Follower& follower : followers_) {
        SYNCLINE_RETURN_IF_ERROR(Advance(&follower));
      }
      if (IsOver()) return absl::OkStatus();
      HandleEvent();
    }
  }

 private:
  // Answers that have come and were not read yet count as heard: with a user
  // who reads slowly the answers of the others wait in the queue.
  bool IsOver() const {
    const bool all = std::all_of(followers_.begin(), followers_.end(),
                                 [](const auto& f) { return f.is_over; });
    if (all && (!request_.follow() || is_final_)) return true;
    if (!request_.follow() || !is_final_ || !is_queue_empty_) return false;
    const absl::Time now = MonotonicNow();
    return now >= std::max(final_at_, listening_since_) + kLastLinesMax ||
           now >= std::max({final_at_, listening_since_, heard_at_}) + kQuiet;
  }

  // Reads where the job is, and who has its logs.
  absl::Status Look() {
    look_at_ = MonotonicNow() + kLookPeriod;
    absl::StatusOr<std::vector<LogSource>> sources;
    context_.loop->Read([&](const ClusterCore& core, absl::Time) {
      sources = LogSourcesOf(core, request_.job_id(),
                             request_.has_task() ? &request_.task() : nullptr);
      const auto job = core.FindJob(request_.job_id());
      if (!job.ok()) return;
      const bool was_final = std::exchange(is_final_, (*job)->IsOver());
      if (!was_final && is_final_) final_at_ = MonotonicNow();
      trace_id_ = (*job)->status().trace_id();
    });
    SYNCLINE_RETURN_IF_ERROR(sources.status());
    if (sources->size() > kTasksMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("job ", request_.job_id(), " has ", sources->size(),
                       " tasks, more than ", kTasksMax, ": name one"));
    }
    for (LogSource& source : *sources) Update(std::move(source));
    return absl::OkStatus();
  }

  void Update(LogSource source) {
    for (Follower& follower : followers_) {
      const Task& task = follower.source.task;
      if (task.type() != source.task.type() ||
          task.index() != source.task.index()) {
        continue;
      }
      follower.source = std::move(source);
      MemberCall* const call = follower.call.get();
      if (call != nullptr && !call->is_given_up &&
          call->incarnation != follower.source.incarnation) {
        call->is_given_up = true;
        call->context->TryCancel();
      }
      return;
    }
    followers_.emplace_back().source = std::move(source);
  }

  // Begins to read, where that is due; ends what does not answer.
  absl::Status Advance(Follower* follower) {
    const absl::Time now = MonotonicNow();
    MemberCall* const call = follower->call.get();
    if (call != nullptr) {
      // With `follow` a member may have nothing to say for long.
      if (!request_.follow() && !call->is_given_up && !call->is_finishing &&
          is_queue_empty_ &&
          now > std::max(call->asked, listening_since_) + kSilenceMax) {
        call->is_given_up = true;
        call->context->TryCancel();
        Tell(follower, "its log cannot be read",
             absl::StrCat(follower->source.address, " does not answer"));
        follower->is_over = true;
      }
      return absl::OkStatus();
    }
    if (follower->is_over || now < follower->begin_at) return absl::OkStatus();
    const LogSource& source = follower->source;
    if (began_final_ && !source.artifact.empty()) return GiveArtifact(follower);
    if (source.incarnation != 0) {
      Begin(follower);
      return absl::OkStatus();
    }
    if (!source.artifact.empty() && follower->told.empty()) {
      SYNCLINE_RETURN_IF_ERROR(GiveArtifact(follower));
    }
    Tell(follower, "its log ends here",
         "no process has this task now; one that has it later, and the same "
         "--work-dir, has the rest");
    follower->is_over = began_final_ || !request_.follow();
    follower->begin_at = now + kRetry;
    return absl::OkStatus();
  }

  void Begin(Follower* follower) {
    const LogSource& source = follower->source;
    follower->splicer.Restart();
    auto call = std::make_unique<MemberCall>();
    call->incarnation = source.incarnation;
    call->stub = MemberLogs::NewStub(MakeChannel(source.address));
    call->context = MakeContext(MonotonicNow() + kCallMax);
    if (!trace_id_.empty()) {
      call->context->AddMetadata(kTraceMetadata, trace_id_);
    }
    MemberLogRequest request;
    request.set_incarnation(source.incarnation);
    request.set_job_id(request_.job_id());
    request.set_follow(request_.follow() && !began_final_);
    if (!follower->splicer.has_lines()) {
      request.set_tail_lines(request_.tail_lines());
    }
    call->began = call->asked = MonotonicNow();
    call->reader =
        call->stub->AsyncRead(call->context.get(), request, &queue_, follower);
    follower->call = std::move(call);
    ++open_calls_;
  }

  absl::Status GiveArtifact(Follower* follower) {
    follower->is_over = began_final_;
    const std::string path = context_.artifacts->PathOf(
        request_.job_id(), follower->source.artifact);
    const auto reader = LogFileReader::Open(path, request_.tail_lines());
    if (!reader.ok()) {
      Tell(follower, "its log cannot be read", reader.status().message());
      return absl::OkStatus();
    }
    for (;;) {
      SYNCLINE_ASSIGN_OR_RETURN(std::string text, (*reader)->Next());
      if (text.empty()) return absl::OkStatus();
      Give(follower, std::move(text));
      if (stream_->gone()) return UserGone();
    }
  }

  void Give(Follower* follower, std::string text) {
    if (is_closing_) return;
    LogLines lines;
    *lines.mutable_task() = follower->source.task;
    lines.set_text(follower->splicer.Take(text));
    if (!lines.text().empty()) Send(std::move(lines));
  }

  void Send(LogLines lines) {
    const absl::Time begin = MonotonicNow();
    stream_->Write(std::move(lines));
    const absl::Time end = MonotonicNow();
    // Nobody has listened to the members meanwhile.
    if (end > begin + kIdle) listening_since_ = end;
  }

  // Once in a row.
  void Tell(Follower* follower, absl::string_view message,
            absl::string_view error) {
    const std::string told = absl::StrCat(message, error);
    if (is_closing_) return;
    if (std::exchange(follower->told, told) == told) return;
    LogLines lines;
    *lines.mutable_task() = follower->source.task;
    lines.set_text(
        LogNote(request_.job_id(), trace_id_, absl::Now(), message, error));
    Send(std::move(lines));
  }

  void HandleEvent() {
    void* tag = nullptr;
    bool ok = false;
    is_queue_empty_ =
        queue_.AsyncNext(&tag, &ok, ToGrpcTime(MonotonicNow() + kIdle)) !=
        grpc::CompletionQueue::GOT_EVENT;
    if (is_queue_empty_) return;
    auto* const follower = static_cast<Follower*>(tag);
    MemberCall* const call = follower->call.get();
    if (call->is_finishing) return OnFinished(follower);
    if (!ok) {
      call->is_finishing = true;
      call->reader->Finish(&call->status, follower);
      return;
    }
    // The first event only says that the call has begun.
    if (!call->lines.text().empty()) {
      follower->told.clear();
      Give(follower, std::exchange(*call->lines.mutable_text(), std::string()));
      call->lines.Clear();
      heard_at_ = MonotonicNow();
    }
    call->asked = MonotonicNow();
    call->reader->Read(&call->lines, follower);
  }

  void OnFinished(Follower* follower) {
    const std::unique_ptr<MemberCall> call = std::move(follower->call);
    --open_calls_;
    follower->begin_at = MonotonicNow() + kRetry;
    if (follower->is_over || call->is_given_up) return;
    const absl::Status status = FromGrpcStatus(call->status);
    const bool once = !request_.follow() || began_final_;
    follower->is_over = once;
    if (status.ok()) return;
    // A member that was just told of the job has logged nothing yet.
    if (absl::IsNotFound(status) && !once) return;
    // kCallMax is over.
    if (absl::IsDeadlineExceeded(status) && !once) return;
    if (absl::IsUnavailable(status) && !once &&
        MonotonicNow() >= call->began + kLongCall) {
      return;
    }
    Tell(follower, "its log cannot be read",
         absl::StrCat(follower->source.address, ": ", status.message()));
  }

  const ServiceContext context_;
  const LogsRequest request_;
  LogSink* const stream_;
  grpc::CompletionQueue queue_;
  std::list<Follower> followers_;  // their addresses are the queue's tags
  int open_calls_ = 0;
  bool is_closing_ = false;  // nothing is written any more
  std::string trace_id_;
  bool is_final_ = false;
  bool began_final_ = false;  // the job was over when the call came
  absl::Time final_at_ = absl::InfinitePast();
  absl::Time heard_at_ = absl::InfinitePast();
  // The last event was none: all that the members have said was handled.
  bool is_queue_empty_ = false;
  // The user has held up this thread until then.
  absl::Time listening_since_ = absl::InfinitePast();
  absl::Time look_at_ = absl::InfinitePast();
};

}  // namespace

absl::Status LogRelays::Start(const std::string& caller,
                              std::function<void()> relay) {
  if (stopping_) return SchedulerStopping();
  SYNCLINE_RETURN_IF_ERROR(Enter(caller));
  const bool queued =
      threads_.TrySubmit([this, caller, relay = std::move(relay)] {
        relay();
        Leave(caller);
      });
  if (queued) return absl::OkStatus();
  Leave(caller);
  return SchedulerStopping();
}

absl::Status LogRelays::Enter(const std::string& caller) {
  MutexLock lock(&mu_);
  const bool is_page = caller == kPage;
  const int all = is_page ? pages_ : calls_;
  if (all >= (is_page ? kPagesMax : kCallsMax)) {
    return absl::ResourceExhaustedError(
        absl::StrCat(all, is_page ? " pages" : " users",
                     " read logs already; try again later"));
  }
  // Those without a name cannot be told apart.
  if (!is_page && caller != kNobody) {
    const auto found = calls_of_.find(caller);
    if (found != calls_of_.end() && found->second >= kCallsOfOneMax) {
      return absl::ResourceExhaustedError(absl::StrCat(
          caller, " reads ", kCallsOfOneMax, " logs already; end one of them"));
    }
    ++calls_of_[caller];
  }
  ++(is_page ? pages_ : calls_);
  return absl::OkStatus();
}

void LogRelays::Leave(const std::string& caller) {
  MutexLock lock(&mu_);
  const bool is_page = caller == kPage;
  --(is_page ? pages_ : calls_);
  const auto found = calls_of_.find(caller);
  if (found != calls_of_.end() && --found->second == 0) calls_of_.erase(found);
}

grpc::ServerWriteReactor<LogLines>* RelayLogs(
    const ServiceContext& context, const LogsRequest& request,
    grpc::CallbackServerContext* call,
    std::function<void(const absl::Status&)> on_end) {
  const auto stream = std::make_shared<UserStream>(call);
  stream->Own(stream);
  UserStream* const reactor = stream.get();
  const auto end = [stream,
                    on_end = std::move(on_end)](const absl::Status& status) {
    if (on_end != nullptr) on_end(status);
    stream->End(status);
  };
  // A call for a job that does not exist takes no thread.
  absl::Status known;
  context.loop->Read([&](const ClusterCore& core, absl::Time) {
    known = core.FindJob(request.job_id()).status();
  });
  if (!known.ok()) {
    end(known);
    return reactor;
  }
  const absl::Status started =
      context.logs->Start(LimitNameOf(*call), [context, request, stream, end] {
        absl::Status status;
        {
          LogRelay relay(context, request, stream.get());
          status = relay.Run();
        }
        end(status);
      });
  if (!started.ok()) end(started);
  return reactor;
}

absl::StatusOr<std::vector<LogLines>> ReadLogTails(
    const ServiceContext& context, const LogsRequest& request) {
  const auto sink = std::make_shared<TailSink>(MonotonicNow() + kTailLimit);
  SYNCLINE_RETURN_IF_ERROR(
      context.logs->Start(LogRelays::kPage, [context, request, sink] {
        absl::Status status;
        {
          LogRelay relay(context, request, sink.get());
          status = relay.Run();
        }
        sink->End(status);
      }));
  return sink->Await();
}

}  // namespace syncline::scheduler

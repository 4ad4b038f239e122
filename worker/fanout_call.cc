#include "worker/fanout_call.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "grpcpp/alarm.h"
#include "grpcpp/generic/generic_stub.h"
#include "proto/parameter_server.pb.h"
#include "worker/message_buffer.h"
#include "worker/message_call.h"
#include "worker/retry_policy.h"
#include "worker/send_window.h"

namespace syncline {
namespace {

constexpr absl::Duration kProbeTimeout = absl::Seconds(2);
// A shard that ends a wait itself says who is missing; this much longer is it
// given to say so.
constexpr absl::Duration kAnswerGrace = absl::Seconds(2);

std::string MethodPath(absl::string_view method) {
  return absl::StrCat("/syncline.ParameterServer/", method);
}

// One call on its way through attempts, probes and backoffs. Its fields are
// used by one step of that way at a time, `context` and `alarm` also by Cancel.
struct ActiveCall : std::enable_shared_from_this<ActiveCall> {
  explicit ActiveCall(FanoutCall::Call c) : call(std::move(c)) {}

  FanoutCall::Call call;
  bool in_window = true;             // guarded by State::mu_
  std::optional<RetryPolicy> retry;  // from the first attempt on
  absl::Status last_error;
  absl::Time left;  // of the latest attempt
  grpc::ByteBuffer response;
  std::shared_ptr<grpc::ClientContext> context;  // guarded by State::mu_
  std::shared_ptr<grpc::Alarm> alarm;            // guarded by State::mu_
};
using ActiveCallPtr = std::shared_ptr<ActiveCall>;

// For how long nothing has come forward on the shard; none if it does not say.
std::optional<absl::Duration> QuietFrom(const grpc::ByteBuffer& response) {
  ShardStatus status;
  if (!FromByteBuffer(response, &status) || status.jobs_size() != 1) {
    return std::nullopt;
  }
  const double seconds = status.jobs(0).quiet_seconds();
  return seconds < 0 ? absl::InfiniteDuration() : absl::Seconds(seconds);
}

}  // namespace

// Shared with the callbacks of gRPC, so that the last of them may outlive the
// FanoutCall by the few instructions after its own signal.
class FanoutCall::State : public std::enable_shared_from_this<State> {
 public:
  explicit State(const Options& options);

  void Start(Call call) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Wait() ABSL_LOCKS_EXCLUDED(mu_);
  void Cancel(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mu_);
  // Blocks until gRPC has returned from every callback, then ends the channels.
  void Disconnect() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Link {
    Link(const Options& options, const Peer& peer)
        : stub(MakeChannel(peer.address)),
          push_window(options.push_window_bytes),
          pull_window(options.pull_window_bytes) {}
    grpc::GenericStub stub;
    SendWindow<ActiveCallPtr> push_window;  // guarded by mu_
    SendWindow<ActiveCallPtr> pull_window;  // guarded by mu_
  };

  void Attempt(const ActiveCallPtr& active) ABSL_LOCKS_EXCLUDED(mu_);
  // The shard has taken the request; a push makes room for the next.
  void OnTaken(const ActiveCallPtr& active) ABSL_LOCKS_EXCLUDED(mu_);
  void OnAttempt(const ActiveCallPtr& active, const grpc::Status& status)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Probe(const ActiveCallPtr& active) ABSL_LOCKS_EXCLUDED(mu_);
  void OnProbe(const ActiveCallPtr& active, const grpc::Status& status)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Resend(const ActiveCallPtr& active, absl::Duration delay)
      ABSL_LOCKS_EXCLUDED(mu_);
  void DropAlarm(const ActiveCallPtr& active) ABSL_LOCKS_EXCLUDED(mu_);
  void Finish(const ActiveCallPtr& active, const absl::Status& status)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Gives `active` a context for one attempt; null if all is over. The callback
  // ends with Leave, when it holds neither call nor context any more.
  std::shared_ptr<grpc::ClientContext> Enter(const ActiveCallPtr& active,
                                             absl::Duration timeout)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Leave() ABSL_LOCKS_EXCLUDED(mu_);
  SendWindow<ActiveCallPtr>& WindowOf(const Call& call)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the queued calls that may go now.
  std::vector<ActiveCallPtr> LeaveWindow(ActiveCall* active)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Records the first error and drops what is queued.
  void Close(const absl::Status& error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Cuts short what is under way; its callbacks then finish it.
  void CancelActive() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Describe(const ActiveCall& active, absl::Status status) const;

  const Options options_;
  std::vector<std::unique_ptr<Link>> links_;

  Mutex mu_;
  CondVar idle_;
  absl::Status error_ ABSL_GUARDED_BY(mu_);
  size_t pending_ ABSL_GUARDED_BY(mu_) = 0;    // calls, active and queued
  size_t callbacks_ ABSL_GUARDED_BY(mu_) = 0;  // gRPC will call or is calling
  absl::flat_hash_set<ActiveCallPtr> active_ ABSL_GUARDED_BY(mu_);
};

FanoutCall::State::State(const Options& options) : options_(options) {
  for (const Peer& peer : options.peers) {
    links_.push_back(std::make_unique<Link>(options, peer));
  }
}

void FanoutCall::State::Start(Call call) {
  auto active = std::make_shared<ActiveCall>(std::move(call));
  {
    MutexLock lock(&mu_);
    if (!error_.ok()) return;
    ++pending_;
    if (!WindowOf(active->call).TryEnter(active->call.bytes, active)) return;
    active_.insert(active);
  }
  Attempt(active);
}

absl::Status FanoutCall::State::Wait() {
  MutexLock lock(&mu_);
  while (pending_ > 0) idle_.WaitUntil(&mu_, absl::Now() + absl::Seconds(1));
  return error_;
}

void FanoutCall::State::Cancel(const absl::Status& reason) {
  {
    MutexLock lock(&mu_);
    Close(reason);
  }
  CancelActive();
}

void FanoutCall::State::Attempt(const ActiveCallPtr& active) {
  if (!active->retry.has_value()) {
    active->retry.emplace(absl::Now(), options_.patience, EntropySeed());
  }
  const std::shared_ptr<grpc::ClientContext> context =
      Enter(active, active->retry->NextAttempt(absl::Now()) +
                        std::min(kAnswerGrace, options_.patience / 4));
  if (context == nullptr) {
    Finish(active, absl::CancelledError("closed"));
    return;
  }
  active->response.Clear();
  MessageCall message;
  message.context = context.get();
  message.method = MethodPath(active->call.method);
  message.request = &active->call.request;
  message.response = &active->response;
  // on_done comes after the others and keeps what they need.
  message.on_sent = [raw = active.get()] { raw->left = absl::Now(); };
  message.on_taken = [self = this, raw = active.get()] {
    self->OnTaken(raw->shared_from_this());
  };
  message.on_done = [self = shared_from_this(), active = active,
                     context = context](const grpc::Status& status) mutable {
    self->OnAttempt(active, status);
    active.reset();
    context.reset();
    self->Leave();
  };
  StartMessageCall(&links_[active->call.shard]->stub, std::move(message));
}

void FanoutCall::State::OnTaken(const ActiveCallPtr& active) {
  if (active->call.direction != Direction::kPush) return;
  std::vector<ActiveCallPtr> next;
  {
    MutexLock lock(&mu_);
    next = LeaveWindow(active.get());
  }
  for (const ActiveCallPtr& call : next) Attempt(call);
}

std::vector<ActiveCallPtr> FanoutCall::State::LeaveWindow(ActiveCall* active) {
  if (!std::exchange(active->in_window, false)) return {};
  std::vector<ActiveCallPtr> next =
      WindowOf(active->call).Leave(active->call.bytes);
  for (const ActiveCallPtr& call : next) active_.insert(call);
  return next;
}

void FanoutCall::State::OnAttempt(const ActiveCallPtr& active,
                                  const grpc::Status& grpc_status) {
  absl::Status status = FromGrpcStatus(grpc_status);
  if (status.ok()) {
    if (active->call.on_response != nullptr) {
      status = active->call.on_response(active->response, active->left);
    }
    Finish(active, status);
    return;
  }
  active->last_error = status;
  if (absl::IsResourceExhausted(status) && options_.held_back != nullptr) {
    options_.held_back->Add();
  }
  const RetryPolicy::Decision decision =
      active->retry->OnResult(status.code(), absl::Now());
  switch (decision.next) {
    case RetryPolicy::Next::kFinish:
      return Finish(active, status);
    case RetryPolicy::Next::kProbe:
      return Probe(active);
    case RetryPolicy::Next::kResend:
      if (active->retry->attempts() == 1 && absl::IsUnavailable(status)) {
        LogWarning("a ps is out of reach; trying again")
            .Job(options_.job_id)
            .Status(Describe(*active, status));
      }
      return Resend(active, decision.delay);
  }
}

void FanoutCall::State::Probe(const ActiveCallPtr& active) {
  const std::shared_ptr<grpc::ClientContext> context =
      Enter(active, std::min(kProbeTimeout, options_.patience / 4));
  if (context == nullptr) {
    Finish(active, absl::CancelledError("closed"));
    return;
  }
  ShardStatusRequest request;
  request.set_job_id(options_.job_id);
  auto bytes = std::make_shared<grpc::ByteBuffer>(ToByteBuffer(request));
  active->response.Clear();
  links_[active->call.shard]->stub.UnaryCall(
      context.get(), MethodPath("GetShardStatus"), grpc::StubOptions(),
      bytes.get(), &active->response,
      [self = shared_from_this(), active = active, context = context,
       bytes](const grpc::Status& status) mutable {
        self->OnProbe(active, status);
        active.reset();
        context.reset();
        self->Leave();
      });
}

void FanoutCall::State::OnProbe(const ActiveCallPtr& active,
                                const grpc::Status& status) {
  const RetryPolicy::Decision decision = active->retry->OnProbe(
      status.ok() ? QuietFrom(active->response) : std::nullopt, absl::Now());
  if (decision.next == RetryPolicy::Next::kResend) {
    Resend(active, decision.delay);
  } else {
    Finish(active, active->last_error);
  }
}

void FanoutCall::State::Resend(const ActiveCallPtr& active,
                               absl::Duration delay) {
  if (options_.retries != nullptr) options_.retries->Add();
  if (delay <= absl::ZeroDuration()) return Attempt(active);
  auto alarm = std::make_shared<grpc::Alarm>();
  bool closed = false;
  {
    MutexLock lock(&mu_);
    closed = !error_.ok();
    active->alarm = alarm;
    ++callbacks_;
  }
  // An alarm that Cancel sees before it is set is not stopped by it, but it
  // runs out within a second and finds the rest closed.
  if (closed) delay = absl::ZeroDuration();
  alarm->Set(absl::ToChronoTime(absl::Now() + delay),
             [self = shared_from_this(), active = active](bool) mutable {
               self->DropAlarm(active);
               self->Attempt(active);
               active.reset();
               self->Leave();
             });
}

void FanoutCall::State::DropAlarm(const ActiveCallPtr& active) {
  std::shared_ptr<grpc::Alarm> alarm;  // ends after the lock
  MutexLock lock(&mu_);
  // The alarm holds its callback, which holds the call, which holds the alarm.
  alarm.swap(active->alarm);
}

void FanoutCall::State::Finish(const ActiveCallPtr& active,
                               const absl::Status& status) {
  // The request refers to gradient memory and the callback to its owner: drop
  // them before anyone can see this call as ended.
  active->call.request.Clear();
  active->call.on_response = nullptr;
  std::vector<ActiveCallPtr> next;
  bool failed = false;
  {
    MutexLock lock(&mu_);
    active_.erase(active);
    if (!status.ok() && error_.ok()) {
      Close(Describe(*active, status));
      failed = true;
    }
    next = LeaveWindow(active.get());
    --pending_;
    if (pending_ == 0) idle_.SignalAll();
  }
  if (failed) CancelActive();
  for (const ActiveCallPtr& call : next) Attempt(call);
}

std::shared_ptr<grpc::ClientContext> FanoutCall::State::Enter(
    const ActiveCallPtr& active, absl::Duration timeout) {
  std::shared_ptr<grpc::ClientContext> context =
      MakeContext(absl::Now() + timeout);
  MutexLock lock(&mu_);
  if (!error_.ok()) return nullptr;
  active->context = context;
  ++callbacks_;
  return context;
}

void FanoutCall::State::Leave() {
  MutexLock lock(&mu_);
  if (--callbacks_ == 0) idle_.SignalAll();
}

void FanoutCall::State::Disconnect() {
  {
    MutexLock lock(&mu_);
    while (callbacks_ > 0) {
      idle_.WaitUntil(&mu_, absl::Now() + absl::Seconds(1));
    }
  }
  links_.clear();
}

SendWindow<ActiveCallPtr>& FanoutCall::State::WindowOf(const Call& call) {
  Link& link = *links_[call.shard];
  return call.direction == Direction::kPush ? link.push_window
                                            : link.pull_window;
}

void FanoutCall::State::Close(const absl::Status& error) {
  if (error_.ok()) error_ = error;
  for (const std::unique_ptr<Link>& link : links_) {
    pending_ -= link->push_window.Clear() + link->pull_window.Clear();
  }
  if (pending_ == 0) idle_.SignalAll();
}

void FanoutCall::State::CancelActive() {
  std::vector<std::shared_ptr<grpc::ClientContext>> contexts;
  std::vector<std::shared_ptr<grpc::Alarm>> alarms;
  {
    MutexLock lock(&mu_);
    for (const ActiveCallPtr& active : active_) {
      if (active->context != nullptr) contexts.push_back(active->context);
      if (active->alarm != nullptr) alarms.push_back(active->alarm);
    }
  }
  for (const auto& context : contexts) context->TryCancel();
  for (const auto& alarm : alarms) alarm->Cancel();
}

absl::Status FanoutCall::State::Describe(const ActiveCall& active,
                                         absl::Status status) const {
  const Call& call = active.call;
  const Peer& peer = options_.peers[call.shard];
  std::string where =
      absl::StrCat(peer.name, " at ", peer.address, ", job ", options_.job_id,
                   ", clock ", call.clock, ", ", call.method);
  if (active.retry->attempts() > 1) {
    absl::StrAppend(&where, " (", active.retry->attempts(), " attempts)");
  }
  return Annotate(status, where);
}

FanoutCall::FanoutCall(const Options& options)
    : state_(std::make_shared<State>(options)) {}

FanoutCall::~FanoutCall() {
  state_->Cancel(absl::CancelledError("the client is closing"));
  state_->Wait().IgnoreError();
  // Here, because a channel that ends on a thread of gRPC makes that thread
  // wait for itself; the last callback may be about to drop the last reference.
  state_->Disconnect();
}

void FanoutCall::Start(Call call) { state_->Start(std::move(call)); }
absl::Status FanoutCall::Wait() { return state_->Wait(); }
void FanoutCall::Cancel(const absl::Status& reason) { state_->Cancel(reason); }

}  // namespace syncline

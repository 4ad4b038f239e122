#include "worker/client/transport/fanout_call.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/base/busy.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/peer_reach.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/message_buffer.h"
#include "common/rpc/message_call.h"
#include "common/system/log.h"
#include "grpcpp/alarm.h"
#include "grpcpp/generic/generic_stub.h"
#include "proto/parameter_server.pb.h"
#include "worker/client/transport/active_call.h"
#include "worker/client/transport/call_windows.h"
#include "worker/client/transport/retry_policy.h"
#include "worker/client/transport/shm_links.h"

namespace syncline::worker {
namespace {

constexpr absl::Duration kProbeTimeout = absl::Seconds(2);
// A shard that ends a wait itself says who is missing; this much longer is it
// given to say so.
constexpr absl::Duration kAnswerGrace = absl::Seconds(2);
// These two come after half of the patience, and a ps that did not answer them
// is reported before all of it is over.
absl::Duration ShareOf(absl::Duration patience, absl::Duration most) {
  return std::min(most, patience / 8);
}

std::string MethodPath(absl::string_view method) {
  return absl::StrCat("/syncline.ParameterServer/", method);
}

// The time since the last progress on the shard; none if it does not say.
std::optional<absl::Duration> QuietFrom(const grpc::ByteBuffer& response,
                                        uint32_t shard) {
  ShardStatus status;
  if (!FromByteBuffer(response, &status)) return std::nullopt;
  for (const ShardStatus::Job& of_shard : status.jobs()) {
    if (of_shard.shard() != shard) continue;
    const double seconds = of_shard.quiet_seconds();
    return seconds < 0 ? absl::InfiniteDuration() : absl::Seconds(seconds);
  }
  return std::nullopt;
}

}  // namespace

// Shared with the callbacks of gRPC, so that the last of them may outlive the
// FanoutCall by the few instructions after its own signal.
class FanoutCall::State : public std::enable_shared_from_this<State> {
 public:
  explicit State(const Options& options);

  // Offers memory to all peers.
  void Connect() { shm_->Connect(); }
  bool SharesMemory(uint32_t shard) const { return shm_->IsConnected(shard); }
  void Start(Call call) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Wait() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status WaitUntil(absl::Time time) ABSL_LOCKS_EXCLUDED(mu_);
  void Cancel(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mu_);
  // Blocks until gRPC has returned from every callback, then ends the channels.
  void Disconnect() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Link {
    Link(const Options& options, const Peer& peer)
        : stub(MakeChannel(peer.address, ExpectedPeer::kPs)),
          windows(options),
          reach(options.patience) {}
    grpc::GenericStub stub;
    CallWindows windows;  // guarded by mu_
    PeerReach reach;      // guarded by mu_
  };

  void Attempt(const ActiveCallPtr& active) ABSL_LOCKS_EXCLUDED(mu_);
  // The same for a call that failed. A call that has left its window since then
  // enters it again.
  void AttemptAgain(const ActiveCallPtr& active) ABSL_LOCKS_EXCLUDED(mu_);
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
  // ends with EndCallback, when it holds neither call nor context any more.
  std::shared_ptr<grpc::ClientContext> BeginCallback(
      const ActiveCallPtr& active, absl::Duration timeout)
      ABSL_LOCKS_EXCLUDED(mu_);
  void EndCallback() ABSL_LOCKS_EXCLUDED(mu_);
  // Takes note of whether an attempt or a probe got through, and tells.
  void NoteReach(const ActiveCall& active, bool is_probe,
                 const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  CallWindows& WindowsOf(const ActiveCall& active)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return links_[active.call.shard]->windows;
  }
  // Queued calls that may be sent now.
  void MarkActive(const std::vector<ActiveCallPtr>& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    active_.insert(calls.begin(), calls.end());
  }
  // Records the first error and drops the queued calls.
  void Close(const absl::Status& error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Cuts short the calls under way; their callbacks then finish them.
  void CancelActive() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Describe(const ActiveCall& active, absl::Status status) const;
  // The error of a call that has made no progress for too long.
  absl::Status GivenUp(const ActiveCall& active) const;

  const Options options_;
  std::vector<std::unique_ptr<Link>> links_;  // by shard
  std::shared_ptr<ShmLinks> shm_;

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
  std::vector<grpc::GenericStub*> stubs;
  for (const auto& link : links_) stubs.push_back(&link->stub);
  shm_ = std::make_shared<ShmLinks>(options, std::move(stubs));
}

void FanoutCall::State::Start(Call call) {
  auto active = std::make_shared<ActiveCall>(std::move(call));
  const bool shares_memory = shm_->IsConnected(active->call.shard);
  {
    MutexLock lock(&mu_);
    if (!error_.ok()) return;
    ++pending_;
    CallWindows& windows = WindowsOf(*active);
    active->route = windows.ChooseRoute(active->call, shares_memory);
    if (!windows.TryEnter(active)) return;
    active_.insert(active);
  }
  Attempt(active);
}

absl::Status FanoutCall::State::Wait() {
  MutexLock lock(&mu_);
  while (pending_ > 0) idle_.WaitUntil(&mu_, MonotonicNow() + absl::Seconds(1));
  return error_;
}

absl::Status FanoutCall::State::WaitUntil(absl::Time time) {
  MutexLock lock(&mu_);
  while (error_.ok() && MonotonicNow() < time) {
    idle_.WaitUntil(&mu_, std::min(time, MonotonicNow() + absl::Seconds(1)));
  }
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
  const absl::Time now = MonotonicNow();
  if (!active->retry.has_value()) {
    active->retry.emplace(now, options_.patience, EntropySeed());
  }
  const absl::Time queued =
      std::exchange(active->queued, absl::InfiniteFuture());
  if (queued < now) active->retry->OnHeldBack(now - queued);
  const std::shared_ptr<grpc::ClientContext> context =
      BeginCallback(active, active->retry->NextAttempt(MonotonicNow()) +
                                ShareOf(options_.patience, kAnswerGrace));
  if (context == nullptr) {
    Finish(active, absl::CancelledError("closed"));
    return;
  }
  active->response.Clear();
  if (active->route == CallRoute::kShared) {
    active->shm_request = shm_->Prepare(active->call, &active->shm);
  }
  MessageCall message;
  message.context = context.get();
  message.method = MethodPath(active->call.method);
  message.request = active->shm_request.Valid() ? &active->shm_request
                                                : &active->call.request;
  message.response = &active->response;
  // on_done comes after the others and keeps what they need.
  message.on_sent = [raw = active.get()] { raw->left = MonotonicNow(); };
  message.on_taken = [self = this, raw = active.get()] {
    self->OnTaken(raw->shared_from_this());
  };
  message.on_done = [self = shared_from_this(), active = active,
                     context = context](const grpc::Status& status) mutable {
    self->OnAttempt(active, status);
    active.reset();
    context.reset();
    self->EndCallback();
  };
  StartMessageCall(&links_[active->call.shard]->stub, std::move(message));
}

void FanoutCall::State::AttemptAgain(const ActiveCallPtr& active) {
  {
    MutexLock lock(&mu_);
    active->queued = MonotonicNow();
    if (error_.ok() && !WindowsOf(*active).TryEnterAgain(active)) {
      active_.erase(active);
      return;
    }
  }
  Attempt(active);
}

void FanoutCall::State::OnTaken(const ActiveCallPtr& active) {
  std::vector<ActiveCallPtr> next;
  {
    MutexLock lock(&mu_);
    next = WindowsOf(*active).OnTaken(active.get());
    MarkActive(next);
  }
  for (const ActiveCallPtr& call : next) Attempt(call);
}

void FanoutCall::State::NoteReach(const ActiveCall& active, bool is_probe,
                                  const absl::Status& status) {
  // A call that ran out of time may have been parked at the shard; a probe is
  // answered at once.
  if (absl::IsDeadlineExceeded(status) && !is_probe) return;
  if (absl::IsCancelled(status)) return;
  std::optional<absl::Duration> out_of_reach;
  {
    MutexLock lock(&mu_);
    PeerReach& reach = links_[active.call.shard]->reach;
    if (absl::IsDeadlineExceeded(status)) {
      out_of_reach = reach.OnSilence(active.started, MonotonicNow());
    } else if (absl::IsUnavailable(status)) {
      out_of_reach = reach.OnFailure(MonotonicNow());
    } else {
      reach.OnAnswer(MonotonicNow());
    }
  }
  if (out_of_reach.has_value() && options_.on_unreachable != nullptr) {
    options_.on_unreachable(active.call.shard, *out_of_reach, status);
  }
}

void FanoutCall::State::OnAttempt(const ActiveCallPtr& active,
                                  const grpc::Status& grpc_status) {
  absl::Status status = FromGrpcStatus(grpc_status);
  NoteReach(*active, /*is_probe=*/false, status);
  if (active->shm_request.Valid() &&
      shm_->OnOutcome(active->call.shard, &active->shm, &active->response,
                      &status)) {
    return Resend(active, absl::ZeroDuration());
  }
  if (status.ok()) {
    if (active->call.on_response != nullptr) {
      status = active->call.on_response(active->response, active->left);
    }
    Finish(active, status);
    return;
  }
  active->last_error = status;
  if (absl::IsResourceExhausted(status)) AddCount(options_.telemetry.held_back);
  const absl::Time now = MonotonicNow();
  const bool is_unanswered =
      absl::IsDeadlineExceeded(status) && now >= active->end;
  const RetryPolicy::Decision decision =
      is_unanswered ? active->retry->OnUnanswered(now)
                    : active->retry->OnResult(status.code(), now);
  switch (decision.next) {
    case RetryPolicy::Next::kFinish:
      if (active->call.on_refused != nullptr && !absl::IsCancelled(status) &&
          !absl::IsUnavailable(status)) {
        status = active->call.on_refused(status);
      }
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
      BeginCallback(active, ShareOf(options_.patience, kProbeTimeout));
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
        self->EndCallback();
      });
}

void FanoutCall::State::OnProbe(const ActiveCallPtr& active,
                                const grpc::Status& status) {
  NoteReach(*active, /*is_probe=*/true, FromGrpcStatus(status));
  const RetryPolicy::Decision decision = active->retry->OnProbe(
      status.ok() ? QuietFrom(active->response, active->call.shard)
                  : std::nullopt,
      MonotonicNow());
  if (decision.next == RetryPolicy::Next::kResend) {
    Resend(active, decision.delay);
  } else {
    Finish(active, GivenUp(*active));
  }
}

// The calls that fill the ps wait, too, and have made no progress. So the cause
// is a missing member, which may be there in another run, and not a limit that
// is too small.
absl::Status FanoutCall::State::GivenUp(const ActiveCall& active) const {
  if (!IsBusy(active.last_error)) return active.last_error;
  return absl::DeadlineExceededError(
      absl::StrCat("nothing has come forward there for ",
                   absl::FormatDuration(options_.patience),
                   ", so room for this call has not come free: ",
                   active.last_error.message()));
}

void FanoutCall::State::Resend(const ActiveCallPtr& active,
                               absl::Duration delay) {
  AddCount(options_.telemetry.retries);
  if (delay <= absl::ZeroDuration()) return AttemptAgain(active);
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
  alarm->Set(ToGrpcTime(MonotonicNow() + delay),
             [self = shared_from_this(), active = active](bool) mutable {
               self->DropAlarm(active);
               self->AttemptAgain(active);
               active.reset();
               self->EndCallback();
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
  active->call.on_refused = nullptr;
  active->response.Clear();
  active->shm.Clear();
  std::vector<ActiveCallPtr> next;
  bool failed = false;
  {
    MutexLock lock(&mu_);
    active_.erase(active);
    if (!status.ok() && error_.ok()) {
      Close(Describe(*active, status));
      failed = true;
    }
    next = WindowsOf(*active).OnEnded(active.get());
    MarkActive(next);
    --pending_;
    if (pending_ == 0) idle_.SignalAll();
  }
  if (failed) CancelActive();
  for (const ActiveCallPtr& call : next) Attempt(call);
}

std::shared_ptr<grpc::ClientContext> FanoutCall::State::BeginCallback(
    const ActiveCallPtr& active, absl::Duration timeout) {
  const absl::Time end = MonotonicNow() + timeout;
  std::shared_ptr<grpc::ClientContext> context = MakeContext(end);
  MutexLock lock(&mu_);
  if (!error_.ok()) return nullptr;
  active->context = context;
  active->started = MonotonicNow();
  active->end = end;
  ++callbacks_;
  return context;
}

void FanoutCall::State::EndCallback() {
  MutexLock lock(&mu_);
  if (--callbacks_ == 0) idle_.SignalAll();
}

void FanoutCall::State::Disconnect() {
  {
    MutexLock lock(&mu_);
    while (callbacks_ > 0) {
      idle_.WaitUntil(&mu_, MonotonicNow() + absl::Seconds(1));
    }
  }
  shm_->Disconnect();
  links_.clear();
}

void FanoutCall::State::Close(const absl::Status& error) {
  if (error_.ok()) error_ = error;
  for (const std::unique_ptr<Link>& link : links_) {
    pending_ -= link->windows.Clear();
  }
  idle_.SignalAll();
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
  shm_->Close();
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
    : state_(std::make_shared<State>(options)) {
  state_->Connect();
}

FanoutCall::~FanoutCall() {
  state_->Cancel(absl::CancelledError("the client is closing"));
  state_->Wait().IgnoreError();
  // Here, because a channel that ends on a thread of gRPC makes that thread
  // wait for itself; the last callback may be about to drop the last reference.
  state_->Disconnect();
}

bool FanoutCall::SharesMemory(uint32_t shard) const {
  return state_->SharesMemory(shard);
}
void FanoutCall::Start(Call call) { state_->Start(std::move(call)); }
absl::Status FanoutCall::Wait() { return state_->Wait(); }
absl::Status FanoutCall::WaitUntil(absl::Time time) {
  return state_->WaitUntil(time);
}
void FanoutCall::Cancel(const absl::Status& reason) { state_->Cancel(reason); }

}  // namespace syncline::worker

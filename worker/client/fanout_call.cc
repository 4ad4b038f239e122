#include "worker/client/fanout_call.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/cord.h"
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
#include "common/system/local_socket.h"
#include "common/system/log.h"
#include "common/wire/frame.h"
#include "grpcpp/alarm.h"
#include "grpcpp/generic/generic_stub.h"
#include "proto/parameter_server.pb.h"
#include "worker/client/retry_policy.h"
#include "worker/client/send_window.h"
#include "worker/client/shared_link.h"
#include "worker/client/shm_call.h"

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

// With one ps: the first, and a few in place of worn out ones.
constexpr int kHandoversMax = 8;

std::string MethodPath(absl::string_view method) {
  return absl::StrCat("/syncline.ParameterServer/", method);
}

// Which window a call waits for. One that is to go through shared memory may
// still end up on the network.
enum class Route { kNetwork, kShared };

// One call on its way through attempts, probes and backoffs. Its fields are
// used by one step of that way at a time, `context` and `alarm` also by Cancel.
struct ActiveCall : std::enable_shared_from_this<ActiveCall> {
  explicit ActiveCall(FanoutCall::Call c) : call(std::move(c)) {}

  FanoutCall::Call call;
  Route route = Route::kNetwork;  // const once it is in a window
  ShmCall shared;
  grpc::ByteBuffer shared_request;   // empty: this attempt sends call.request
  bool in_window = true;             // guarded by State::mu_
  std::optional<RetryPolicy> retry;  // from the first attempt on
  absl::Status last_error;
  // A repetition waits for its window since then.
  absl::Time queued = absl::InfiniteFuture();
  absl::Time started;  // of the latest attempt or probe, and when it had left
  absl::Time left;
  absl::Time end;  // of its deadline
  grpc::ByteBuffer response;
  std::shared_ptr<grpc::ClientContext> context;  // guarded by State::mu_
  std::shared_ptr<grpc::Alarm> alarm;            // guarded by State::mu_
};
using ActiveCallPtr = std::shared_ptr<ActiveCall>;

void Count(Counter* counter, size_t bytes) {
  if (counter != nullptr) counter->Add(static_cast<double>(bytes));
}

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

  // Offers memory to all peers.
  void Connect() ABSL_LOCKS_EXCLUDED(mu_);
  bool SharesMemory(uint32_t shard) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    return links_[shard]->shared != nullptr;
  }
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
          pull_window(options.pull_window_bytes),
          shared_push_window(options.shared.window_bytes),
          shared_pull_window(options.shared.window_bytes),
          reach(options.patience) {}
    grpc::GenericStub stub;
    // All that follows is guarded by mu_.
    SendWindow<ActiveCallPtr> push_window;
    SendWindow<ActiveCallPtr> pull_window;
    SendWindow<ActiveCallPtr> shared_push_window;
    SendWindow<ActiveCallPtr> shared_pull_window;
    std::shared_ptr<ShmRegistration> handover;  // while it lasts
    std::shared_ptr<SharedLink> shared;         // null: none (any more)
    int handovers = 0;
    PeerReach reach;
  };

  void Connect(Link* link) ABSL_LOCKS_EXCLUDED(mu_);
  void HandOver(
      Link* link, bool read_only,
      std::function<absl::StatusOr<std::shared_ptr<SharedRegion>>()> region,
      ShmRegistration::Done done) ABSL_LOCKS_EXCLUDED(mu_);
  void OnConnected(Link* link, ShmRegistration::Result result)
      ABSL_LOCKS_EXCLUDED(mu_);
  // From now on calls that start go through it.
  void Use(Link* link, std::shared_ptr<SharedLink> shared)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Pushes in shared memory are answered before others may enter their window,
  // and that may wait for the same push of another worker: there all workers
  // keep to one order.
  static int64_t RankOf(const ActiveCall& active) {
    return active.route == Route::kShared &&
                   active.call.direction == Direction::kPush
               ? 0
               : active.call.rank;
  }
  // The call's route: shared memory, if the call may use it now.
  Route ChooseRoute(const Call& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Moves the payload of an attempt into shared memory if it can.
  void PrepareShared(ActiveCall* active) ABSL_LOCKS_EXCLUDED(mu_);
  // Takes note of how an attempt through shared memory ended. True: it failed
  // because of that, and must be sent again.
  bool LeaveShared(ActiveCall* active, absl::Status* status)
      ABSL_LOCKS_EXCLUDED(mu_);
  void DropShared(Link* link, const std::shared_ptr<SharedLink>& shared)
      ABSL_LOCKS_EXCLUDED(mu_);
  void CountFallback(SharedFallback reason) const;

  void Attempt(const ActiveCallPtr& active) ABSL_LOCKS_EXCLUDED(mu_);
  // The same for one that failed: what has left its window since enters again.
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
  // ends with Leave, when it holds neither call nor context any more.
  std::shared_ptr<grpc::ClientContext> Enter(const ActiveCallPtr& active,
                                             absl::Duration timeout)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Leave() ABSL_LOCKS_EXCLUDED(mu_);
  // Takes note of whether an attempt or a probe got through, and tells.
  void NoteReach(const ActiveCall& active, bool is_probe,
                 const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  SendWindow<ActiveCallPtr>& WindowOf(const Call& call, Route route)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the queued calls that may go now.
  std::vector<ActiveCallPtr> LeaveWindow(ActiveCall* active)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Records the first error and drops what is queued.
  void Close(const absl::Status& error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Cuts short what is under way; its callbacks then finish it.
  void CancelActive() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Describe(const ActiveCall& active, absl::Status status) const;
  // The error of a call that has made no progress for too long.
  absl::Status GivenUp(const ActiveCall& active) const;

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
    active->route = ChooseRoute(active->call);
    if (!WindowOf(active->call, active->route)
             .TryEnter(active->call.bytes, active, RankOf(*active))) {
      return;
    }
    active_.insert(active);
  }
  Attempt(active);
}

absl::Status FanoutCall::State::Wait() {
  MutexLock lock(&mu_);
  while (pending_ > 0) idle_.WaitUntil(&mu_, MonotonicNow() + absl::Seconds(1));
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
      Enter(active, active->retry->NextAttempt(MonotonicNow()) +
                        ShareOf(options_.patience, kAnswerGrace));
  if (context == nullptr) {
    Finish(active, absl::CancelledError("closed"));
    return;
  }
  active->response.Clear();
  if (active->route == Route::kShared) PrepareShared(active.get());
  MessageCall message;
  message.context = context.get();
  message.method = MethodPath(active->call.method);
  message.request = active->shared_request.Valid() ? &active->shared_request
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
    self->Leave();
  };
  StartMessageCall(&links_[active->call.shard]->stub, std::move(message));
}

void FanoutCall::State::AttemptAgain(const ActiveCallPtr& active) {
  {
    MutexLock lock(&mu_);
    active->queued = MonotonicNow();
    if (error_.ok() && !std::exchange(active->in_window, true) &&
        !WindowOf(active->call, active->route)
             .TryEnter(active->call.bytes, active, RankOf(*active))) {
      active_.erase(active);
      return;
    }
  }
  Attempt(active);
}

void FanoutCall::State::OnTaken(const ActiveCallPtr& active) {
  // A payload in shared memory takes up room there until the call is answered.
  if (active->call.direction != Direction::kPush ||
      active->route == Route::kShared) {
    return;
  }
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
      WindowOf(active->call, active->route).Leave(active->call.bytes);
  for (const ActiveCallPtr& call : next) active_.insert(call);
  return next;
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
  if (active->shared_request.Valid() && LeaveShared(active.get(), &status)) {
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
  if (absl::IsResourceExhausted(status) && options_.held_back != nullptr) {
    options_.held_back->Add();
  }
  const absl::Time now = MonotonicNow();
  const bool is_unanswered =
      absl::IsDeadlineExceeded(status) && now >= active->end;
  const RetryPolicy::Decision decision =
      is_unanswered ? active->retry->OnUnanswered(now)
                    : active->retry->OnResult(status.code(), now);
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
      Enter(active, ShareOf(options_.patience, kProbeTimeout));
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
  NoteReach(*active, /*is_probe=*/true, FromGrpcStatus(status));
  const RetryPolicy::Decision decision = active->retry->OnProbe(
      status.ok() ? QuietFrom(active->response) : std::nullopt, MonotonicNow());
  if (decision.next == RetryPolicy::Next::kResend) {
    Resend(active, decision.delay);
  } else {
    Finish(active, GivenUp(*active));
  }
}

// The calls that hold the room wait, too, and have waited in vain: the cause is
// a member that is missing, which may be there in another run, and no limit
// that is too small.
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
  if (options_.retries != nullptr) options_.retries->Add();
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
  active->response.Clear();
  active->shared.Clear();
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

void FanoutCall::State::Leave() {
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
  for (const auto& link : links_) {
    if (link->shared != nullptr && options_.shared.links != nullptr) {
      options_.shared.links->Add(-1);
    }
  }
  links_.clear();
}

SendWindow<ActiveCallPtr>& FanoutCall::State::WindowOf(const Call& call,
                                                       Route route) {
  Link& link = *links_[call.shard];
  if (call.direction == Direction::kPush) {
    return route == Route::kShared ? link.shared_push_window : link.push_window;
  }
  return route == Route::kShared ? link.shared_pull_window : link.pull_window;
}

// --- Shared memory -----------------------------------------------------------

void FanoutCall::State::Connect() {
  if (!options_.shared.enabled) return;
  for (const std::unique_ptr<Link>& link : links_) Connect(link.get());
}

void FanoutCall::State::Connect(Link* link) {
  {
    MutexLock lock(&mu_);
    ++link->handovers;
  }
  HandOver(
      link, /*read_only=*/false,
      [bytes = options_.shared.region_bytes] {
        return SharedRegion::Create(bytes);
      },
      [this, link](ShmRegistration::Result result) {
        OnConnected(link, std::move(result));
      });
}

void FanoutCall::State::HandOver(
    Link* link, bool read_only,
    std::function<absl::StatusOr<std::shared_ptr<SharedRegion>>()> region,
    ShmRegistration::Done done) {
  ShmRegistration::Options options;
  options.caller = options_.shared.caller;
  options.boot_id =
      options_.shared.boot_id.empty() ? BootId() : options_.shared.boot_id;
  options.deadline = MonotonicNow() + options_.patience;
  options.read_only = read_only;
  options.region = std::move(region);
  // The callback, like every other, counts until it holds nothing any more.
  auto handover = std::make_shared<ShmRegistration>(
      options, &link->stub,
      [self = shared_from_this(),
       done](ShmRegistration::Result result) mutable {
        done(std::move(result));
        self->Leave();
      });
  {
    MutexLock lock(&mu_);
    if (!error_.ok()) return;
    link->handover = handover;
    ++callbacks_;
  }
  handover->Start();
}

void FanoutCall::State::OnConnected(Link* link,
                                    ShmRegistration::Result result) {
  if (!result.status.ok()) {
    CountFallback(result.reason);
    LogInfo("no shared memory with a ps")
        .Job(options_.job_id)
        .Field("reason", FallbackName(result.reason))
        .Status(result.status);
    return;
  }
  auto shared = std::make_shared<SharedLink>(
      std::move(result.region), result.name, std::move(result.connection));
  if (options_.shared.payloads == nullptr) return Use(link, std::move(shared));
  HandOver(
      link, /*read_only=*/true, [this] { return options_.shared.payloads; },
      [this, link, shared](ShmRegistration::Result payloads) {
        if (payloads.status.ok()) {
          shared->AddPayloads(std::move(payloads.region), payloads.name,
                              std::move(payloads.connection));
        } else {
          LogInfo("a ps does not map the gradients; they are copied")
              .Job(options_.job_id)
              .Status(payloads.status);
        }
        Use(link, shared);
      });
}

void FanoutCall::State::Use(Link* link, std::shared_ptr<SharedLink> shared) {
  {
    MutexLock lock(&mu_);
    link->handover.reset();
    if (!error_.ok()) return;
    link->shared = std::move(shared);
  }
  if (options_.shared.links != nullptr) options_.shared.links->Add(1);
}

Route FanoutCall::State::ChooseRoute(const Call& call) {
  const Link& link = *links_[call.shard];
  if (link.shared == nullptr || call.bytes == 0) return Route::kNetwork;
  // Calls that only pull may wait: nothing waits for them.
  if (options_.shared.answers_need_later_pushes &&
      call.direction == Direction::kPush &&
      !WindowOf(call, Route::kShared).HasRoom(call.bytes)) {
    return Route::kNetwork;
  }
  return Route::kShared;
}

void FanoutCall::State::PrepareShared(ActiveCall* active) {
  active->shared_request.Clear();
  std::shared_ptr<SharedLink> shared;
  {
    MutexLock lock(&mu_);
    shared = links_[active->call.shard]->shared;
  }
  if (shared == nullptr) return;
  std::optional<grpc::ByteBuffer> request = active->shared.Prepare(
      shared, active->call.request, active->call.answer_bytes);
  if (request.has_value()) {
    active->shared_request = *std::move(request);
  } else {
    CountFallback(SharedFallback::kFull);
  }
}

bool FanoutCall::State::LeaveShared(ActiveCall* active, absl::Status* status) {
  if (status->ok()) {
    const absl::StatusOr<size_t> pulled =
        active->shared.TakeAnswer(&active->response);
    *status = pulled.status();
    Count(options_.shared.pushed_bytes, active->shared.payload_bytes());
    Count(options_.shared.pulled_bytes, pulled.value_or(0));
    return false;
  }
  const std::shared_ptr<SharedLink> shared = active->shared.link();
  if (active->shared.OnError(*status)) return false;
  DropShared(links_[active->call.shard].get(), shared);
  const absl::optional<absl::Cord> said =
      status->GetPayload(kSharedMemoryDetail);
  return said.has_value() && *said == "unknown";
}

void FanoutCall::State::DropShared(Link* link,
                                   const std::shared_ptr<SharedLink>& shared) {
  bool again = false;
  {
    MutexLock lock(&mu_);
    if (link->shared != shared) return;
    link->shared.reset();
    again = link->handovers < kHandoversMax;
  }
  if (options_.shared.links != nullptr) options_.shared.links->Add(-1);
  CountFallback(SharedFallback::kLost);
  if (again) Connect(link);
}

void FanoutCall::State::CountFallback(SharedFallback reason) const {
  if (options_.shared.on_fallback) options_.shared.on_fallback(reason);
}

void FanoutCall::State::Close(const absl::Status& error) {
  if (error_.ok()) error_ = error;
  for (const std::unique_ptr<Link>& link : links_) {
    pending_ -= link->push_window.Clear() + link->pull_window.Clear() +
                link->shared_push_window.Clear() +
                link->shared_pull_window.Clear();
  }
  if (pending_ == 0) idle_.SignalAll();
}

void FanoutCall::State::CancelActive() {
  std::vector<std::shared_ptr<grpc::ClientContext>> contexts;
  std::vector<std::shared_ptr<grpc::Alarm>> alarms;
  std::vector<std::shared_ptr<ShmRegistration>> handovers;
  {
    MutexLock lock(&mu_);
    for (const std::unique_ptr<Link>& link : links_) {
      if (link->handover != nullptr) handovers.push_back(link->handover);
    }
    for (const ActiveCallPtr& active : active_) {
      if (active->context != nullptr) contexts.push_back(active->context);
      if (active->alarm != nullptr) alarms.push_back(active->alarm);
    }
  }
  for (const auto& context : contexts) context->TryCancel();
  for (const auto& alarm : alarms) alarm->Cancel();
  for (const auto& handover : handovers) handover->Cancel();
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
void FanoutCall::Cancel(const absl::Status& reason) { state_->Cancel(reason); }

}  // namespace syncline::worker

#ifndef SYNCLINE_SCHEDULER_SERVICE_FILE_STREAM_H_
#define SYNCLINE_SCHEDULER_SERVICE_FILE_STREAM_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/cluster/declared_size.h"
#include "common/rpc/grpc_status.h"
#include "common/system/thread_pool.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "proto/scheduler.pb.h"
#include "scheduler/core/cluster/transfer_queue.h"
#include "scheduler/service/artifact_store.h"
#include "scheduler/service/audit_log.h"
#include "scheduler/service/control_loop.h"

namespace syncline::scheduler {

// Gives uploads their turns. Thread-safe.
class TransferGate {
 public:
  explicit TransferGate(const TransferQueue::Options& options)
      : queue_(options) {}

  uint64_t NewTicket() ABSL_LOCKS_EXCLUDED(mu_);
  // `start` runs once when it is this ticket's turn, on any thread, perhaps
  // before Enter returns; not after Leave has returned, but for one that runs
  // already. Errors: Unavailable: too many wait.
  absl::Status Enter(uint64_t ticket, absl::string_view client,
                     std::function<void()> start) ABSL_LOCKS_EXCLUDED(mu_);
  // Also of one that is still waiting.
  void Leave(uint64_t ticket) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void GiveTurns() ABSL_LOCKS_EXCLUDED(mu_);

  Mutex mu_;
  uint64_t next_ticket_ ABSL_GUARDED_BY(mu_) = 1;
  TransferQueue queue_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, std::function<void()>> starts_ ABSL_GUARDED_BY(mu_);
};

class LogRelays;
class UserGate;

// The objects that all services of a scheduler work with. All outlive the gRPC
// server.
struct ServiceContext {
  ControlLoop* loop;
  ArtifactStore* artifacts;
  ThreadPool* files;   // reads and writes of files
  ThreadPool* intake;  // parses models; one thread, hence one in memory
  TransferGate* gate;  // of uploads
  const UserGate* user_gate;
  uint64_t model_bytes_max;
  AuditLog* audit;
  LogRelays* logs;
  std::string tenant_checkpoints = {};  // Scheduler::Options'
};

// For calls that no thread pool takes.
inline absl::Status TooMuchToDo() {
  return absl::UnavailableError("the scheduler has too much to do");
}

// Sends a stored file in chunks: the next one is read from disk when gRPC has
// taken the last one, so a slow reader costs one chunk of memory. Owns itself.
// `on_end` (may be null) is called once, with the outcome, before the caller
// learns it.
grpc::ServerWriteReactor<FileChunk>* SendArtifact(
    const ServiceContext& context, const DownloadRequest& request,
    std::function<void(const absl::Status&)> on_end);

// Ends a download at once with `status`, which is an error. Owns itself.
grpc::ServerWriteReactor<FileChunk>* RefuseDownload(const absl::Status& status);

// A call whose messages are handled on a pool, one after the other; the next
// one is read when the last has been handled, the first when it is the call's
// turn. A caller that says nothing for the loop's idle limit is given up, and
// one that sends next to nothing. While its caller is waited for it holds no
// message. Owns itself.
template <typename Request>
class ReceiveReactor : public grpc::ServerReadReactor<Request>,
                       public ControlLoop::Transfer {
 public:
  explicit ReceiveReactor(const ServiceContext& context)
      : loop_(context.loop),
        pool_(context.files),
        gate_(context.gate),
        ticket_(gate_->NewTicket()) {}

  static grpc::ServerReadReactor<Request>* Start(
      grpc::CallbackServerContext* call,
      const std::shared_ptr<ReceiveReactor>& reactor) {
    reactor->declared_bytes_ = DeclaredFileBytes(call->client_metadata());
    reactor->loop_->AddTransfer(reactor);
    reactor->self_ = reactor;
    const absl::Status entered =
        reactor->gate_->Enter(reactor->ticket_, ClientOfPeer(call->peer()),
                              [reactor] { reactor->TakeTurn(); });
    if (!entered.ok() && reactor->EndsWaiting()) reactor->End(entered);
    return reactor.get();
  }

  void EndIfIdle(absl::Time since) final ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(&mu_);
      if (waiting_since_ > since) return;
      waiting_since_ = absl::InfiniteFuture();
      given_up_ = true;
    }
    const bool queued = pool_->TrySubmit([this] {
      End(absl::DeadlineExceededError("the upload stalled: nothing came"));
    });
    if (!queued) End(TooMuchToDo());
  }

 protected:
  // An error ends the call.
  virtual absl::Status Take(const Request& request) = 0;
  // No more messages come. It, or what it starts, calls End.
  virtual void Complete() = 0;
  // Releases the received messages; the call is over, with `outcome`.
  virtual void Drop(const absl::Status& outcome) = 0;

  // Ends the call. Its memory is free before the caller has the answer.
  void End(const absl::Status& status) {
    Drop(status);
    this->Finish(ToGrpcStatus(status));
  }
  // Of the file that the call uploads; none: the caller does not say. Errors:
  // InvalidArgument: it says no number.
  const absl::StatusOr<std::optional<uint64_t>>& declared_bytes() const {
    return declared_bytes_;
  }
  // The caller has left; work that has not begun is not needed.
  bool cancelled() const { return cancelled_; }

 private:
  void TakeTurn() ABSL_LOCKS_EXCLUDED(mu_) {
    if (EndsWaiting()) ReadNext();
  }
  // True once: for the thread that goes on with the call.
  bool EndsWaiting() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    return std::exchange(awaits_turn_, false);
  }

  void ReadNext() ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(&mu_);
      waiting_since_ = loop_->Now();
    }
    this->StartRead(&request_);
  }

  void OnReadDone(bool ok) final ABSL_LOCKS_EXCLUDED(mu_) {
    absl::Status pace;
    {
      MutexLock lock(&mu_);
      if (given_up_) return;
      if (ok) {
        pace = pace_.Add(loop_->Now() - waiting_since_, request_.ByteSizeLong(),
                         loop_->idle_limit());
      }
      waiting_since_ = absl::InfiniteFuture();
    }
    const bool queued = pool_->TrySubmit([this, ok, pace] {
      if (!ok) return Complete();
      const absl::Status status = pace.ok() ? Take(request_) : pace;
      request_ = Request();
      if (!status.ok()) return End(status);
      ReadNext();
    });
    if (!queued) End(TooMuchToDo());
  }
  void OnCancel() final {
    cancelled_ = true;
    // Nothing else is under way that would end it.
    if (EndsWaiting()) End(absl::CancelledError("the caller left"));
  }
  void OnDone() final {
    gate_->Leave(ticket_);
    const std::shared_ptr<ReceiveReactor> self = std::move(self_);
  }

  ControlLoop* const loop_;
  ThreadPool* const pool_;
  TransferGate* const gate_;
  const uint64_t ticket_;
  absl::StatusOr<std::optional<uint64_t>> declared_bytes_;  // since Start
  std::shared_ptr<ReceiveReactor> self_;  // until gRPC is done with it
  std::atomic<bool> cancelled_{false};
  Request request_;

  Mutex mu_;
  bool awaits_turn_ ABSL_GUARDED_BY(mu_) = true;
  TransferPace pace_ ABSL_GUARDED_BY(mu_);
  // InfiniteFuture: the call does not wait for its caller.
  absl::Time waiting_since_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  bool given_up_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_SERVICE_FILE_STREAM_H_

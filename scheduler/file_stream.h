#ifndef SYNCLINE_SCHEDULER_FILE_STREAM_H_
#define SYNCLINE_SCHEDULER_FILE_STREAM_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/base/thread_pool.h"
#include "common/rpc/grpc_status.h"
#include "grpcpp/support/server_callback.h"
#include "proto/scheduler.pb.h"
#include "scheduler/artifact_store.h"
#include "scheduler/control_loop.h"

namespace syncline {

// What all services of a scheduler work with. All outlive the gRPC server.
struct ServiceContext {
  ControlLoop* loop;
  ArtifactStore* artifacts;
  ThreadPool* files;   // reads and writes of files
  ThreadPool* intake;  // parses models; one thread, hence one in memory
  uint64_t model_bytes_max;
};

// For calls that no thread pool takes.
inline absl::Status TooMuchToDo() {
  return absl::UnavailableError("the scheduler has too much to do");
}

// Sends a stored file in chunks: the next one is read from disk when gRPC has
// taken the last one, so a slow reader costs one chunk of memory. Owns itself.
grpc::ServerWriteReactor<FileChunk>* SendArtifact(
    const ServiceContext& context, const DownloadRequest& request);

// A call whose messages are handled on a pool, one after the other; the next
// one is read when the last has been handled. A caller that says nothing for
// the loop's idle limit is given up. Owns itself.
template <typename Request>
class ReceiveReactor : public grpc::ServerReadReactor<Request>,
                       public ControlLoop::Transfer {
 public:
  explicit ReceiveReactor(const ServiceContext& context)
      : loop_(context.loop), pool_(context.files) {}

  static grpc::ServerReadReactor<Request>* Start(
      std::shared_ptr<ReceiveReactor> reactor) {
    ReceiveReactor* const raw = reactor.get();
    raw->loop_->AddTransfer(reactor);
    raw->self_ = std::move(reactor);
    raw->ReadNext();
    return raw;
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
  // Lets go of what was received; the call is over.
  virtual void Drop() = 0;

  // Ends the call. Nothing is left of it when the caller hears of it.
  void End(const absl::Status& status) {
    Drop();
    this->Finish(ToGrpcStatus(status));
  }
  // The caller has left; what is not begun yet need not be.
  bool cancelled() const { return cancelled_; }

 private:
  void ReadNext() ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(&mu_);
      waiting_since_ = loop_->Now();
    }
    this->StartRead(&request_);
  }

  void OnReadDone(bool ok) final ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(&mu_);
      if (given_up_) return;
      waiting_since_ = absl::InfiniteFuture();
    }
    const bool queued = pool_->TrySubmit([this, ok] {
      if (!ok) return Complete();
      const absl::Status status = Take(request_);
      if (!status.ok()) return End(status);
      ReadNext();
    });
    if (!queued) End(TooMuchToDo());
  }
  void OnCancel() final { cancelled_ = true; }
  void OnDone() final {
    const std::shared_ptr<ReceiveReactor> self = std::move(self_);
  }

  ControlLoop* const loop_;
  ThreadPool* const pool_;
  std::shared_ptr<ReceiveReactor> self_;  // until gRPC is done with it
  std::atomic<bool> cancelled_{false};
  Request request_;

  Mutex mu_;
  // InfiniteFuture: it is not the caller who is waited for.
  absl::Time waiting_since_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  bool given_up_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace syncline

#endif  // SYNCLINE_SCHEDULER_FILE_STREAM_H_

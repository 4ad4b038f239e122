#include "server/service/shard_reactor.h"

#include <atomic>
#include <utility>

#include "absl/strings/cord.h"
#include "common/base/clock.h"
#include "common/rpc/grpc_status.h"
#include "common/wire/frame.h"

namespace syncline::ps {
namespace {

// Tells a caller whose shared memory was used that it is not used any more.
absl::Status WithEnd(absl::Status status) {
  if (!status.ok() && !status.GetPayload(kSharedMemoryDetail).has_value()) {
    status.SetPayload(kSharedMemoryDetail, absl::Cord("ended"));
  }
  return status;
}

}  // namespace

// gRPC does not let metadata and answer be sent at the same time: the thread
// that comes while the other sends leaves the rest to it.
class ShardReactor::Early {
 public:
  // False: answered already, and the reactor may be gone.
  bool Begin() {
    State open = State::kOpen;
    return state_.compare_exchange_strong(open, State::kSending);
  }
  // False: answered meanwhile, with `status`.
  bool End() {
    State sending = State::kSending;
    return state_.compare_exchange_strong(sending, State::kOpen);
  }
  // False: the caller of Begin finishes the call.
  bool Answer() { return state_.exchange(State::kAnswered) == State::kOpen; }

  absl::Status status;  // set before Answer

 private:
  enum class State { kOpen, kSending, kAnswered };
  std::atomic<State> state_{State::kOpen};
};

ShardReactor::ShardReactor(PsRpc rpc, PsMetrics* metrics)
    : rpc_(rpc),
      metrics_(metrics),
      start_(MonotonicNow()),
      early_(std::make_shared<Early>()) {}

void ShardReactor::CancelWith(std::weak_ptr<JobShard> shard, CallToken token) {
  shard_ = std::move(shard);
  token_ = token;
}

JobShard::Taken ShardReactor::SayTaken() {
  return [this, early = early_] {
    if (!early->Begin()) return;
    StartSendInitialMetadata();
    if (!early->End()) Finish(ToGrpcStatus(early->status));
  };
}

void ShardReactor::Answer(const absl::Status& status) {
  metrics_->Answered(rpc_, status.code(), MonotonicNow() - start_);
  early_->status = WithEnd(status);
  if (early_->Answer()) Finish(ToGrpcStatus(early_->status));
}

void ShardReactor::OnCancel() {
  if (const auto shard = shard_.lock()) shard->Cancel(token_);
}

void StatisticsReactor::CancelWith(std::weak_ptr<PendingStatistics> statistics,
                                   uint64_t token) {
  statistics_ = std::move(statistics);
  token_ = token;
}

void StatisticsReactor::OnCancel() {
  if (const auto statistics = statistics_.lock()) statistics->Cancel(token_);
}

}  // namespace syncline::ps

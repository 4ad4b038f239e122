#include "worker/client/statistics_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/rpc/message_buffer.h"
#include "common/update/reduction_root.h"
#include "common/wire/routing_version.h"
#include "common/wire/statistics_limits.h"
#include "worker/client/transport/retry_policy.h"

namespace syncline::worker {
namespace {

FanoutCall::Options FanoutOptions(const StatisticsClient::Options& options) {
  FanoutCall::Options fanout;
  const std::shared_ptr<const RoutedJob> job = options.routing->job();
  fanout.job_id = options.routing->caller().job_id();
  fanout.peers = {job->Peers()[kRootShard]};
  fanout.patience = options.step_timeout;
  // One call at a time.
  fanout.push_window_bytes = kFoldedValuesMax * sizeof(double);
  fanout.telemetry = options.telemetry;
  if (options.on_unreachable != nullptr) {
    fanout.on_unreachable = [tell = options.on_unreachable,
                             root = job->shards[kRootShard].member()](
                                uint32_t, absl::Duration out_of_reach,
                                const absl::Status& error) {
      tell(root, out_of_reach, error);
    };
  }
  return fanout;
}

absl::Status TakeSums(const grpc::ByteBuffer& message,
                      absl::Span<double> values) {
  FoldStatisticsResponse response;
  if (!FromByteBuffer(message, &response) ||
      static_cast<size_t>(response.sums_size()) != values.size()) {
    return absl::InternalError(absl::StrCat("answered ", response.sums_size(),
                                            " sums of ", values.size(),
                                            " values"));
  }
  std::copy(response.sums().begin(), response.sums().end(), values.begin());
  return absl::OkStatus();
}

}  // namespace

StatisticsClient::StatisticsClient(const Options& options)
    : options_(options), calls_(MakeCalls()) {
  MutexLock lock(&mu_);
  to_cancel_ = calls_;
}

void StatisticsClient::Cancel(const absl::Status& reason) {
  options_.routing->Cancel(reason);
  std::shared_ptr<FanoutCall> calls;
  {
    MutexLock lock(&mu_);
    if (cancelled_.ok()) cancelled_ = reason;
    calls = to_cancel_;
  }
  if (calls != nullptr) calls->Cancel(reason);
}

std::shared_ptr<FanoutCall> StatisticsClient::MakeCalls() const {
  return std::make_shared<FanoutCall>(FanoutOptions(options_));
}

absl::Status StatisticsClient::GoOnElsewhere(const absl::Status& refusal) {
  SYNCLINE_RETURN_IF_ERROR(options_.routing->Follow(refusal));
  {
    MutexLock lock(&mu_);
    to_cancel_ = nullptr;
  }
  calls_.reset();
  calls_ = MakeCalls();
  MutexLock lock(&mu_);
  to_cancel_ = calls_;
  return cancelled_;
}

void StatisticsClient::BeginStep(int64_t clock, StepRecorder* recorder) {
  clock_ = clock;
  fold_ = 0;
  recorder_ = recorder;
  waited_ = absl::ZeroDuration();
  spoilt_by_others_ = false;
}

absl::Status StatisticsClient::Fold(absl::Span<double> values) {
  const bool own_are_finite = AreFinite(values);
  SYNCLINE_RETURN_IF_ERROR(FoldPieces(values));
  if (own_are_finite && !AreFinite(values)) spoilt_by_others_ = true;
  return absl::OkStatus();
}

absl::Status StatisticsClient::FoldPieces(absl::Span<double> values) {
  while (!values.empty()) {
    const size_t count = std::min(values.size(), kFoldedValuesMax);
    SYNCLINE_RETURN_IF_ERROR(FoldPiece(values.first(count)));
    values.remove_prefix(count);
  }
  return absl::OkStatus();
}

absl::Status StatisticsClient::FoldPiece(absl::Span<double> values) {
  FoldStatisticsRequest request = MakeRequest();
  request.mutable_values()->Add(values.begin(), values.end());
  SYNCLINE_RETURN_IF_ERROR(Call(request, values));
  ++fold_;
  return absl::OkStatus();
}

absl::Status StatisticsClient::Leave() {
  FoldStatisticsRequest request = MakeRequest();
  request.set_absent(true);
  return Call(request, {});
}

FoldStatisticsRequest StatisticsClient::MakeRequest() const {
  FoldStatisticsRequest request;
  request.set_clock(clock_);
  request.set_fold(fold_);
  request.set_wait_seconds(absl::ToDoubleSeconds(
      RetryPolicy::LongestAttempt(options_.step_timeout)));
  return request;
}

absl::Status StatisticsClient::Call(FoldStatisticsRequest request,
                                    absl::Span<double> values) {
  const StepRecorder::Interval interval(recorder_, StepProfile::WAIT);
  const absl::Time begin = MonotonicNow();
  do {
    *request.mutable_caller() = options_.routing->caller();
    request.mutable_caller()->set_shard(kRootShard);
    // Nothing of a call runs any more when Wait has returned.
    calls_->Start(
        {.method = "FoldStatistics",
         .request = ToByteBuffer(request),
         .clock = clock_,
         .on_response = [values](const grpc::ByteBuffer& response, absl::Time) {
           return TakeSums(response, values);
         }});
    status_ = calls_->Wait();
  } while (RoutingVersionOf(status_).has_value() &&
           (status_ = GoOnElsewhere(status_)).ok());
  waited_ += MonotonicNow() - begin;
  return status_;
}

}  // namespace syncline::worker

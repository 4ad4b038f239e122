#include "worker/client/statistics_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/rpc/message_buffer.h"
#include "common/wire/statistics_limits.h"
#include "worker/client/transport/retry_policy.h"

namespace syncline::worker {
namespace {

FanoutCall::Options FanoutOptions(const StatisticsClient::Options& options) {
  FanoutCall::Options fanout;
  fanout.job_id = options.job_id;
  fanout.peers = {options.root};
  fanout.patience = options.step_timeout;
  // One call at a time.
  fanout.push_window_bytes = kFoldedValuesMax * sizeof(double);
  fanout.telemetry = options.telemetry;
  fanout.on_unreachable = options.on_unreachable;
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
    : options_(options), calls_(FanoutOptions(options)) {}

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
  *request.mutable_caller() = options_.caller;
  request.set_clock(clock_);
  request.set_fold(fold_);
  request.set_wait_seconds(absl::ToDoubleSeconds(
      RetryPolicy::LongestAttempt(options_.step_timeout)));
  return request;
}

absl::Status StatisticsClient::Call(const FoldStatisticsRequest& request,
                                    absl::Span<double> values) {
  const StepRecorder::Interval interval(recorder_, StepProfile::WAIT);
  const absl::Time begin = MonotonicNow();
  // Nothing of a call runs any more when Wait has returned.
  calls_.Start(
      {.method = "FoldStatistics",
       .request = ToByteBuffer(request),
       .clock = clock_,
       .on_response = [values](const grpc::ByteBuffer& response, absl::Time) {
         return TakeSums(response, values);
       }});
  status_ = calls_.Wait();
  waited_ += MonotonicNow() - begin;
  return status_;
}

}  // namespace syncline::worker

#ifndef SYNCLINE_WORKER_CLIENT_STATISTICS_CLIENT_H_
#define SYNCLINE_WORKER_CLIENT_STATISTICS_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "proto/parameter_server.pb.h"
#include "worker/client/current_routing.h"
#include "worker/client/transport/client_telemetry.h"
#include "worker/client/transport/fanout_call.h"
#include "worker/exchange/step_folds.h"

namespace syncline::worker {

// Folds one worker's statistics with the others' at the job's ReductionRoot
// (FoldStatistics in proto/parameter_server.proto). It has calls of its own,
// which do not wait for gradients.
//
// Errors name the root, address, job, clock and who is missing.
class StatisticsClient : public StepFolds {
 public:
  struct Options {
    // Says where the root is, and who calls; outlives this.
    std::shared_ptr<CurrentRouting> routing;
    absl::Duration step_timeout = absl::Seconds(60);
    // Of these, retries and held_back.
    ClientTelemetry telemetry = {};
    // FanoutCall's, with the root; may be null.
    std::function<void(const Member& peer, absl::Duration out_of_reach,
                       const absl::Status& error)>
        on_unreachable = nullptr;
  };
  explicit StatisticsClient(const Options& options);

  void BeginStep(int64_t clock, StepRecorder* recorder) override;
  absl::Status Fold(absl::Span<double> values) override;
  absl::Status Leave() override;
  absl::Duration waited() const override { return waited_; }
  bool spoilt_by_others() const override { return spoilt_by_others_; }
  const absl::Status& status() const override { return status_; }
  void Cancel(const absl::Status& reason) override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::Status FoldPiece(absl::Span<double> values);
  absl::Status FoldPieces(absl::Span<double> values);
  // A request for the step's next fold.
  FoldStatisticsRequest MakeRequest() const;
  // The same calls, to the root of the present routing.
  std::shared_ptr<FanoutCall> MakeCalls() const;
  absl::Status GoOnElsewhere(const absl::Status& refusal)
      ABSL_LOCKS_EXCLUDED(mu_);
  // The answer's sums replace `values`. Sets the request's caller.
  absl::Status Call(FoldStatisticsRequest request, absl::Span<double> values);

  const Options options_;
  int64_t clock_ = 0;
  uint32_t fold_ = 0;
  StepRecorder* recorder_ = nullptr;
  absl::Duration waited_;
  bool spoilt_by_others_ = false;
  absl::Status status_;
  std::shared_ptr<FanoutCall> calls_;  // the calling thread's
  Mutex mu_;
  absl::Status cancelled_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<FanoutCall> to_cancel_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_CLIENT_STATISTICS_CLIENT_H_

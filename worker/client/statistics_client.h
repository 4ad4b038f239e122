#ifndef SYNCLINE_WORKER_CLIENT_STATISTICS_CLIENT_H_
#define SYNCLINE_WORKER_CLIENT_STATISTICS_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/parameter_server.pb.h"
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
    std::string job_id;
    Caller caller;
    FanoutCall::Peer root;
    absl::Duration step_timeout = absl::Seconds(60);
    // Of these, retries and held_back.
    ClientTelemetry telemetry = {};
    // FanoutCall's; may be null.
    std::function<void(uint32_t shard, absl::Duration out_of_reach,
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
  void Cancel(const absl::Status& reason) override { calls_.Cancel(reason); }

 private:
  absl::Status FoldPiece(absl::Span<double> values);
  absl::Status FoldPieces(absl::Span<double> values);
  // A request for the step's next fold.
  FoldStatisticsRequest MakeRequest() const;
  // The answer's sums replace `values`.
  absl::Status Call(const FoldStatisticsRequest& request,
                    absl::Span<double> values);

  const Options options_;
  int64_t clock_ = 0;
  uint32_t fold_ = 0;
  StepRecorder* recorder_ = nullptr;
  absl::Duration waited_;
  bool spoilt_by_others_ = false;
  absl::Status status_;
  FanoutCall calls_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_CLIENT_STATISTICS_CLIENT_H_

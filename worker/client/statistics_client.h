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
#include "worker/client/client_telemetry.h"
#include "worker/client/fanout_call.h"
#include "worker/compute/step_recorder.h"
#include "worker/ops/statistics_exchange.h"

namespace syncline::worker {

// Folds one worker's statistics with the others' at the ps of rank 0
// (FoldStatistics in proto/parameter_server.proto). It has calls of its own,
// which wait for nobody's gradients.
//
// Calls come from one thread; Cancel from any. Errors are as PsClient's: the
// first is kept, names ps, address, job, clock and who is missing, and ends the
// job.
class StatisticsClient : public StatisticsExchange {
 public:
  struct Options {
    std::string job_id;
    Caller caller;
    FanoutCall::Peer ps;  // of rank 0
    absl::Duration step_timeout = absl::Seconds(60);
    // Of these, retries and held_back.
    ClientTelemetry telemetry = {};
    // FanoutCall's; may be null.
    std::function<void(uint32_t shard, absl::Duration out_of_reach,
                       const absl::Status& error)>
        on_unreachable = nullptr;
  };
  explicit StatisticsClient(const Options& options);

  // `recorder`, which may be null, is told of waits until the next step.
  void BeginStep(int64_t clock, StepRecorder* recorder);
  absl::Status Fold(absl::Span<double> values) override;
  // Takes part in no more folds of this step: the others do not wait for it.
  // Blocks for a round trip.
  absl::Status Leave();
  // In Fold and Leave, since BeginStep.
  absl::Duration waited() const { return waited_; }
  // Since BeginStep sums were not finite though what this worker had brought
  // was: it is not the one to blame.
  bool spoilt_by_others() const { return spoilt_by_others_; }
  // The error that is kept.
  const absl::Status& status() const { return status_; }

  // Ends what is under way, and every later call.
  void Cancel(const absl::Status& reason) { calls_.Cancel(reason); }

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

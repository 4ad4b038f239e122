#ifndef SYNCLINE_WORKER_TRAINING_EVALUATION_LOOP_H_
#define SYNCLINE_WORKER_TRAINING_EVALUATION_LOOP_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/data/epochs.h"
#include "worker/evaluation/cut_evaluator.h"
#include "worker/exchange/parameter_exchange.h"
#include "worker/job/job_exchange.h"
#include "worker/job/prepared_job.h"
#include "worker/job/worker_metrics.h"

namespace syncline::worker {

// The evaluator's work while the other members train: it evaluates the state at
// each epoch's end, in order, each once. One use, one thread; Stop from any.
//
//   read the cut -> announce the next -> end this one -> evaluate
//
// The chief announces the first cut before a worker can train. Where an epoch's
// end cannot be cut, the one after it is announced, and so on, before the held
// cut ends: workers that nothing holds run to the last clock, where the chief
// waits for a cut. The last cut is never ended, because no push comes after it.
// Rows are read while their cut is held, so with tables a cut ends after its
// evaluation. An evaluation that takes longer than an epoch holds the workers
// at the next cut.
class EvaluationLoop {
 public:
  // `job` is an evaluator's, complete, and outlives this, as `metrics` does.
  // `exchange` works on the memory of its executor. `on_activity` is
  // CutEvaluator's.
  EvaluationLoop(const PreparedJob& job, const Epochs& epochs,
                 JobExchange exchange, WorkerMetrics* metrics,
                 OnEvaluation on_evaluation,
                 std::function<void(const std::string&)> on_activity);

  // Until the state at the last clock is evaluated. Blocks. Errors:
  // ParameterExchange's, the executor's; Cancelled: by Stop.
  absl::Status Run();

  // Ends Run with Cancelled: calls under way are cut short, a batch that is
  // being computed is finished first. Thread-safe.
  void Stop();

  const std::vector<Evaluation>& evaluations() const {
    return evaluator_.evaluations();
  }

 private:
  absl::Status EvaluateAll();
  // The next cut that is to be had. The workers who wait at `held` are told of
  // each try.
  absl::StatusOr<EpochCut> AnnounceNext(const EpochCut& held);
  // The executor has the values of `cut`, which is not the last one.
  absl::Status EvaluateAt(const EpochCut& cut);

  const PreparedJob& job_;
  const Epochs epochs_;
  std::atomic<bool> stop_{false};
  const JobExchange exchange_;
  ParameterExchange& parameters_ = *exchange_.parameters;
  CutEvaluator evaluator_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_TRAINING_EVALUATION_LOOP_H_

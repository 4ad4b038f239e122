#ifndef SYNCLINE_WORKER_EVALUATOR_H_
#define SYNCLINE_WORKER_EVALUATOR_H_

#include <atomic>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "proto/job_spec.pb.h"
#include "worker/batch.h"
#include "worker/data/dataset.h"
#include "worker/executor.h"

namespace syncline {

// Scores the executor's current parameters on every sample of a dataset, in
// file order: loss, and the metrics that the job asks for. Single thread.
class Evaluator {
 public:
  // `dataset` and `executor` outlive the evaluator. REQUIRES: `spec` has its
  // defaults.
  Evaluator(const JobSpec& spec, const Dataset* dataset, Executor* executor);

  // Makes the executor ready for a batch: what its tables hold.
  using Prepare = absl::FunctionRef<absl::Status(const Batch&)>;
  // Fills samples, loss, metrics and time. Errors: Cancelled when `stop` turns
  // true, which is looked at before each batch; `prepare`'s and the executor's.
  absl::StatusOr<Evaluation> Run(const std::atomic<bool>& stop,
                                 Prepare prepare);

 private:
  const JobSpec spec_;
  const Dataset* const dataset_;
  Executor* const executor_;
  Batch batch_;
};

}  // namespace syncline

#endif  // SYNCLINE_WORKER_EVALUATOR_H_

#ifndef SYNCLINE_WORKER_EVALUATION_EVALUATOR_H_
#define SYNCLINE_WORKER_EVALUATION_EVALUATOR_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "proto/job_spec.pb.h"
#include "worker/compute/executor.h"
#include "worker/data/batch.h"
#include "worker/data/dataset.h"

namespace syncline::worker {

// Scores the executor's current parameters on every sample of a dataset, in
// file order, with buckets in that of each bucket: loss, and the metrics that
// the job asks for. Single thread.
class Evaluator {
 public:
  // `dataset` and `executor` outlive the evaluator. REQUIRES: `spec` has its
  // defaults.
  Evaluator(const JobSpec& spec, const Dataset* dataset, Executor* executor);

  // Called before each batch with the samples that are done, of how many; an
  // error ends the evaluation.
  using OnBatch = absl::FunctionRef<absl::Status(int64_t done, int64_t total)>;
  // Makes the executor ready for a batch: what its tables hold.
  using Prepare = absl::FunctionRef<absl::Status(const Batch&)>;

  // Gives `visit` each batch in the order of Run, and computes nothing. Errors:
  // those of both.
  absl::Status ForEachBatch(OnBatch on_batch, Prepare visit);
  // Fills samples, loss, metrics and time. Errors: those of `on_batch`, of
  // `prepare` and of the executor; FailedPrecondition: a loss that is not
  // finite, where the job's non_finite is FAIL_JOB.
  absl::StatusOr<Evaluation> Run(OnBatch on_batch, Prepare prepare);

  // Why the loss of the latest Run is not finite, of its first batch with such
  // a loss; else empty.
  const std::string& not_finite() const { return not_finite_; }

 private:
  absl::Status OnNotFinite(const Executor::EvalResult& result);

  const JobSpec spec_;
  const Dataset* const dataset_;
  Executor* const executor_;
  Batch batch_;
  std::string not_finite_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_EVALUATION_EVALUATOR_H_

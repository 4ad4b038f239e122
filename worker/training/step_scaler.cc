#include "worker/training/step_scaler.h"

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/job/step_shares.h"
#include "common/system/log.h"
#include "common/update/update_spec.h"

namespace syncline::worker {
namespace {

// Overflows are counted; of those that come one after the other not each is
// named.
constexpr absl::Duration kLogPeriod = absl::Seconds(10);

}  // namespace

StepScaler::StepScaler(const PreparedJob& job,
                       const ParameterExchange* parameters,
                       WorkerMetrics* metrics, ProgressMeter* meter)
    : job_(job),
      parameters_(*parameters),
      metrics_(*metrics),
      meter_(*meter),
      scales_(job.spec().precision() == FLOAT16),
      dynamic_(HasDynamicLossScale(job.spec())) {
  if (!scales_) return;
  scale_ = LossScale(job.spec().loss_scale());
  if (dynamic_) Restore();
}

// Members may not see the folder of a checkpoint, which is the ps' business.
void StepScaler::Restore() {
  const JobAssignment& assignment = job_.assignment;
  if (!assignment.has_start_from() || assignment.start_clock() == 0) return;
  const absl::StatusOr<CheckpointManifest> manifest =
      ReadManifest(assignment.start_from().path());
  // In SYNC all workers have the same, so another number of them goes on with
  // that of the first.
  const bool same_workers =
      manifest.ok() && manifest->workers_size() == assignment.workers_size();
  const int rank = same_workers ? static_cast<int>(job_.rank) : 0;
  if (manifest.ok() && rank < manifest->workers_size() &&
      manifest->workers(rank).has_loss_scale()) {
    const CheckpointManifest::LossScale& saved =
        manifest->workers(rank).loss_scale();
    if (scale_.Restore({.scale = saved.scale(),
                        .good_steps = saved.good_steps(),
                        .tolerated = saved.overflows()})) {
      return;
    }
  }
  LogWarning(
      "the loss scale starts anew, so this run may differ from one that "
      "was not interrupted")
      .Job(assignment.job_id())
      .Field("loss_scale", scale_.scale())
      .Field("why", manifest.ok() ? "the checkpoint has none for this worker"
                                  : std::string(manifest.status().message()));
}

absl::Status StepScaler::Settle() {
  if (!scales_) return absl::OkStatus();
  if (const auto done = std::exchange(done_, std::nullopt); done.has_value()) {
    const std::optional<bool> overflowed = HasOverflowed(*done);
    if (overflowed.has_value()) {
      const LossScale::Event event = scale_.OnStep(*overflowed);
      if (*overflowed) {
        metrics_.OnOverflow();
        LogOverflow(*done, event);
      }
      if (dynamic_ && event == LossScale::Event::kExhausted) {
        SYNCLINE_RETURN_IF_ERROR(OnExhausted(*done));
      }
    }
  }
  return absl::OkStatus();
}

std::optional<LossScale::State> StepScaler::StateOfAllRanks(
    int64_t clock) const {
  if (!scales_ || !dynamic_ || !job_.regimes.At(clock).sync()) {
    return std::nullopt;
  }
  return scale_.state();
}

absl::Status StepScaler::BeginStep(int64_t clock) {
  if (!scales_) return absl::OkStatus();
  SYNCLINE_RETURN_IF_ERROR(Settle());
  job_.executor->UseLossScale(scale_.FactorFor(SharesOf(job_.spec()).largest));
  metrics_.OnLossScale(scale_.scale());
  meter_.SetLossScale(scale_.scale(), scale_.overflows());
  return absl::OkStatus();
}

void StepScaler::OnGradient(int64_t clock, uint64_t samples,
                            const std::string& overflow) {
  if (!scales_) return;
  done_ = {.clock = clock,
           .samples = samples,
           .overflow = overflow,
           .abandoned = parameters_.step_abandoned()};
}

std::optional<bool> StepScaler::HasOverflowed(const Done& step) const {
  // A fixed scale stays: the gradient itself meets the job's policy.
  if (dynamic_ && job_.regimes.At(step.clock).sync()) {
    return parameters_.was_skipped(step.clock);
  }
  if (step.samples == 0) return std::nullopt;
  return step.abandoned || !step.overflow.empty();
}

void StepScaler::LogOverflow(const Done& step, LossScale::Event event) {
  const absl::Time now = MonotonicNow();
  if (!dynamic_ || now < next_log_) return;
  next_log_ = now + kLogPeriod;
  const bool is_own = !step.overflow.empty() || step.abandoned;
  LogInfo(event == LossScale::Event::kExhausted
              ? "a step was skipped: its gradient is not finite at the "
                "smallest loss scale"
              : "a step was skipped: its scaled gradient overflowed")
      .Job(job_.assignment.job_id())
      .Field("clock", step.clock)
      .Field("what", !step.overflow.empty() ? step.overflow
                     : is_own               ? "its loss"
                                            : "another worker's")
      .Field("loss_scale", scale_.scale())
      .Field("overflows", scale_.overflows());
}

absl::Status StepScaler::OnExhausted(const Done& step) {
  if (NonFiniteOf(job_.spec().non_finite()) != OnNonFinite::kFailJob) {
    return absl::OkStatus();
  }
  spoilt_by_others_ = step.overflow.empty() && !step.abandoned;
  const std::string what =
      spoilt_by_others_
          ? "of another worker, or the sum of all, or a gradient as it was "
            "rounded for wire_type,"
          : absl::StrCat("(", step.overflow, ")");
  return absl::FailedPreconditionError(absl::StrCat(
      job_.task_name(), ": step at clock ", step.clock, ": the gradient ", what,
      " is not finite at the smallest loss scale, ", scale_.scale(),
      "; lower loss_scale.minimum or learning_rate, use precision BFLOAT16, or "
      "let such steps be skipped with non_finite SKIP_STEP"));
}

}  // namespace syncline::worker

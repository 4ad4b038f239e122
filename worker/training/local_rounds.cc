#include "worker/training/local_rounds.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/system/log.h"

namespace syncline::worker {
namespace {

// Of a rank whose local steps take long, within the step timeout.
constexpr int kActivitiesPerTimeout = 8;

}  // namespace

LocalRounds::LocalRounds(
    const PreparedJob& job, const Rounds& rounds, int64_t clocks_total,
    ParameterExchange* parameters,
    std::function<void(const std::string& what)> on_activity)
    : job_(job),
      rounds_(rounds),
      parameters_(*parameters),
      on_activity_(std::move(on_activity)) {
  job_.local->SetTotalClocks(clocks_total);
  if (!job_.is_chief() || rounds_.steps_per_epoch >= rounds_.steps_of_clock) {
    return;
  }
  LogWarning(
      "a pass over data.train has fewer steps than consistency.local.steps: "
      "each pass is one shorter round")
      .Job(job_.assignment.job_id())
      .Field("steps_per_pass", rounds_.steps_per_epoch)
      .Field("local_steps", rounds_.steps_of_clock);
}

absl::StatusOr<LocalRounds::Round> LocalRounds::Run(int64_t clock,
                                                    NextBatch next_batch) {
  LocalUpdater& local = *job_.local;
  const int64_t steps = rounds_.StepsOf(clock);
  Round round;
  told_at_ = MonotonicNow();
  local.Begin();
  for (int64_t k = 0; k < steps; ++k) {
    SYNCLINE_ASSIGN_OR_RETURN(const Batch* const batch, next_batch());
    if (batch->size == 0) continue;
    const auto in_words = [&](const absl::Status& failure) {
      return Annotate(failure, absl::StrCat("local step ", k + 1, " of ", steps,
                                            " at clock ", clock));
    };
    const auto computed =
        job_.executor->TrainStep(*batch, clock, [](int /*tensor*/) {});
    if (!computed.ok()) return in_words(computed.status());
    const auto samples = static_cast<uint64_t>(batch->size);
    const absl::Time before = MonotonicNow();
    SYNCLINE_RETURN_IF_ERROR(in_words(local.Step(clock, samples)));
    round.updates += MonotonicNow() - before;
    round.samples += samples;
    round.loss_sum += computed->loss_sum;
    SYNCLINE_RETURN_IF_ERROR(Report(clock, k + 1, steps));
  }
  const absl::Time before = MonotonicNow();
  const absl::Status ended = local.End(round.samples);
  round.updates += MonotonicNow() - before;
  if (!ended.ok()) {
    return Annotate(ended,
                    absl::StrCat("the end of the round of clock ", clock));
  }
  if (std::exchange(has_told_, false) && on_activity_) on_activity_("");
  return round;
}

absl::Status LocalRounds::Report(int64_t clock, int64_t done, int64_t total) {
  const absl::Duration period =
      absl::Seconds(job_.spec().limits().step_timeout_seconds()) /
      kActivitiesPerTimeout;
  const absl::Time now = MonotonicNow();
  if (done == total || now < told_at_ + period) return absl::OkStatus();
  told_at_ = now;
  if (on_activity_) {
    has_told_ = true;
    on_activity_(absl::StrCat("local step ", done, " of ", total,
                              " of the round of clock ", clock));
  }
  return parameters_.ReportActivity(clock, "local steps",
                                    static_cast<uint64_t>(done),
                                    static_cast<uint64_t>(total));
}

}  // namespace syncline::worker

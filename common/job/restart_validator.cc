#include "common/job/restart_validator.h"

#include "common/job/start_validator.h"

namespace syncline {
namespace {

// Ranges are those of proto/job_spec.proto.
constexpr double kBackoffSecondsMax = 3600;

}  // namespace

void CheckRestart(const JobSpec& spec, Problems* problems) {
  CheckStartFields(spec, problems);
  if (!spec.has_restart()) return;
  const RestartSpec& restart = spec.restart();
  if (!spec.has_checkpoint()) {
    problems->Add("restart",
                  "needs checkpoint: without one each restart would begin at "
                  "clock 0 again");
  }
  if (restart.max() > kRestartsMax) {
    problems->Add("restart.max", restart.max(), " is too large, at most ",
                  kRestartsMax, ": a job's record shows no more restarts");
  }
  if (!(restart.backoff_seconds() >= 0 &&
        restart.backoff_seconds() <= kBackoffSecondsMax)) {
    problems->Add("restart.backoff_seconds", restart.backoff_seconds(),
                  " is outside 0..", kBackoffSecondsMax);
  }
  if (restart.window_seconds() != 0 && restart.window_seconds() < 1) {
    problems->Add("restart.window_seconds", restart.window_seconds(),
                  " is less than 1");
  }
  problems->Seconds("restart.window_seconds", restart.window_seconds());
}

void FillRestart(JobSpec* spec) {
  if (!spec->has_restart()) return;
  RestartSpec* const restart = spec->mutable_restart();
  if (restart->max() == 0) restart->set_max(3);
  if (!restart->has_backoff_seconds()) restart->set_backoff_seconds(1);
  if (restart->window_seconds() == 0) restart->set_window_seconds(3600);
}

}  // namespace syncline

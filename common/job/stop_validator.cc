#include "common/job/stop_validator.h"

#include <cstdint>

#include "absl/algorithm/container.h"
#include "common/job/evaluate_validator.h"
#include "common/job/job_spec_validator.h"
#include "common/job/strategy_rules.h"

namespace syncline {
namespace {

// Ranges are those of proto/job_spec.proto.
constexpr uint32_t kPatienceMax = 1000;

}  // namespace

void CheckStop(const JobSpec& spec, Problems* problems) {
  if (!spec.has_stop()) return;
  const StopSpec& stop = spec.stop();
  if (!spec.data().has_test()) {
    problems->Add("stop", "nothing is evaluated without data.test");
  }
  if (IsWithoutPs(spec) && !EvaluatesCheckpoints(spec)) {
    problems->Add("stop",
                  "is for jobs with ps: without them no cut holds the workers "
                  "until the evaluation has decided; with "
                  "evaluate.checkpoints none has to");
  }
  if (stop.metric() == METRIC_UNSPECIFIED) {
    problems->Add("stop.metric", "is required: LOSS, or one of metrics");
  } else if (Metric_IsValid(stop.metric()) && stop.metric() != LOSS &&
             spec.data().has_test()) {
    const JobSpec full = WithDefaults(spec);
    if (!absl::c_linear_search(full.metrics(), stop.metric())) {
      problems->Add("stop.metric", Metric_Name(stop.metric()),
                    " is not computed; add it to metrics, or use LOSS");
    }
  }
  if (stop.patience() < 1 || stop.patience() > kPatienceMax) {
    problems->Add("stop.patience", stop.patience(), " is outside 1..",
                  kPatienceMax);
  }
  problems->NotNegative("stop.min_change", stop.min_change());
}

}  // namespace syncline

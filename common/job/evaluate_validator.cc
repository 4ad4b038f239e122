#include "common/job/evaluate_validator.h"

#include <string>

#include "absl/strings/string_view.h"
#include "common/job/start_validator.h"

namespace syncline {
namespace {

// The fields that `checkpoints` and `only` both need.
void CheckCommon(absl::string_view field, const JobSpec& spec,
                 Problems* problems) {
  if (!spec.data().has_test()) {
    problems->Add(field, "nothing is evaluated without data.test");
  }
}

void CheckCheckpoints(const JobSpec& spec, Problems* problems) {
  constexpr char kField[] = "evaluate.checkpoints";
  CheckCommon(kField, spec, problems);
  if (!spec.has_checkpoint()) {
    problems->Add(kField, "needs checkpoint: it says when one is made");
  } else if (spec.checkpoint().directory().empty()) {
    problems->Add(kField,
                  "needs checkpoint.directory, a folder that all ps and the "
                  "evaluator see: it reads the files of all of them");
  }
}

void CheckOnly(const JobSpec& spec, Problems* problems) {
  constexpr char kField[] = "evaluate.only";
  CheckCommon(kField, spec, problems);
  if (!spec.has_start() || StartsFromWeights(spec)) {
    problems->Add(kField, "needs start.checkpoint, which is what it evaluates");
  }
  const auto refuse = [&](bool is_set, absl::string_view what) {
    if (is_set) {
      problems->Add(kField, "trains nothing, so ", what,
                    " has no meaning; leave it out");
    }
  };
  refuse(spec.evaluate().checkpoints(), "evaluate.checkpoints");
  refuse(spec.has_checkpoint(), "checkpoint");
  refuse(spec.has_restart(), "restart");
  refuse(spec.has_stop(), "stop");
  refuse(spec.has_groups(), "groups");
  refuse(spec.regimes_size() > 0, "regimes");
  refuse(spec.export_().best_of() != METRIC_UNSPECIFIED, "export.best_of");
}

}  // namespace

void CheckEvaluate(const JobSpec& spec, Problems* problems) {
  if (OnlyEvaluates(spec)) return CheckOnly(spec, problems);
  if (EvaluatesCheckpoints(spec)) CheckCheckpoints(spec, problems);
}

}  // namespace syncline

#include "common/job/local_rules.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/job/compression_rules.h"
#include "common/job/job_spec_fields.h"

namespace syncline {
namespace {

using O = OptimizerSpec;

constexpr uint32_t kDefaultSteps = 16;

// Of the ps, whose gradient is what a round has changed.
void CheckOuterOptimizer(const LocalSpec& local, Problems* problems) {
  const std::string path = "consistency.local.optimizer";
  const float rate = local.learning_rate();
  if (!(std::isfinite(rate) && rate >= 0)) {
    problems->Add("consistency.local.learning_rate", rate,
                  " must be finite and > 0, or 0 for 1");
  }
  if (!local.has_optimizer()) return;
  const O& outer = local.optimizer();
  if (outer.kind() == O::KIND_UNSPECIFIED) {
    problems->Add(path + ".kind", "is required: SGD, MOMENTUM or NESTEROV");
    return;
  }
  if (!IsOneOf(outer.kind(), {O::SGD, O::MOMENTUM, O::NESTEROV})) {
    if (!O::Kind_IsValid(outer.kind())) return;  // that is said elsewhere
    problems->Add(path + ".kind", O::Kind_Name(outer.kind()),
                  " is not for the change of a round; use SGD, MOMENTUM or "
                  "NESTEROV");
    return;
  }
  CheckOptimizerFields(path, outer, problems);
  const auto of_the_workers = [&](absl::string_view field, float value) {
    if (value == 0) return;
    problems->Add(absl::StrCat(path, ".", field),
                  "is for `optimizer`, which makes the local steps");
  };
  of_the_workers("weight_decay", outer.weight_decay());
  of_the_workers("clip_value", outer.clip_value());
  of_the_workers("clip_norm", outer.clip_norm());
}

// Of the workers.
void CheckInnerOptimizer(const O& optimizer, Problems* problems) {
  if (optimizer.kind() == O::LAMB) {
    problems->Add("optimizer.kind",
                  "LAMB is not built for LOCAL yet; use ADAMW");
  }
  if (optimizer.kind() == O::FTRL) {
    problems->Add("optimizer.kind",
                  "FTRL is not for LOCAL: it computes values from its own sums "
                  "of gradients, so the mean of a round would be lost with the "
                  "next step; use ADAGRAD");
  }
}

// Decisions that all workers would have to make within a round.
void CheckDecidedTogether(const JobSpec& spec, Problems* problems) {
  if (IsOneOf(spec.non_finite(), {SKIP_STEP, DROP_BLOCK})) {
    problems->Add("non_finite", NonFinitePolicy_Name(spec.non_finite()),
                  " is not built for LOCAL: a local step that is left out is "
                  "known to its worker alone; use FAIL_JOB");
  }
  if (spec.precision() == FLOAT16) {
    problems->Add("precision",
                  "FLOAT16 is not built for LOCAL: its loss scale skips steps; "
                  "use BFLOAT16");
  }
  if (spec.training().sync_batch_statistics()) {
    problems->Add("training.sync_batch_statistics",
                  "is not for LOCAL: workers do not compute the same step at "
                  "the same time");
  }
  if (Compresses(spec) &&
      !IsOneOf(spec.compression().kind(),
               {CompressionSpec::INT8, CompressionSpec::TOP_K})) {
    problems->Add("compression.kind",
                  CompressionSpec::Kind_Name(spec.compression().kind()),
                  " is not built for LOCAL: it is about gradients, and here "
                  "the change of a round is sent; use INT8 or TOP_K");
  }
}

}  // namespace

void CheckLocal(const JobSpec& spec, Problems* problems) {
  const ConsistencySpec& consistency = spec.consistency();
  if (!IsLocal(spec)) {
    if (consistency.has_local()) {
      problems->Add("consistency.local", "is for LOCAL only");
    }
    return;
  }
  problems->AtMost("consistency.local.steps", consistency.local().steps(),
                   kLocalStepsMax);
  CheckOuterOptimizer(consistency.local(), problems);
  CheckInnerOptimizer(spec.optimizer(), problems);
  CheckDecidedTogether(spec, problems);
  if (spec.tables_size() > 0) {
    problems->Add("tables",
                  "do not go with LOCAL yet: their rows would need local steps "
                  "of their own; use BOUNDED_STALENESS");
  }
  if (spec.has_auto_regime()) {
    problems->Add("auto_regime",
                  "does not go with LOCAL: a job neither enters nor leaves it "
                  "while it runs");
  }
}

void FillLocal(JobSpec* spec) {
  if (!IsLocal(*spec)) return;
  LocalSpec* const local = spec->mutable_consistency()->mutable_local();
  if (local->steps() == 0) local->set_steps(kDefaultSteps);
  if (!local->has_optimizer()) local->mutable_optimizer()->set_kind(O::SGD);
  if (local->learning_rate() == 0) local->set_learning_rate(1);
}

std::string LocalNote(const JobSpec& spec) {
  if (!IsLocal(spec)) return "";
  JobSpec full = spec;
  FillLocal(&full);
  const int64_t steps = StepsOfClock(full);
  return absl::StrCat(
      "consistency.mode LOCAL: a clock is a round of ", steps,
      steps == 1 ? " step" : " steps",
      " on each worker; schedules, max_clocks and checkpoints count rounds");
}

std::string LocalWarning(const JobSpec& spec) {
  if (!IsLocal(spec) || !spec.has_checkpoint() ||
      spec.optimizer().kind() == O::SGD) {
    return "";
  }
  return absl::StrCat(
      "consistency.mode LOCAL: checkpoints have no state of `optimizer`, which "
      "is at each worker: ",
      O::Kind_Name(spec.optimizer().kind()),
      " begins anew in a job that goes on from one, so its bits are not those "
      "of one that was not interrupted");
}

}  // namespace syncline

#include "common/job/precision_validator.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/job_spec_fields.h"
#include "common/job/job_spec_validator.h"

namespace syncline {
namespace {

// Scales are 2^-kExponentMax to 2^kExponentMax: far from where float32 ends,
// whatever the number of samples.
constexpr int kExponentMax = 24;

bool IsPowerOfTwo(float value) {
  int exponent = 0;
  return value > 0 && std::frexp(value, &exponent) == 0.5f;
}

void CheckScale(absl::string_view path, float scale, Problems* problems) {
  const float most = std::ldexp(1.0f, kExponentMax);
  if (!IsPowerOfTwo(scale) || scale > most || scale < 1 / most) {
    problems->Add(path, scale, " must be a power of two from 2^-", kExponentMax,
                  " to 2^", kExponentMax,
                  ": then scaling changes no bit of a float32 number");
  }
}

void CheckDynamicScale(const JobSpec& spec, Problems* problems) {
  const LossScaleSpec& scale = spec.loss_scale();
  if (scale.initial() != 0) {
    CheckScale("loss_scale.initial", scale.initial(), problems);
  }
  if (scale.minimum() != 0) {
    CheckScale("loss_scale.minimum", scale.minimum(), problems);
  }
  const LossScaleSpec full = WithDefaults(spec).loss_scale();
  if (full.minimum() > full.initial()) {
    problems->Add("loss_scale.minimum", full.minimum(),
                  " is above loss_scale.initial, ", full.initial());
  }
  problems->AtMost("loss_scale.window", scale.window(), 1'000'000'000);
  problems->AtMost("loss_scale.hysteresis", scale.hysteresis(), 1000);
  if (spec.non_finite() == DROP_BLOCK) {
    problems->Add("non_finite",
                  "DROP_BLOCK is not for FLOAT16 with a dynamic loss scale: an "
                  "overflow skips the whole step; use SKIP_STEP or FAIL_JOB, "
                  "or loss_scale.fixed");
  }
}

}  // namespace

void CheckPrecision(const JobSpec& spec, Problems* problems) {
  if (!Precision_IsValid(spec.precision())) return;  // that is said elsewhere
  const LossScaleSpec& scale = spec.loss_scale();
  if (spec.precision() != FLOAT16) {
    if (spec.has_loss_scale()) {
      problems->Add("loss_scale", "has no meaning for precision ",
                    Precision_Name(WithDefaults(spec).precision()),
                    ", only for FLOAT16: other types have the range of "
                    "float32");
    }
    return;
  }
  if (!scale.has_fixed()) return CheckDynamicScale(spec, problems);
  CheckScale("loss_scale.fixed", scale.fixed(), problems);
  if (scale.initial() != 0 || scale.window() != 0 || scale.hysteresis() != 0 ||
      scale.minimum() != 0) {
    problems->Add("loss_scale.fixed",
                  "not together with initial, window, hysteresis or minimum: a "
                  "fixed scale never changes");
  }
}

void FillPrecision(JobSpec* spec) {
  if (spec->precision() == PRECISION_UNSPECIFIED) spec->set_precision(FLOAT32);
  if (spec->precision() != FLOAT16) return;
  LossScaleSpec* const scale = spec->mutable_loss_scale();
  if (scale->has_fixed()) return;
  if (scale->initial() == 0) scale->set_initial(65536);
  if (scale->window() == 0) scale->set_window(1000);
  if (scale->hysteresis() == 0) scale->set_hysteresis(1);
  if (scale->minimum() == 0) scale->set_minimum(1);
}

std::string PrecisionNote(const JobSpec& spec) {
  if (spec.precision() == TF32 &&
      spec.resources().device() != ResourcesSpec::CUDA) {
    return "precision TF32: processors compute in float32, as with FLOAT32; "
           "resources.device: CUDA has all workers compute in TF32";
  }
  if (!IsOneOf(spec.precision(), {BFLOAT16, FLOAT16})) return "";
  std::vector<std::string> says;
  if (spec.resources().device() != ResourcesSpec::CUDA) {
    says.push_back(
        "on the CPU 16 bits save memory of activations, and no time: it "
        "computes in float32 and rounds");
  }
  if (spec.precision() == FLOAT16 && !spec.loss_scale().has_fixed()) {
    const bool sync =
        IsOneOf(spec.consistency().mode(),
                {ConsistencySpec::MODE_UNSPECIFIED, ConsistencySpec::SYNC});
    says.push_back(absl::StrCat(
        "the loss scale is dynamic, so a gradient that overflows skips its "
        "step",
        sync ? ", on all workers: each step costs a norm over the whole "
               "gradient, as clip_norm does"
             : ", and each worker has its own scale"));
  }
  if (says.empty()) return "";
  return absl::StrCat("precision ", Precision_Name(spec.precision()), ": ",
                      absl::StrJoin(says, "; "));
}

}  // namespace syncline

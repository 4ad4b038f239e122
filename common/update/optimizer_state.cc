#include "common/update/optimizer_state.h"

#include "absl/strings/str_cat.h"

namespace syncline {
namespace {

const char* KindName(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return "sgd";
    case OptimizerKind::kMomentum:
      return "momentum";
    case OptimizerKind::kNesterov:
      return "nesterov";
    case OptimizerKind::kAdagrad:
      return "adagrad";
    case OptimizerKind::kAdam:
      return "adam";
    case OptimizerKind::kAdamW:
      return "adamw";
    case OptimizerKind::kRmsProp:
      return "rmsprop";
    case OptimizerKind::kLamb:
      return "lamb";
    case OptimizerKind::kFtrl:
      return "ftrl";
    case OptimizerKind::kRowWiseAdagrad:
      return "row-wise adagrad";
  }
  return "unknown";
}

}  // namespace

std::string OptimizerStateName(const OptimizerParams& params) {
  const bool rms = params.kind == OptimizerKind::kRmsProp;
  return absl::StrCat(KindName(params.kind),
                      rms && params.centered ? " centered" : "",
                      rms && params.momentum > 0 ? " momentum" : "");
}

}  // namespace syncline

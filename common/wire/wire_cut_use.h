#ifndef SYNCLINE_COMMON_WIRE_WIRE_CUT_USE_H_
#define SYNCLINE_COMMON_WIRE_WIRE_CUT_USE_H_

#include <optional>

#include "common/cuts/cut_use.h"
#include "proto/parameter_server.pb.h"

namespace syncline {

// None: a value that this version does not know.
inline std::optional<CutUse> CutUseOf(CutPurpose purpose) {
  switch (purpose) {
    case CUT_PURPOSE_UNSPECIFIED:
    case EVALUATION:
      return CutUse::kEvaluation;
    case CHECKPOINT_STATE:
      return CutUse::kCheckpoint;
    case CHANGE_REGIME:
      return CutUse::kRegime;
    case CHANGE_ROUTING:
      return CutUse::kRouting;
    default:
      return std::nullopt;
  }
}

inline CutPurpose CutPurposeOf(CutUse use) {
  switch (use) {
    case CutUse::kEvaluation:
      return EVALUATION;
    case CutUse::kCheckpoint:
      return CHECKPOINT_STATE;
    case CutUse::kRegime:
      return CHANGE_REGIME;
    case CutUse::kRouting:
      return CHANGE_ROUTING;
  }
  return CUT_PURPOSE_UNSPECIFIED;
}

}  // namespace syncline

#endif  // SYNCLINE_COMMON_WIRE_WIRE_CUT_USE_H_

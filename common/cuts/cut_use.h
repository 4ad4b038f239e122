#ifndef SYNCLINE_COMMON_CUTS_CUT_USE_H_
#define SYNCLINE_COMMON_CUTS_CUT_USE_H_

#include "absl/strings/string_view.h"

namespace syncline {

// The purpose of a cut; CutPurpose in proto/parameter_server.proto.
enum class CutUse { kEvaluation, kCheckpoint, kRegime, kRouting };

// For people: "a checkpoint cut".
inline absl::string_view CutUseName(CutUse use) {
  switch (use) {
    case CutUse::kEvaluation:
      // Each epoch ends in one, also of a job that evaluates nothing.
      return "epoch";
    case CutUse::kCheckpoint:
      return "checkpoint";
    case CutUse::kRegime:
      return "regime";
    case CutUse::kRouting:
      return "routing";
  }
  return "unknown";
}

// True if each shard takes a snapshot when it passes such a cut.
inline bool TakesSnapshot(CutUse use) {
  return use == CutUse::kCheckpoint || use == CutUse::kRouting;
}

}  // namespace syncline

#endif  // SYNCLINE_COMMON_CUTS_CUT_USE_H_

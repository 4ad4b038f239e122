#include "common/job/start_validator.h"

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "common/job/name_rule.h"

namespace syncline {
namespace {

// Ranges are those of proto/job_spec.proto.
constexpr uint32_t kShardsMax = 2048;  // HYBRID: of ps and of workers
constexpr size_t kPathBytesMax = 4096;
constexpr int kNamesMax = 1000;

void CheckCheckpointFields(const StartSpec& start, Problems* problems) {
  const absl::string_view path = start.checkpoint();
  if (path.empty()) {
    problems->Add("start.checkpoint", "or start.weights is required");
  } else if (!absl::StartsWith(path, "/")) {
    problems->Add("start.checkpoint", QuoteText(path.substr(0, 80)),
                  " is not an absolute path");
  } else if (path.size() > kPathBytesMax) {
    problems->Add("start.checkpoint", path.size(), " bytes, at most ",
                  kPathBytesMax);
  }
  problems->NotNegative("start.clock", static_cast<double>(start.clock()));
  problems->AtMost("start.shards", start.shards(), kShardsMax);
  if (start.names_size() > 0) {
    problems->Add("start.names", "is for start.weights only");
  }
  if (start.allow_missing()) {
    problems->Add("start.allow_missing", "is for start.weights only");
  }
}

void CheckWeightsFields(const StartSpec& start, Problems* problems) {
  if (!start.checkpoint().empty()) {
    problems->Add("start.weights",
                  "is in place of start.checkpoint; set one of the two");
  } else if (start.weights_only() || start.clock() != 0 ||
             start.shards() != 0 || start.manifest_crc32c() != 0) {
    problems->Add("start.weights",
                  "takes no weights_only, clock, shards or manifest_crc32c: "
                  "these are of a checkpoint");
  }
  if (start.weights().size() > kPathBytesMax) {
    problems->Add("start.weights", start.weights().size(), " bytes, at most ",
                  kPathBytesMax);
  }
  if (start.names_size() > kNamesMax) {
    problems->Add("start.names", start.names_size(), " rules, at most ",
                  kNamesMax);
    return;
  }
  for (int i = 0; i < start.names_size(); ++i) {
    const absl::Status rule = CheckNameRule(start.names(i));
    if (!rule.ok()) problems->Add(Indexed("start.names", i), rule.message());
  }
}

}  // namespace

void CheckStartFields(const JobSpec& spec, Problems* problems) {
  if (!spec.has_start()) return;
  if (StartsFromWeights(spec)) {
    CheckWeightsFields(spec.start(), problems);
  } else {
    CheckCheckpointFields(spec.start(), problems);
  }
}

}  // namespace syncline

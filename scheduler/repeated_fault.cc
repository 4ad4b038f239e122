#include "scheduler/repeated_fault.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "google/protobuf/util/message_differencer.h"

namespace syncline {
namespace {

// "10.0.0.5:4000", "(incarnation", "0x00c0ffee00c0ffee)", "j-0042,", "5.2".
bool DiffersBetweenRuns(absl::string_view word) {
  const bool has_digit =
      std::any_of(word.begin(), word.end(), absl::ascii_isdigit);
  return absl::StartsWith(word, "(incarnation") ||
         (has_digit &&
          (absl::StrContains(word, ':') || absl::StrContains(word, '.') ||
           absl::StartsWith(word, "0x") || absl::StartsWith(word, "j-")));
}

uint32_t ModelChecksum(const JobStatus& job) {
  for (const Artifact& artifact : job.artifacts()) {
    if (artifact.name() == "model.onnx") return artifact.crc32c();
  }
  return 0;
}

}  // namespace

std::string FaultOf(const JobStatus& job) {
  if (job.state() != FAILED || job.transitions().empty()) return "";
  const std::string& reason = job.transitions().rbegin()->reason();
  // Later lines, and what the job waited for, are not about the fault itself.
  const absl::string_view line = absl::string_view(reason).substr(
      0, std::min(reason.find('\n'), reason.find("; the job waited for ")));
  const bool is_own_fault =
      absl::StrContains(line, " was lost: stream closed") ||
      absl::StrContains(line, " has not come forward ");
  if (!is_own_fault || !absl::StrContains(line, "clock ")) return "";
  std::vector<absl::string_view> words =
      absl::StrSplit(line, ' ', absl::SkipEmpty());
  std::erase_if(words, DiffersBetweenRuns);
  return absl::StrJoin(words, " ");
}

bool IsSameWork(const JobStatus& a, const JobStatus& b) {
  return ModelChecksum(a) == ModelChecksum(b) &&
         google::protobuf::util::MessageDifferencer::Equals(a.spec(), b.spec());
}

}  // namespace syncline

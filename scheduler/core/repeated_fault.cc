#include "scheduler/core/repeated_fault.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "common/job/start_validator.h"
#include "google/protobuf/util/message_differencer.h"

namespace syncline::scheduler {
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

// Without the brackets and commas around it.
absl::string_view Bare(absl::string_view word) {
  while (absl::ConsumePrefix(&word, "(")) {
  }
  while (!word.empty() && absl::StrContains(",;)", word.back())) {
    word.remove_suffix(1);
  }
  return word;
}

bool IsNumber(absl::string_view word) {
  return !word.empty() &&
         std::all_of(word.begin(), word.end(), absl::ascii_isdigit);
}

bool IsRole(absl::string_view word) {
  return word == "chief" || word == "worker" || word == "ps" ||
         word == "evaluator";
}

// "worker:1", as workers and ps name a member.
bool IsMember(absl::string_view word) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(word, absl::MaxSplits(':', 1));
  return IsRole(parts.first) && IsNumber(parts.second);
}

std::vector<absl::string_view> WordsOf(absl::string_view text) {
  std::vector<absl::string_view> words =
      absl::StrSplit(text, ' ', absl::SkipEmpty());
  for (absl::string_view& word : words) word = Bare(word);
  return words;
}

// The last clock that `words` name; empty: none.
absl::string_view LastClock(absl::Span<const absl::string_view> words) {
  for (size_t i = words.size(); i-- > 1;) {
    if (words[i - 1] == "clock" && IsNumber(words[i])) return words[i];
  }
  return "";
}

// The members that a call waited for in vain, as a ps lists them: "... pull of
// clock 6 by chief:0 at h:1 ran out of time ...; missing: worker:1 at h:2
// (clock 5, 3 of 10 blocks), ps:1". The rest differs between two runs: who
// waited, at which ps, with a push or a pull, and how much had arrived. Empty:
// it names none.
std::string MissingMembers(absl::string_view line) {
  constexpr absl::string_view kMissing = "missing: ";
  const size_t list = line.rfind(kMissing);
  if (list == absl::string_view::npos) return "";
  const absl::string_view of = LastClock(WordsOf(line.substr(0, list)));
  const std::vector<absl::string_view> words =
      WordsOf(line.substr(list + kMissing.size()));
  std::vector<std::string> missing;
  for (size_t i = 0; i < words.size();) {
    if (!IsMember(words[i])) {
      ++i;
      continue;
    }
    // The first clock of its entry is its own.
    absl::string_view clock;
    size_t next = i + 1;
    for (; next < words.size() && !IsMember(words[next]); ++next) {
      if (clock.empty() && words[next - 1] == "clock" &&
          IsNumber(words[next])) {
        clock = words[next];
      }
    }
    if (clock.empty()) clock = of;
    if (clock.empty()) return "";
    missing.push_back(absl::StrCat(words[i], " clock ", clock));
    i = next;
  }
  if (missing.empty()) return "";
  return absl::StrCat(kMissing, absl::StrJoin(missing, ", "));
}

// "... waiting for the end of the epoch cut at clock 6 by evaluator:0
// (last heard of ...)".
std::string HeldCut(absl::string_view line) {
  constexpr absl::string_view kEnd = "waiting for the end of the ";
  const size_t at = line.find(kEnd);
  if (at == absl::string_view::npos) return "";
  const std::vector<absl::string_view> words =
      WordsOf(line.substr(at + kEnd.size()));
  if (words.size() < 7 || words[1] != "cut" || !IsMember(words[6])) return "";
  return absl::StrCat(kEnd,
                      absl::StrJoin(words.begin(), words.begin() + 7, " "));
}

// "not prepared within 10m: worker 1 at h:1: reading a.csv, ps 0 at h:2": the
// members, without what they were doing.
std::string UnpreparedMembers(absl::string_view line) {
  if (!absl::StartsWith(line, "not prepared within ")) return "";
  const std::vector<absl::string_view> words = WordsOf(line);
  std::vector<std::string> members;
  for (size_t i = 0; i + 2 < words.size(); ++i) {
    if (IsRole(words[i]) && IsNumber(words[i + 1]) && words[i + 2] == "at") {
      members.push_back(absl::StrCat(words[i], " ", words[i + 1]));
    }
  }
  if (members.empty()) return "";
  return absl::StrCat("not prepared: ", absl::StrJoin(members, ", "));
}

// A member that died or stands still, by the scheduler's own notice.
std::string OwnFault(absl::string_view line) {
  const bool is_own_fault =
      absl::StrContains(line, " was lost: stream closed") ||
      absl::StrContains(line, " has not come forward ");
  if (!is_own_fault || !absl::StrContains(line, "clock ")) return "";
  // The member's last report differs from time to time, so it is left out.
  line = line.substr(0, line.find("; it said last: "));
  std::vector<absl::string_view> words =
      absl::StrSplit(line, ' ', absl::SkipEmpty());
  std::erase_if(words, DiffersBetweenRuns);
  return absl::StrJoin(words, " ");
}

uint32_t ChecksumOf(absl::string_view name, const JobStatus& job) {
  for (const Artifact& artifact : job.artifacts()) {
    if (artifact.name() == name) return artifact.crc32c();
  }
  return 0;
}

}  // namespace

std::string FaultOf(const JobStatus& job) {
  if (job.state() != FAILED || job.transitions().empty()) return "";
  return FaultIn(job.transitions().rbegin()->reason());
}

std::string FaultIn(absl::string_view reason) {
  // Later lines, and what the job waited for, are not about the fault itself.
  const absl::string_view line = reason.substr(
      0, std::min({reason.find('\n'), reason.find("; the job waited for "),
                   reason.find(kNextAttempt)}));
  if (absl::StrContains(line, " cannot reach ")) return "";  // the network's
  for (const auto& fault_in :
       {OwnFault, MissingMembers, HeldCut, UnpreparedMembers}) {
    if (std::string fault = fault_in(line); !fault.empty()) return fault;
  }
  return "";
}

bool IsSameWork(const JobStatus& a, const JobStatus& b) {
  return ChecksumOf("model.onnx", a) == ChecksumOf("model.onnx", b) &&
         ChecksumOf(kWeightsArtifact, a) == ChecksumOf(kWeightsArtifact, b) &&
         google::protobuf::util::MessageDifferencer::Equals(a.spec(), b.spec());
}

}  // namespace syncline::scheduler

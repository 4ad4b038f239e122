#include "common/job/blame_text.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace syncline {
namespace {

// A shorter wait is not worth a line.
constexpr double kSecondsMin = 0.05;

std::string WorkerName(const JobStatus& job, uint32_t rank) {
  if (rank >= static_cast<uint32_t>(job.workers_size())) {
    return absl::StrCat("rank ", rank);
  }
  const Task& task = job.workers(static_cast<int>(rank)).member().task();
  return absl::StrCat(absl::AsciiStrToLower(TaskType_Name(task.type())), ":",
                      task.index());
}

std::string LineOf(const JobStatus& job, const Blame& blame) {
  std::string line = WorkerName(job, blame.rank());
  const bool was_last = blame.clocks() > 0 && blame.seconds() >= kSecondsMin;
  if (was_last) {
    absl::StrAppendFormat(&line, " closed %d clocks last, %.*f s",
                          blame.clocks(), blame.seconds() < 10 ? 1 : 0,
                          blame.seconds());
  }
  if (blame.left_behind_clocks() > 0) {
    absl::StrAppend(&line, was_last ? ";" : "", " was left behind at ",
                    blame.left_behind_clocks(), " clocks, ",
                    blame.dropped_samples(), " samples that it sent too late");
  }
  return line;
}

}  // namespace

std::vector<std::string> BlameLines(const JobStatus& job, size_t lines_max) {
  std::vector<const Blame*> blames;
  for (const Blame& blame : job.progress().blame()) {
    if (blame.left_behind_clocks() > 0 ||
        (blame.clocks() > 0 && blame.seconds() >= kSecondsMin)) {
      blames.push_back(&blame);
    }
  }
  std::stable_sort(blames.begin(), blames.end(),
                   [](const Blame* a, const Blame* b) {
                     return std::pair(a->left_behind_clocks(), a->seconds()) >
                            std::pair(b->left_behind_clocks(), b->seconds());
                   });
  std::vector<std::string> lines;
  for (const Blame* blame : blames) {
    if (lines.size() == lines_max) break;
    lines.push_back(LineOf(job, *blame));
  }
  return lines;
}

}  // namespace syncline

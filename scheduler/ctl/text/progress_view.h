#ifndef SYNCLINE_SCHEDULER_CTL_TEXT_PROGRESS_VIEW_H_
#define SYNCLINE_SCHEDULER_CTL_TEXT_PROGRESS_VIEW_H_

#include <string>

#include "absl/time/time.h"
#include "proto/job.pb.h"

namespace syncline::ctl {

// Turns the statuses of a watched job into what is written. Pure: text in the
// order of the calls. A line per state change and per evaluation; between them
// the progress, as a line at most once a second or, live, as one line that
// overwrites itself. Foreign text comes out Printable. Single thread.
class ProgressView {
 public:
  enum class Style { kLines, kLive, kJson };
  ProgressView(Style style, int width) : style_(style), width_(width) {}

  // Text to write for `job` now; may be empty. Statuses may repeat.
  std::string Update(const JobStatus& job, absl::Time now);

  // Text to write when nothing has come for `silence`: at once, and then from
  // time to time.
  std::string Silence(absl::Duration silence);

  // Text that leaves the cursor at the start of an empty line.
  std::string Finish();

 private:
  std::string NewFacts(const JobStatus& job);
  std::string Progress(const JobStatus& job, absl::Time now);
  std::string LiveLine(const JobProgress& progress) const;

  const Style style_;
  const int width_;
  bool live_line_shown_ = false;
  std::string state_line_;
  int lost_shown_ = 0;
  int transitions_shown_ = 0;  // as far as they warn
  int evaluations_shown_ = 0;
  int regimes_shown_ = 1;         // the first is that of the job file
  int64_t checkpoint_shown_ = 0;  // its clock
  int64_t clock_shown_ = -1;
  absl::Duration next_silence_ = absl::ZeroDuration();
  absl::Time next_progress_ = absl::InfinitePast();
};

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_TEXT_PROGRESS_VIEW_H_

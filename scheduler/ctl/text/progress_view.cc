#include "scheduler/ctl/text/progress_view.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/printable.h"
#include "common/job/checkpoint_trouble.h"
#include "common/job/evaluate_validator.h"
#include "scheduler/ctl/text/console.h"
#include "scheduler/ctl/text/job_text.h"

namespace syncline::ctl {
namespace {

constexpr absl::Duration kLineInterval = absl::Seconds(1);
constexpr absl::Duration kSilenceInterval = absl::Seconds(5);
constexpr char kClearLine[] = "\r\033[K";
constexpr int kBarWidthMax = 24;
constexpr int kBarWidthMin = 4;

// Of a job that trains nothing: one member does it, an evaluator where one is
// free.
std::string PreparingText(const JobStatus& job) {
  const bool by_evaluator = job.workers_size() == 1 &&
                            job.workers(0).member().task().type() == EVALUATOR;
  return absl::StrCat("preparing an evaluation on ",
                      by_evaluator ? "an evaluator" : "a worker");
}

// The state in a line. The command that watches the job tells its end in full.
std::string StateLine(const JobStatus& job) {
  switch (job.state()) {
    case QUEUED:
      return job.waiting_for().empty()
                 ? "queued"
                 : absl::StrCat("queued: ", Printable(job.waiting_for()));
    case PREPARING:
      if (OnlyEvaluates(job.spec())) return PreparingText(job);
      return absl::StrCat("preparing on ",
                          FormatAmount(job.workers_size(), "worker"),
                          job.has_evaluator() ? ", an evaluator" : "", " and ",
                          job.ps_size(), " ps");
    case RUNNING:
      return job.waiting_for().empty()
                 ? "running"
                 : Printable(WaitingForText(job.waiting_for()));
    default:
      return "";
  }
}

// The warnings among the lines of its reason, a line each.
std::string WarningsOf(const JobTransition& transition) {
  std::string text;
  for (absl::string_view line : absl::StrSplit(transition.reason(), '\n')) {
    if (absl::StartsWith(line, "warning: ")) {
      absl::StrAppend(&text, line, "\n");
    }
  }
  return text;
}

double Done(const JobProgress& progress) {
  return std::clamp(static_cast<double>(progress.clock()) /
                        static_cast<double>(progress.clocks_total()),
                    0.0, 1.0);
}

// A bar of `width` columns, brackets and the space after it included; empty if
// that is too narrow to show anything.
std::string Bar(double done, int width) {
  const int cells = std::min(width - 3, kBarWidthMax);
  if (cells < kBarWidthMin) return "";
  const int full = static_cast<int>(done * cells);
  return absl::StrCat("[", std::string(full, '#'),
                      std::string(cells - full, '.'), "] ");
}

}  // namespace

std::string ProgressView::Update(const JobStatus& job, absl::Time now) {
  next_silence_ = absl::ZeroDuration();
  if (style_ == Style::kJson) return absl::StrCat(ToJson(job), "\n");
  std::string facts = NewFacts(job);
  if (live_line_shown_ && !facts.empty()) {
    facts.insert(0, kClearLine);
    live_line_shown_ = false;
  }
  const std::string progress = Progress(job, now);
  if (style_ == Style::kLive && !progress.empty()) live_line_shown_ = true;
  return absl::StrCat(facts, progress);
}

std::string ProgressView::Silence(absl::Duration silence) {
  if (silence < next_silence_) return "";
  next_silence_ =
      silence + (style_ == Style::kLive ? absl::Seconds(1) : kSilenceInterval);
  const std::string text = absl::StrCat("no news from the scheduler for ",
                                        absl::ToInt64Seconds(silence), " s");
  switch (style_) {
    case Style::kLines:
      return absl::StrCat(text, "\n");
    case Style::kLive:
      live_line_shown_ = true;
      return absl::StrCat(kClearLine, text);
    case Style::kJson:
      break;
  }
  google::protobuf::Struct object;
  SetField(&object, "warning", text);
  return absl::StrCat(ToJson(object), "\n");
}

std::string ProgressView::Finish() {
  if (!live_line_shown_) return "";
  live_line_shown_ = false;
  return kClearLine;
}

std::string ProgressView::NewFacts(const JobStatus& job) {
  std::string text;
  const std::string state_line = StateLine(job);
  if (!state_line.empty() && state_line != state_line_) {
    absl::StrAppend(&text, state_line, "\n");
    state_line_ = state_line;
  }
  for (; transitions_shown_ < job.transitions_size(); ++transitions_shown_) {
    const JobTransition& transition = job.transitions(transitions_shown_);
    absl::StrAppend(&text, Printable(WarningsOf(transition)));
    if (const std::string why = RestartText(transition); !why.empty()) {
      absl::StrAppend(&text, "back to the queue: ", Printable(why), "\n");
    }
  }
  lost_shown_ = std::min(lost_shown_, job.lost_workers_size());
  for (; lost_shown_ < job.lost_workers_size(); ++lost_shown_) {
    absl::StrAppend(&text, Printable(job.lost_workers(lost_shown_).reason()),
                    "\n");
  }
  // A job that has gone back may have forgotten some.
  regimes_shown_ =
      std::clamp(regimes_shown_, 1, std::max(1, job.regimes_size()));
  for (; regimes_shown_ < job.regimes_size(); ++regimes_shown_) {
    absl::StrAppend(&text,
                    "regime: ", Printable(RegimeEntryText(job, regimes_shown_)),
                    "\n");
  }
  for (const CheckpointInfo& checkpoint : job.checkpoints()) {
    if (checkpoint.clock() <= checkpoint_shown_) continue;
    checkpoint_shown_ = checkpoint.clock();
    absl::StrAppend(&text, "checkpoint at ",
                    Printable(CheckpointText(checkpoint)), "\n");
  }
  // A job that has gone back makes some again.
  evaluations_shown_ = std::min(evaluations_shown_, job.evaluations_size());
  for (; evaluations_shown_ < job.evaluations_size(); ++evaluations_shown_) {
    absl::StrAppend(&text,
                    Printable(EvaluationText(
                        job.evaluations(evaluations_shown_), job.spec())),
                    "\n");
  }
  return text;
}

std::string ProgressView::Progress(const JobStatus& job, absl::Time now) {
  const JobProgress& progress = job.progress();
  if (job.state() != RUNNING || progress.clocks_total() == 0 ||
      OnlyEvaluates(job.spec())) {
    return "";
  }
  if (style_ == Style::kLive) return LiveLine(progress);
  if (progress.clock() == clock_shown_ || now < next_progress_) return "";
  clock_shown_ = progress.clock();
  next_progress_ = now + kLineInterval;
  return absl::StrCat(ProgressText(progress), "\n");
}

std::string ProgressView::LiveLine(const JobProgress& progress) const {
  const double done = Done(progress);
  std::string line =
      absl::StrCat(static_cast<int>(100 * done), "%  ", ProgressText(progress));
  line.insert(0, Bar(done, width_ - 1 - static_cast<int>(line.size())));
  // One column stays free: a full line would wrap and could not be erased.
  line.resize(std::min<size_t>(line.size(), std::max(1, width_ - 1)));
  return absl::StrCat(kClearLine, line);
}

}  // namespace syncline::ctl

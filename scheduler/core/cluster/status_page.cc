#include "scheduler/core/cluster/status_page.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/job/evaluation_values.h"
#include "common/job/skipped_text.h"
#include "scheduler/core/describe.h"

namespace syncline::scheduler {
namespace {

constexpr char kHead[] = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Syncline</title>
<meta http-equiv="refresh" content="2">
<meta name="viewport" content="width=device-width">
<style>
body{font:14px/1.4 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;color:#1b1f24}
h1{font-size:1.4em}h2{font-size:1.1em;margin-top:2em}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.35em .8em .35em 0;border-bottom:1px solid #d8dee4;vertical-align:top}
th{font-weight:600;color:#57606a}
.bar{background:#eaeef2;width:9em;height:.6em;border-radius:.3em}
.bar i{display:block;background:#0969da;height:100%;border-radius:.3em}
.succeeded{color:#1a7f37}.failed{color:#cf222e}.cancelled{color:#9a6700}.running{color:#0969da}
.why{color:#57606a;white-space:pre-wrap}
polyline{fill:none;stroke:#0969da;stroke-width:1.5}text{font-size:9px;fill:#57606a}
</style></head><body>
)";

constexpr double kCurveWidth = 220;
constexpr double kCurveHeight = 60;

std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"},
                                    {"<", "&lt;"},
                                    {">", "&gt;"},
                                    {"\"", "&quot;"},
                                    {"'", "&#39;"}});
}

std::string Number(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.4g", value) : "–";
}

std::string TimeLeftText(double seconds) {
  if (!(seconds >= 0)) return "–";
  return absl::FormatDuration(absl::Seconds(std::ceil(seconds)));
}

std::string ProgressBar(const JobProgress& progress) {
  if (progress.clocks_total() <= 0) return "";
  const double done =
      std::clamp(static_cast<double>(progress.clock()) /
                     static_cast<double>(progress.clocks_total()),
                 0.0, 1.0);
  return absl::StrFormat(
      "<div class=\"bar\"><i style=\"width:%.1f%%\"></i></div>"
      "epoch %d/%d, step %d/%d",
      100 * done, progress.epoch(), progress.epochs_total(), progress.clock(),
      progress.clocks_total());
}

std::string ReasonText(const JobStatus& job) {
  if (job.state() == QUEUED) return job.waiting_for();
  if (job.state() == RUNNING && !job.waiting_for().empty()) {
    return absl::StrCat("waiting for ", job.waiting_for());
  }
  if (job.transitions().empty()) return "";
  return job.transitions(job.transitions_size() - 1).reason();
}

std::string EvaluationText(const JobStatus& job) {
  if (job.evaluations().empty()) return "";
  const Evaluation& last = job.evaluations(job.evaluations_size() - 1);
  std::string text = absl::StrCat("test after epoch ", last.epoch(), ": loss ",
                                  Number(last.loss()));
  for (const EvaluationValue& metric : EvaluationValues(last)) {
    absl::StrAppend(&text, ", ", metric.title, " ", Number(metric.value));
  }
  if (job.has_evaluator()) {
    absl::StrAppend(&text, " (", TaskText(job.evaluator().member().task()),
                    ")");
  }
  return text;
}

std::string SinceText(const JobStatus& job, absl::Time now) {
  if (job.transitions().empty()) return "";
  const absl::Time since =
      FromTimestamp(job.transitions(job.transitions_size() - 1).time());
  return absl::StrCat(
      absl::FormatDuration(absl::Trunc(
          std::max(now - since, absl::ZeroDuration()), absl::Seconds(1))),
      " ago");
}

// As a warning if nothing was trained.
void AppendSkipped(const JobStatus& job, std::string* html) {
  const std::string skipped = SkippedText(job);
  if (skipped.empty()) return;
  if (AllWereSkipped(job)) {
    absl::StrAppend(html,
                    "<div class=\"failed\"><b>Warning: ", Escaped(skipped),
                    "</b></div>");
  } else {
    absl::StrAppend(html, "<div>", Escaped(skipped), "</div>");
  }
}

void AppendJob(const StatusPageData::JobView& view, absl::Time now,
               std::string* html) {
  const JobStatus& job = view.status;
  const std::string state = JobState_Name(job.state());
  const JobProgress& progress = job.progress();
  absl::StrAppend(html, "<tr><td>", Escaped(job.job_id()), "</td><td>",
                  Escaped(job.spec().name()), "</td><td class=\"",
                  absl::AsciiStrToLower(state), "\">", state, "<br>",
                  SinceText(job, now), "</td><td>");
  absl::StrAppend(html, ProgressBar(progress), "</td><td>");
  if (job.state() != QUEUED && job.state() != PREPARING) {
    absl::StrAppend(html, "loss ",
                    progress.has_loss() ? Number(progress.loss()) : "–", "<br>",
                    absl::StrFormat("%.0f", progress.samples_per_second()),
                    " samples/s");
  }
  if (job.state() == RUNNING) {
    absl::StrAppend(html, "<br>", TimeLeftText(progress.seconds_left()),
                    " left");
  }
  absl::StrAppend(html, "</td><td>", RenderLossCurve(view.curve));
  absl::StrAppend(html, "<div>", Escaped(EvaluationText(job)), "</div>");
  AppendSkipped(job, html);
  absl::StrAppend(html, "<div class=\"why\">", Escaped(ReasonText(job)),
                  "</div></td></tr>\n");
}

void AppendMember(const ClusterStatus::Entry& entry, std::string* html) {
  const Member& member = entry.member();
  absl::StrAppend(
      html, "<tr><td>", Escaped(TaskText(member.task())), "</td><td>",
      Escaped(member.address()), "</td><td>", Escaped(member.hostname()), ", ",
      member.pid(), "</td><td>",
      member.has_gpu() ? absl::StrCat(Escaped(member.gpu().name()), " ",
                                      Escaped(member.gpu().model()))
                       : "",
      "</td><td>", entry.job_id().empty() ? "free" : Escaped(entry.job_id()),
      "</td><td>",
      absl::StrFormat("%.1f s", std::max(0.0, entry.silent_seconds())),
      "</td></tr>\n");
}

}  // namespace

std::string RenderLossCurve(
    const std::vector<JobProgressTracker::CurvePoint>& curve) {
  if (curve.size() < 2) return "";
  double low = curve.front().loss;
  double high = low;
  for (const auto& point : curve) {
    low = std::min(low, point.loss);
    high = std::max(high, point.loss);
  }
  const double first = static_cast<double>(curve.front().clock);
  const double clocks =
      std::max(1.0, static_cast<double>(curve.back().clock) - first);
  const double losses = high > low ? high - low : 1;
  std::string points;
  for (const auto& point : curve) {
    absl::StrAppendFormat(
        &points, "%.1f,%.1f ",
        (static_cast<double>(point.clock) - first) / clocks * kCurveWidth,
        (high - point.loss) / losses * kCurveHeight);
  }
  return absl::StrCat(
      "<svg width=\"", kCurveWidth, "\" height=\"", kCurveHeight + 14,
      "\" role=\"img\" aria-label=\"training loss\"><polyline points=\"",
      points, "\"/><text x=\"0\" y=\"", kCurveHeight + 11, "\">loss ",
      Number(high), " … ", Number(low), "</text></svg>");
}

std::string RenderStatusPage(const StatusPageData& data) {
  std::string html = kHead;
  absl::StrAppend(
      &html, "<h1>Syncline ", Escaped(data.cluster.version()),
      "</h1><p>Scheduler at ", Escaped(data.cluster.scheduler_address()), ", ",
      absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", data.now, absl::UTCTimeZone()),
      "</p>\n<h2>Jobs</h2>\n");
  if (data.jobs.empty()) {
    absl::StrAppend(&html, "<p>None yet: <code>synctl submit JOB</code></p>\n");
  } else {
    absl::StrAppend(&html,
                    "<table><tr><th>job<th>name<th>state<th>progress<th>"
                    "speed<th>loss and reason</tr>\n");
    for (const auto& job : data.jobs) AppendJob(job, data.now, &html);
    absl::StrAppend(&html, "</table>\n");
  }
  absl::StrAppend(&html,
                  "<h2>Members</h2>\n<table><tr><th>task<th>address<th>host, "
                  "process<th>GPU<th>works for<th>last heard</tr>\n");
  for (const auto& entry : data.cluster.members()) AppendMember(entry, &html);
  absl::StrAppend(&html, "</table></body></html>\n");
  return html;
}

}  // namespace syncline::scheduler

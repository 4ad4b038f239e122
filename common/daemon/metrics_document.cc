// Look-up in the catalogue, and the document that is made of it.

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/daemon/metrics_catalogue.h"

namespace syncline {
namespace {

struct Section {
  const char* prefix;
  const char* title;
  const char* text;
};

// The first section whose prefix fits has the metric.
constexpr Section kSections[] = {
    {"syncline_job_", "Jobs, at the scheduler",
     "One series for each job that is not over, or for each of its workers. "
     "They come from the workers' reports, twice a second."},
    {"syncline_scheduler_", "Scheduler", ""},
    {"syncline_ps_", "Ps",
     "Series with the label `job` end with the job. A job with several shards "
     "on one ps has the largest of them, of tables the sum."},
    {"syncline_worker_", "Workers and evaluators",
     "What one process did, over all its jobs; the series with the label `job` "
     "are those of the running one and end with it."},
    {"", "Every process", ""},
};

const Section& SectionOf(const MetricInfo& metric) {
  return *std::find_if(std::begin(kSections), std::end(kSections),
                       [&](const Section& section) {
                         return absl::StartsWith(metric.name, section.prefix);
                       });
}

constexpr char kHead[] =
    "# Metrics\n"
    "\n"
    "All that the daemons export at `/metrics`. Made from "
    "`common/daemon/metrics_catalogue.cc`; `metrics_catalogue_test` compares "
    "the two.\n"
    "\n"
    "Labels are bounded: a series is there for a task, a rank, a reason or a "
    "job that is not over, never for a port or an address. Prometheus adds "
    "`task`, `index` and `instance` (`worker:2`) to each process's series, see "
    "[prometheus/](prometheus/).\n";

}  // namespace

const char* MetricTypeName(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return "counter";
    case MetricType::kGauge:
      return "gauge";
    case MetricType::kHistogram:
      return "histogram";
  }
  return "untyped";
}

const MetricInfo* FindMetric(absl::Span<const MetricInfo> catalogue,
                             absl::string_view name) {
  const auto metric = std::find_if(
      catalogue.begin(), catalogue.end(),
      [&](const MetricInfo& candidate) { return name == candidate.name; });
  return metric == catalogue.end() ? nullptr : &*metric;
}

std::vector<std::string> LabelNames(const MetricInfo& metric) {
  std::vector<std::string> names =
      absl::StrSplit(metric.labels, ", ", absl::SkipEmpty());
  std::sort(names.begin(), names.end());
  return names;
}

std::string MetricsDocument(absl::Span<const MetricInfo> catalogue) {
  std::string text = kHead;
  for (const Section& section : kSections) {
    absl::StrAppend(&text, "\n## ", section.title, "\n\n");
    if (*section.text != 0) absl::StrAppend(&text, section.text, "\n\n");
    absl::StrAppend(&text, "| Name | Type | Unit | Labels | Meaning |\n",
                    "|---|---|---|---|---|\n");
    for (const MetricInfo& metric : catalogue) {
      if (&SectionOf(metric) != &section) continue;
      absl::StrAppend(&text, "| `", metric.name, "` | ",
                      MetricTypeName(metric.type), " | ", metric.unit, " | ",
                      metric.labels, " | ",
                      absl::StrReplaceAll(metric.help, {{"|", "\\|"}}), " |\n");
    }
  }
  return text;
}

}  // namespace syncline

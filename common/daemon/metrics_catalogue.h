#ifndef SYNCLINE_COMMON_DAEMON_METRICS_CATALOGUE_H_
#define SYNCLINE_COMMON_DAEMON_METRICS_CATALOGUE_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace syncline {

enum class MetricType { kCounter, kGauge, kHistogram };

// "counter", "gauge", "histogram": Prometheus' word.
const char* MetricTypeName(MetricType type);

// One metric that a daemon exports. The pointers live as long as the process.
struct MetricInfo {
  // Prometheus' naming: the unit last, counters with "_total".
  const char* name;
  MetricType type;
  const char* unit;  // of a value: "bytes", "seconds", "calls", ..
  // The names of its labels, with ", " between them; "": none. The values of a
  // label are bounded: tasks, ranks and reasons, and jobs that are not over.
  const char* labels;
  const char* help;
};

// All metrics of all daemons, each once, by process, role and topic.
// MetricsRegistry exports no other; deploy/metrics.md says the same to people.
absl::Span<const MetricInfo> MetricsCatalogue();

// Null: there is none of this name.
const MetricInfo* FindMetric(absl::Span<const MetricInfo> catalogue,
                             absl::string_view name);

// The names of its labels, ascending.
std::vector<std::string> LabelNames(const MetricInfo& metric);

// The content of deploy/metrics.md.
std::string MetricsDocument(absl::Span<const MetricInfo> catalogue);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_DAEMON_METRICS_CATALOGUE_H_

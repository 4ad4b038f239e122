// Goal: the catalogue follows Prometheus' conventions and the project's on
// labels, and deploy/metrics.md says the same. Method: rules over all entries;
// the document is made anew and compared. promtool checks the conventions again
// on what daemons serve (tests/deploy/observability_test.py).

#include "common/daemon/metrics_catalogue.h"

#include <set>
#include <string>

#include "absl/strings/match.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

TEST(MetricsCatalogueTest, NamesFollowTheConventions) {
  std::set<std::string> names;
  for (const MetricInfo& metric : MetricsCatalogue()) {
    const std::string name = metric.name;
    SCOPED_TRACE(name);
    EXPECT_TRUE(names.insert(name).second) << "twice";
    EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789"),
              std::string::npos);
    EXPECT_TRUE(absl::StartsWith(name, "syncline_") ||
                absl::StartsWith(name, "process_"));
    EXPECT_EQ(absl::EndsWith(name, "_total"),
              metric.type == MetricType::kCounter);
    for (const char* unit : {"bytes", "seconds"}) {
      const std::string suffix = std::string("_") + unit;
      EXPECT_EQ(absl::EndsWith(name, suffix) ||
                    absl::EndsWith(name, suffix + "_total"),
                metric.unit == std::string(unit));
    }
    EXPECT_TRUE(absl::EndsWith(metric.help, "."));
  }
}

// A label whose values have no bound would grow without one.
TEST(MetricsCatalogueTest, LabelsAreBounded) {
  const std::set<std::string> known = {
      "as",      "what", "cause",  "code",   "content", "direction", "file",
      "for",     "from", "job",    "kind",   "mode",    "part",      "phase",
      "program", "rank", "reason", "result", "rpc",     "outcome",   "state",
      "table",   "task", "tier",   "version"};
  for (const MetricInfo& metric : MetricsCatalogue()) {
    for (const std::string& label : LabelNames(metric)) {
      EXPECT_THAT(known, Contains(label)) << metric.name;
    }
  }
}

TEST(MetricsCatalogueTest, AMetricIsFoundByItsName) {
  const MetricInfo* const metric =
      FindMetric(MetricsCatalogue(), "syncline_ps_blame_seconds_total");
  ASSERT_NE(metric, nullptr);
  EXPECT_EQ(metric->type, MetricType::kCounter);
  EXPECT_EQ(LabelNames(*metric), (std::vector<std::string>{"job", "rank"}));
  EXPECT_EQ(FindMetric(MetricsCatalogue(), "syncline_ps"), nullptr);
}

TEST(MetricsCatalogueTest, TheDocumentSaysTheSame) {
  const std::string document = MetricsDocument(MetricsCatalogue());
  EXPECT_THAT(document, HasSubstr("| `syncline_job_clock` | gauge | clocks | "
                                  "job | Clocks that the slowest worker has "
                                  "closed. |\n"));
  const std::string path = "deploy/metrics.md";
  const auto written = ReadFile(path, 1 << 20);
  if (written.ok() && *written == document) return;
  const std::string now = ::testing::TempDir() + "metrics.md";
  ASSERT_TRUE(WriteFileAtomically(now, document).ok());
  FAIL() << path << " is not up to date: cp " << now << " " << path;
}

}  // namespace
}  // namespace syncline

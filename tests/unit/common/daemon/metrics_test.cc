// Goal: what is recorded is what Prometheus reads, with the catalogue's type
// and help; the same name and labels give the same handle; what a collector no
// longer adds is gone. Method: render and look; programs that break the
// catalogue die.

#include "common/daemon/metrics.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr MetricInfo kCatalogue[] = {
    {"syncline_x_total", MetricType::kCounter, "calls", "rpc", "Xs."},
    {"syncline_y_bytes", MetricType::kGauge, "bytes", "", "Ys."},
    {"syncline_z_seconds", MetricType::kHistogram, "seconds", "", "Zs."},
};

TEST(MetricsTest, RendersWhatWasRecorded) {
  MetricsRegistry registry(kCatalogue);
  registry.AddCounter("syncline_x_total", {{"rpc", "Push"}}).Add(2);
  Gauge& gauge = registry.AddGauge("syncline_y_bytes");
  gauge.Set(5);
  gauge.Add(-1);
  Histogram& histogram =
      registry.AddHistogram("syncline_z_seconds", {}, {1, 2});
  histogram.Observe(1.5);
  const std::string text = registry.Render();
  EXPECT_THAT(text, HasSubstr("# HELP syncline_x_total Xs.\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE syncline_x_total counter\n"));
  EXPECT_THAT(text, HasSubstr("syncline_x_total{rpc=\"Push\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("syncline_y_bytes 4\n"));
  EXPECT_THAT(text, HasSubstr("syncline_z_seconds_bucket{le=\"1\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("syncline_z_seconds_bucket{le=\"2\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("syncline_z_seconds_sum 1.5\n"));
}

TEST(MetricsTest, TheSameNameAndLabelsAreOneMetric) {
  MetricsRegistry registry(kCatalogue);
  Counter& one = registry.AddCounter("syncline_x_total", {{"rpc", "1"}});
  Counter& same = registry.AddCounter("syncline_x_total", {{"rpc", "1"}});
  Counter& other = registry.AddCounter("syncline_x_total", {{"rpc", "2"}});
  EXPECT_EQ(&one, &same);
  EXPECT_NE(&one, &other);
}

TEST(MetricsTest, ACollectorsSeriesComeAndGo) {
  MetricsRegistry registry(kCatalogue);
  registry.AddCounter("syncline_x_total", {{"rpc", "Push"}}).Add(2);
  bool has_job = true;
  auto collecting = registry.AddCollector([&](MetricSamples* samples) {
    if (!has_job) return;
    samples->Add("syncline_x_total", {{"rpc", "Pull"}}, 7);
    samples->Add("syncline_y_bytes", {}, 3);
  });
  const std::string text = registry.Render();
  EXPECT_THAT(text, AllOf(HasSubstr("syncline_x_total{rpc=\"Push\"} 2\n"),
                          HasSubstr("syncline_x_total{rpc=\"Pull\"} 7\n"),
                          HasSubstr("# TYPE syncline_y_bytes gauge\n"),
                          HasSubstr("syncline_y_bytes 3\n")));
  // Prometheus refuses a name that comes twice.
  EXPECT_EQ(text.find("# TYPE syncline_x_total"),
            text.rfind("# TYPE syncline_x_total"));
  has_job = false;
  EXPECT_THAT(registry.Render(),
              AllOf(HasSubstr("Push"), Not(HasSubstr("Pull")),
                    Not(HasSubstr("syncline_y_bytes"))));
  has_job = true;
  collecting.reset();
  EXPECT_THAT(registry.Render(), Not(HasSubstr("Pull")));
}

TEST(MetricsDeathTest, OnlyTheCatalogueIsExported) {
  MetricsRegistry registry(kCatalogue);
  EXPECT_DEATH(registry.AddGauge("syncline_other"), "metric syncline_other");
  EXPECT_DEATH(registry.AddCounter("syncline_x_total"),
               "labels of metric syncline_x_total");
  EXPECT_DEATH(registry.AddCounter("syncline_x_total", {{"port", "1"}}),
               "labels of metric syncline_x_total");
  EXPECT_DEATH(registry.AddGauge("syncline_x_total", {{"rpc", "Push"}}),
               "check failed");
}

TEST(MetricsTest, DurationsReachFromTenthsOfMillisecondsToAMinute) {
  const std::vector<double> bounds = MetricsRegistry::DurationBounds();
  ASSERT_EQ(bounds.size(), 20u);
  EXPECT_DOUBLE_EQ(bounds.front(), 100e-6);
  EXPECT_NEAR(bounds.back(), 52.4288, 1e-9);
}

}  // namespace
}  // namespace syncline

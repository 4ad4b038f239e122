// Goal: what is recorded is what Prometheus reads; the same name and labels
// give the same handle. Method: render and look.

#include "common/daemon/metrics.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;

TEST(MetricsTest, RendersWhatWasRecorded) {
  MetricsRegistry registry;
  registry.AddCounter("syncline_x_total", "Xs.", {{"rpc", "Push"}}).Add(2);
  Gauge& gauge = registry.AddGauge("syncline_y_bytes", "Ys.");
  gauge.Set(5);
  gauge.Add(-1);
  Histogram& histogram =
      registry.AddHistogram("syncline_z_seconds", "Zs.", {}, {1, 2});
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
  MetricsRegistry registry;
  Counter& one = registry.AddCounter("syncline_x_total", "Xs.", {{"a", "1"}});
  Counter& same = registry.AddCounter("syncline_x_total", "Xs.", {{"a", "1"}});
  Counter& other = registry.AddCounter("syncline_x_total", "Xs.", {{"a", "2"}});
  EXPECT_EQ(&one, &same);
  EXPECT_NE(&one, &other);
}

TEST(MetricsTest, DurationsReachFromTenthsOfMillisecondsToAMinute) {
  const std::vector<double> bounds = MetricsRegistry::DurationBounds();
  ASSERT_EQ(bounds.size(), 20u);
  EXPECT_DOUBLE_EQ(bounds.front(), 100e-6);
  EXPECT_NEAR(bounds.back(), 52.4288, 1e-9);
}

}  // namespace
}  // namespace syncline

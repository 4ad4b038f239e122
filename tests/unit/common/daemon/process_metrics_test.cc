// Goal: a process says of itself what the kernel says. Method: a line of
// /proc/PID/stat with a hostile name, broken ones, and this process.

#include "common/daemon/process_metrics.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kRest[] =
    " S 1 42 42 0 -1 4194560 5 6 7 8 250 150 3 4 20 0 9 0 1234 8192000 300 "
    "18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0\n";

TEST(ProcessMetricsTest, ReadsTheKernelsLine) {
  for (const std::string name : {"(syncline-ps)", "(a) b (c)", "(1 2 3)"}) {
    const auto stat = ParseProcessStat("42 " + name + kRest, 100, 4096);
    ASSERT_TRUE(stat.has_value()) << name;
    EXPECT_DOUBLE_EQ(stat->cpu_seconds, 4);
    EXPECT_DOUBLE_EQ(stat->start_seconds, 12.34);
    EXPECT_EQ(stat->threads, 9u);
    EXPECT_EQ(stat->virtual_bytes, 8192000u);
    EXPECT_EQ(stat->resident_bytes, 300u * 4096);
  }
}

TEST(ProcessMetricsTest, WhatIsNoLineOfTheKernelIsNothing) {
  EXPECT_FALSE(ParseProcessStat("", 100, 4096).has_value());
  EXPECT_FALSE(ParseProcessStat("42 (x) S 1 2", 100, 4096).has_value());
  EXPECT_FALSE(
      ParseProcessStat(std::string("42 (x)") + kRest, 0, 4096).has_value());
  std::string bad = std::string("42 (x)") + kRest;
  bad.replace(bad.find("250"), 3, "2x0");
  EXPECT_FALSE(ParseProcessStat(bad, 100, 4096).has_value());
}

TEST(ProcessMetricsTest, ReadsTheMachinesStart) {
  EXPECT_EQ(ParseBootTime("cpu 1 2\nbtime 1700000000\nprocesses 5\n"),
            1700000000.0);
  EXPECT_FALSE(ParseBootTime("cpu 1 2\nbtime soon\n").has_value());
  EXPECT_FALSE(ParseBootTime("").has_value());
}

TEST(ProcessMetricsTest, ThisProcessSaysAllOfIt) {
  MetricsRegistry registry;
  const auto collecting = registry.AddCollector(&CollectProcessMetrics);
  const std::string text = registry.Render();
  EXPECT_THAT(text, AllOf(HasSubstr("\nprocess_cpu_seconds_total "),
                          HasSubstr("\nprocess_resident_memory_bytes "),
                          HasSubstr("\nprocess_virtual_memory_bytes "),
                          HasSubstr("\nprocess_open_fds "),
                          HasSubstr("\nprocess_max_fds "),
                          HasSubstr("\nprocess_threads "),
                          HasSubstr("\nprocess_start_time_seconds "),
                          HasSubstr("\nsyncline_process_available_memory_"
                                    "bytes ")));
}

}  // namespace
}  // namespace syncline

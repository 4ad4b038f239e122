// Goal: a trace id is what OpenTelemetry takes for one, new ones differ, and
// the one of a caller is found in TRACEPARENT. Method: examples of the W3C's
// Trace Context, and damaged ones.

#include "common/base/trace_id.h"

#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kId[] = "4bf92f3577b34da6a3ce929d0e0e4736";

TEST(TraceIdTest, Has32DigitsThatAreNotAllZero) {
  EXPECT_TRUE(IsTraceId(kId));
  EXPECT_FALSE(IsTraceId(""));
  EXPECT_FALSE(IsTraceId(std::string(32, '0')));
  EXPECT_FALSE(IsTraceId("4BF92F3577B34DA6A3CE929D0E0E4736"));
  EXPECT_FALSE(IsTraceId("4bf92f3577b34da6a3ce929d0e0e473"));
  EXPECT_FALSE(IsTraceId("4bf92f3577b34da6a3ce929d0e0e4736a"));
  EXPECT_FALSE(IsTraceId("4bf92f3577b34da6a3ce929d0e0e473/"));
}

TEST(TraceIdTest, NewOnesDiffer) {
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::string id = NewTraceId();
    EXPECT_TRUE(IsTraceId(id)) << id;
    EXPECT_TRUE(seen.insert(id).second) << id;
  }
}

TEST(TraceIdTest, IsFoundInTraceparent) {
  const auto found = TraceIdOfParent(
      "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found, kId);
  // A later version may have more behind it.
  EXPECT_TRUE(TraceIdOfParent("cc-4bf92f3577b34da6a3ce929d0e0e4736-"
                              "00f067aa0ba902b7-01-what-comes")
                  .ok());
}

TEST(TraceIdTest, WhatIsNoTraceparentIsNamed) {
  for (const char* const bad :
       {"", "00", "4bf92f3577b34da6a3ce929d0e0e4736",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01", "\x1b[2J"}) {
    const auto found = TraceIdOfParent(bad);
    EXPECT_FALSE(found.ok()) << bad;
    EXPECT_THAT(std::string(found.status().message()),
                HasSubstr("TRACEPARENT: "));
    EXPECT_THAT(std::string(found.status().message()), Not(HasSubstr("\x1b")));
  }
}

TEST(TraceIdTest, ARefusalNamesTheField) {
  EXPECT_TRUE(CheckTraceId("--trace-id", kId).ok());
  EXPECT_THAT(std::string(CheckTraceId("--trace-id", "abc").message()),
              HasSubstr("--trace-id: \"abc\" is no trace id"));
}

}  // namespace
}  // namespace syncline
